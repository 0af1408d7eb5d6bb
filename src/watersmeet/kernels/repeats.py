"""Row numbers that repeat: the different ones, and for each row which of them it is.

    rows      7 7 7 2 2 7
    found     7 2               in the order in which they first appear
    numbers   0 0 0 1 1 0

Invariant: `found[numbers]` are the rows. Every slot of the scratch array is -1 before and after.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compiled import kernel


@kernel("Tuple((int32[::1], int64[::1]))(int64[::1], int32[::1], int64)")
def number_repeated(rows, scratch, most):  # type: ignore[no-untyped-def]
    """(numbers, found) of rows below `len(scratch)`; both are empty if more than `most` rows are different.

    >>> [part.tolist() for part in number_repeated(np.array([7, 7, 2, 7]), np.full(8, -1, np.int32), 2)]
    [[0, 0, 1, 0], [7, 2]]
    """
    numbers = np.empty(len(rows), np.int32)
    found = np.empty(most, np.int64)
    count = 0
    fits = True
    for i in range(len(rows)):
        number = scratch[rows[i]]
        if number < 0:
            if count == most:
                fits = False
                break
            number = np.int32(count)
            scratch[rows[i]] = number
            found[count] = rows[i]
            count += 1
        numbers[i] = number
    for n in range(count):
        scratch[found[n]] = -1
    if not fits:
        return np.empty(0, np.int32), np.empty(0, np.int64)
    return numbers, found[:count].copy()
