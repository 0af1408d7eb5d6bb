"""All kernels that take a join as one problem, by name: the product's sweeps, and the tuple-at-a-time joins.

Invariant: of the tuple-at-a-time joins only `ripple` and `xjoin` are announced to the product; under the names `nlw` and `hw` its units
run their own kernels, which work on whole batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from watersmeet.kernels import catalogue
from watersmeet.kernels.catalogue import Kernel
from watersmeet_lab.kernels.tuplewise import hw, nlw, ripple, xjoin

KERNELS: Mapping[str, Kernel] = {**catalogue.KERNELS, "nlw": nlw, "hw": hw, "ripple": ripple, "xjoin": xjoin}

named = partial(catalogue.find_kernel, known=KERNELS)
"""The kernel of a name, `gca(...)` included."""
