"""Theorems 1 and 2: nothing is lost while messages take no longer than Delta, and nothing comes twice. Delays below, at, just beyond and far beyond Delta."""

from __future__ import annotations

from watersmeet_lab.reproduce.report import Claim, verdict
from watersmeet_lab.reproduce.rjoin.answer import AnswerBag, Compared, Expected
from watersmeet_lab.reproduce.rjoin.lab import Lab
from watersmeet_lab.reproduce.rjoin.workload import STREAMS, TICKS, WARM_UP, Workload
from watersmeet_lab.simulate.ring.circle import Ring
from watersmeet_lab.simulate.ring.simulation import RingSimulation
from watersmeet_lab.simulate.ring.unit import RingOptions

DELTA = 8 * TICKS
"""As long as eight tuples take to be published: messages overtake tuples."""
DELAYS = {"half of Delta": DELTA // 2, "Delta": DELTA, "Delta and one tick": DELTA + 1, "4 Delta": 4 * DELTA}
QUERIES, TUPLES, NODES = 300, 150, 40


def check_theorems(lab: Lab) -> list[Claim]:
    """Completeness and no duplicates, by the rows of every query."""
    found = {name: compare_at(delay) for name, delay in DELAYS.items()}
    return [claim_theorems(found)]


def compare_at(delay: int, delta: int = DELTA) -> Compared:
    """All answers of a small run whose messages take up to `delay`, where nodes believe that none takes longer than Delta."""
    workload = Workload(QUERIES, TUPLES, joins=3, ranks="shared")
    options = RingOptions(
        "ric", delta=delta, delay=min(delay, delta), rate_period=WARM_UP * TICKS, rate_valid=WARM_UP * TICKS
    )
    run = RingSimulation(Ring.of(NODES), STREAMS, workload.templates, options, delay=delay, keep=False)
    bag = AnswerBag(run.registry)
    run.on_answers = bag.take
    run.publish(workload.data)
    run.pose(workload.templates, workload.begin)
    assert run.run()
    return Expected(workload, TUPLES).compare(bag.table(), run.registry.templates)


def claim_theorems(found: dict[str, Compared]) -> Claim:
    """The verdict follows from the rows: it is "no" if one is lost at Delta or below, or one comes too often anywhere."""
    within = [c for name, c in found.items() if DELAYS[name] <= DELTA]
    beyond = found[max(DELAYS, key=DELAYS.__getitem__)]
    said = "; ".join(
        f"{name}: {c.rows:,} rows, {c.missing:,} missing, {c.extra:,} too many" for name, c in found.items()
    )
    holds = [all(c.missing == 0 for c in within), all(c.extra == 0 for c in found.values())]
    return Claim(
        "Answers are complete while no message takes longer than Delta, and never doubled",
        "4, theorems 1 and 2",
        "eventual completeness if delays stay below Delta; no accidental duplicates",
        f"{QUERIES} 3-way queries, longest delay of a message: {said}",
        verdict([*holds, beyond.missing > 0]) if all(holds) else "no",
        raw={name: vars(c) for name, c in found.items()},
    )
