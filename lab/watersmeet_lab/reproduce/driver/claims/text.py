"""What the text of section 4.2 says beyond tables 4 and 5: who is best, when results come, halves of bursty streams, consumption.

Every claim is a condition on executed and timed batches: shares and times are those of tables 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watersmeet.plan.model import Policy
from watersmeet_lab.reproduce.driver.claims.times import average
from watersmeet_lab.reproduce.driver.lab import Lab, Timed
from watersmeet_lab.reproduce.driver.paper import SHORT, SPANS
from watersmeet_lab.reproduce.report import Claim, Verdict, verdict

PROPOSED: tuple[Policy, ...] = ("consumption_rate", "initial_output_size", "output_rate")
FAST: tuple[Policy, ...] = ("initial_output_size", "output_rate")
NEGLIGIBLE = 0.002
"""What the paper calls negligible; partly: ten times that."""
HALF = 0.55
"""What counts as half of timestamp's time."""
SILENT, ALIKE = 0.2, 0.1
"""A very small portion of the results; times that are similar."""

Found = list[dict[str, Timed]]
"""By length of batches, then by data set."""


def check_text(lab: Lab) -> list[Claim]:
    """Nine claims."""
    found = [lab.paper(span) for span in (0, 1)]
    curves = [lab.paper(span, in_pieces=True) for span in (0, 1)]
    return [
        _best(found), _half(found), _alike(found), _early(curves, ("I", "II", "III"), 0.6, "60% of the results of I to III within 30% of timestamp's time"),
        _early(curves, ("V",), 0.8, "80% of the results of V within 20% to 30% of timestamp's time"),
        _first_half(found), _silent(found, curves), _lowest(found), _round_robin(found), _consumption(curves),
    ]  # fmt: skip


def _each(found: Found, names: Sequence[str], of: Callable[[Timed], float]) -> str:
    return ", ".join(f"{d} {' '.join(f'{of(f[d]):.2f}' for f in found)}" for d in names)


def _time_of(policy: Policy) -> Callable[[Timed], float]:
    return lambda t: t.normalise(policy)


def _claim(claim: str, paper: str, holds: Verdict, times: str, raw: object) -> Claim:
    return Claim(claim, "4.2", paper, "timed; results are verified", holds, times=times, raw={"measured": raw})


def _best(found: Found) -> Claim:
    means = {p: [average(f, _time_of(p)) for f in found] for p in PROPOSED}
    first = [min(means, key=lambda p: means[p][n]) == "initial_output_size" for n in (0, 1)]
    return _claim(
        "Initial output size is the most efficient of the three", "mainly because it is the fastest",
        verdict(first), "average over timestamp's, I to VI, 0.1M and 1M: "
        + ", ".join(f"{SHORT[p]} {a:.3f} {b:.3f}" for p, (a, b) in means.items()), means,
    )  # fmt: skip


def _half(found: Found) -> Claim:
    here = {d: [f[d].normalise("initial_output_size") for f in found] for d in ("V", "VI")}
    return _claim(
        "Initial output size halves the time on V in batches of 1M", "up to 50% less where streams burst and selectivities differ",
        verdict([here["V"][1] <= HALF]), _each(found, ("V", "VI"), _time_of("initial_output_size")), here,
    )  # fmt: skip


def _alike(found: Found) -> Claim:
    apart = {
        f"{d} {span}": abs(f[d].normalise("round_robin") - 1)
        for span, f in zip(SPANS, found, strict=True)
        for d in ("I", "II", "III")
    }
    return _claim(
        "Round robin and timestamp finish at the same time on I to III", "the deviation is less than 0.2%", judge_alike(list(apart.values())),
        "apart by " + ", ".join(f"{name} {a:.1%}" for name, a in apart.items()), apart,
    )  # fmt: skip


def judge_alike(apart: Sequence[float]) -> Verdict:
    """Whether deviations are as small as the paper's; partly: at most ten times that.

    >>> judge_alike([0.001]), judge_alike([0.015]), judge_alike([0.001, 0.1])
    ('yes', 'partly', 'no')
    """
    most = max(apart)
    return "yes" if most <= NEGLIGIBLE else "partly" if most <= 10 * NEGLIGIBLE else "no"


def _early(curves: Found, names: Sequence[str], share: float, claim: str) -> Claim:
    here = {p: {d: [f[d].average_share(p, 0.3) for f in curves] for d in names} for p in FAST}
    parts = [v >= share for by in here.values() for pair in by.values() for v in pair]
    return _claim(
        f"Initial output size and output rate produce {claim}", "much earlier than any other policy", verdict(parts),
        "share of results at 0.3 of timestamp's time, 0.1M and 1M: "
        + "; ".join(f"{SHORT[p]} " + ", ".join(f"{d} {a:.2f} {b:.2f}" for d, (a, b) in by.items()) for p, by in here.items()), here,
    )  # fmt: skip


def _first_half(found: Found) -> Claim:
    here = {
        p: [[f["IV"].normalise(p, batches=half) for half in f["IV"].halves] for f in found] for p in FAST
    }  # fmt: skip
    return _claim(
        "On IV the gains are larger in the first half, where data is sparse", "improvements are higher in the initial part",
        verdict([first < second for by in here.values() for first, second in by]),
        "time over timestamp's, first and second half, 0.1M then 1M: "
        + "; ".join(f"{SHORT[p]} " + ", ".join(f"{a:.2f} {b:.2f}" for a, b in by) for p, by in here.items()), here,
    )  # fmt: skip


def _silent(found: Found, curves: Found) -> Claim:
    time = [[f["V"].normalise(p) for f in found] for p in ("consumption_rate", "output_rate")]
    shares = [f["V"].average_share("consumption_rate", 0.7 * own) for f, own in zip(curves, time[0], strict=True)]
    near = [abs(c / o - 1) <= ALIKE for c, o in zip(*time, strict=True)]
    return _claim(
        "On V consumption rate has produced hardly anything at 70% of its time, and is as fast as output rate", "a very small portion; reduces the time similarly",
        verdict([*(s <= SILENT for s in shares), *near]),
        f"share of results at 0.7 of its time, 0.1M and 1M: {shares[0]:.2f} {shares[1]:.2f}; time over timestamp's: consumption rate {time[0][0]:.2f} {time[0][1]:.2f},"
        f" output rate {time[1][0]:.2f} {time[1][1]:.2f}", {"shares": shares, "times": time},
    )  # fmt: skip


def _lowest(found: Found) -> Claim:
    here = {p: [f["VI"].normalise(p) for f in found] for p in ("round_robin", *PROPOSED)}
    lowest = [min(here, key=lambda p: here[p][n]) == "initial_output_size" for n in (0, 1)]
    return _claim(
        "Initial output size has the lowest time on VI", "the lowest total running time", verdict(lowest),
        "time over timestamp's, 0.1M and 1M: " + ", ".join(f"{SHORT[p]} {a:.2f} {b:.2f}" for p, (a, b) in here.items()), here,
    )  # fmt: skip


def _round_robin(found: Found) -> Claim:
    here = {d: [f[d].normalise("round_robin") for f in found] for d in ("IV", "V", "VI")}
    return _claim(
        "Even round robin is ahead of timestamp where streams burst and batches are large", "0.997, 0.927 and 0.926 on IV, V and VI in batches of 1M",
        verdict([pair[1] < 1 for pair in here.values()]), _each(found, ("IV", "V", "VI"), _time_of("round_robin")), here,
    )  # fmt: skip


def _consumed_by(policy: Policy) -> Callable[[Timed], float]:
    return lambda t: t.average_share(policy, 0.5, what=1)


def _consumption(curves: Found) -> Claim:
    policies: tuple[Policy, ...] = ("timestamp", *PROPOSED)
    here = {p: [average(f, _consumed_by(p)) for f in curves] for p in policies}
    return _claim(
        "All three consume the input earlier than timestamp", "better in early input consumption, too",
        verdict([a > b for p in PROPOSED for a, b in zip(here[p], here["timestamp"], strict=True)]),
        "share of tuples consumed at half of timestamp's time, 0.1M and 1M: " + ", ".join(f"{SHORT[p]} {a:.2f} {b:.2f}" for p, (a, b) in here.items()), here,
    )  # fmt: skip
