"""What registered queries may take of a node in one round: tuples that they try, and rows that it holds for them.

    tried    pairs of a row and a tuple under its key, by template: quota `combinations`
    held     rewritten queries that wait at the node, come to it or are made there, all templates together: quota `rewritten_bytes`

Rows are arrays in memory and not chunks of a stream, so it is their number in all that must be bounded: whoever has the most of them goes first.

Invariant: counting changes nothing. The loops stop at the first pair or row beyond a quota, so that a query which explodes takes no more memory or time than
the quotas say; the error names its queries, and the batch runs again without them.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.registered.rewriting import BOUND, MADE, TEMPLATE, TRIED
from watersmeet.query.quotas import Quotas
from watersmeet.registry.rjoin.ring_state import RingState, Spent
from watersmeet.registry.rjoin.templates import Templates
from watersmeet.registry.shared.meter import refuse_more


class Allowance:
    """Counts during one round of a node, which begins with rows that wait there and rows that have come."""

    def __init__(self, quotas: Quotas, templates: Templates, state: RingState, *come: np.ndarray) -> None:
        self.quotas, self.templates, self.state = quotas, templates, state
        size = len(templates.catalogue)
        held = [rows[rows[:, BOUND] != 0, TEMPLATE] for rows in (state.rows, *come)]
        self._held = np.bincount(np.concatenate(held), minlength=size)
        most = quotas.rewritten_bytes // (8 * state.rows.shape[1])
        self._spent = Spent.begin(size, quotas.combinations, most - int(self._held.sum()))
        self._check(0)

    def meet_tuples(self, tuples: np.ndarray) -> np.ndarray:
        """Let tuples arrive: the rows that they make."""
        return self._check_all(self.state.meet_tuples(tuples, self._spent))

    def meet_rows(self, rows: np.ndarray, marks: np.ndarray) -> np.ndarray:
        """Let rows arrive: the rows that they make."""
        return self._check_all(self.state.meet_rows(rows, marks, self._spent))

    def _check_all(self, made: np.ndarray) -> np.ndarray:
        self._check(len(made))
        return made

    def _check(self, made: int) -> None:
        """Raise if some template has tried too much, or so many more rows are too many."""
        counts, limits = self._spent
        self._refuse(np.flatnonzero(counts[:, TRIED] > limits[TRIED]), "combinations")
        limits[MADE] -= made
        if limits[MADE] < 0:
            has = self._held + counts[:, MADE]
            self._refuse(np.flatnonzero(has == has.max()), "rewritten_bytes")

    def _refuse(self, over: np.ndarray, quota: str) -> None:
        refuse_more(self.quotas, self.templates.list_ids(over), quota)
