"""Section 2 and figure 9: what a lookup costs, and what moving identifiers brings."""

from __future__ import annotations

import numpy as np

from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, verdict
from watersmeet_lab.reproduce.rjoin.claims.nodes import busy, half, is_within, loads
from watersmeet_lab.reproduce.rjoin.lab import MOVE_EVERY, Lab
from watersmeet_lab.simulate.ring.circle import Ring

HALVED, MORE_NODES = 4_000 / 2_000, 900 / 700
"""The paper: the busiest node's load without id movement over that with it, and the nodes that take part with it over those without."""


def check_hops(lab: Lab) -> list[Claim]:
    """Lookups of random keys from random nodes."""
    random, mean, most = np.random.default_rng(0), {}, {}
    for nodes in (10, 100, 1_000, 10_000):
        found = Ring.of(nodes).send(
            random.integers(0, nodes, 20_000), random.integers(-(2**63), 2**63, 20_000), np.zeros(nodes, np.int64)
        )
        mean[nodes], most[nodes] = float(found.mean()), int(found.max())
    series = {"mean": (list(mean), list(mean.values())), "log2(N) / 2": (list(mean), [np.log2(n) / 2 for n in mean])}
    return [
        Claim(
            "A lookup takes O(log N) hops",
            "2",
            "O(log N) with high probability",
            f"hops by N: {each({f'{n:,}:': m for n, m in mean.items()})}, at most {each({f'{n:,}:': float(m) for n, m in most.items()}, '{:.0f}')}",
            verdict([all(m <= np.log2(n) / 2 + 1.5 for n, m in mean.items()), all(m <= 2 * np.log2(n) for n, m in most.items())]),
            raw={"mean": mean, "most": most},
            plots=(Plot("hops", "Hops of a lookup", "nodes", "hops", series),),
        )
    ]  # fmt: skip


def check_id_movement(lab: Lab) -> list[Claim]:
    n = lab.size.tuples
    still, moving = (lab.course(lab.workload(), (n,), moving=m) for m in (False, True))
    samples = {"without": still.last, "with id movement": moving.last}
    most = {name: float(s.processing.max()) for name, s in samples.items()}
    stored = {name: float(s.storage.max()) for name, s in samples.items()}
    used = {name: float(busy(s.load.rows)) for name, s in samples.items()}
    halves = {name: float(half(s.processing)) for name, s in samples.items()}
    messages = {name: float(s.messages) for name, s in samples.items()}
    eased = most["without"] / most["with id movement"]
    joined = used["with id movement"] / used["without"]
    return [
        Claim(
            "Moving identifiers takes load from the busiest nodes and lets more nodes take part",
            "8, figure 9",
            "busiest node 4,000 hits without, 2,000 with; 700 nodes take part without, 900 with",
            f"after {n:,} tuples, a round of movement every {MOVE_EVERY}: busiest node {each(most, '{:,.0f}')} ({eased:.1f} times less); most stored by a node {each(stored, '{:,.0f}')};"
            f" nodes that got rewritten queries {each(used, '{:.0f}')}; half of the processing load lies on {each(halves, '{:.0f}')} nodes;"
            f" {moving.moved:,} rows and tuples changed their owner, a message each; messages of all kinds {each(messages, '{:,.0f}')}",
            verdict([is_within(eased, (HALVED, HALVED)), is_within(joined, (MORE_NODES, MORE_NODES)), stored["with id movement"] < stored["without"], halves["with id movement"] > halves["without"]]),
            raw={"most": most, "stored": stored, "nodes": used, "half": halves, "moved": moving.moved, "messages": messages},
            plots=loads("9", "id movement", samples),
        )
    ]  # fmt: skip
