"""The tuple-at-a-time kernels by name: `nlw`, `hw`, `mw`, `lca`, `ripple`, `xjoin`, and `gca(...)` of any.

All take a `problem.Problem` and yield the same combinations; they differ in what they compare on the way.
"""

from __future__ import annotations

from watersmeet.kernels.filter_refine import Kernel, gca
from watersmeet.kernels.merge_window import lca, mw
from watersmeet.kernels.tuplewise import hw, nlw, ripple, xjoin

KERNELS: dict[str, Kernel] = {"nlw": nlw, "hw": hw, "mw": mw, "lca": lca, "ripple": ripple, "xjoin": xjoin}


def named(name: str) -> Kernel:
    """The kernel of a name.

    >>> named("gca(mw)") is not named("mw")
    True
    """
    return gca(KERNELS[name[4:-1]]) if name.startswith("gca(") else KERNELS[name]
