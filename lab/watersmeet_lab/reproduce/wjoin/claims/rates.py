"""Section 4.3, figure 9: the number of streams, rates that differ, rates that are comparable, and a rate that alternates.

Streams of one query are read in turn, as section 3.1 says, whatever their rates: so those of low rates are ahead in time,
and NLW scans what is ahead again and again. Read in time order there is nothing ahead, and both test every pair in the
window: that is reported beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, shorts, verdict
from watersmeet_lab.reproduce.wjoin.claims.baselines import judge_convergence
from watersmeet_lab.reproduce.wjoin.data import Feed, alternate_rate, exponential
from watersmeet_lab.reproduce.wjoin.lab import Lab, Order, Run, uniform

HIGH, LOW, LOWEST = 1000, 100, 10
"""Tuples per second."""
KERNELS = ("nlw", "mw", "hw")
COMPARABLE = 2
"""Times as much, at most."""
Table = dict[tuple[int, int, str, Order], Run]
"""By streams, seed, kernel and order."""


def check_variable(lab: Lab) -> list[Claim]:
    """Figure 9a: rates from 1,000 down to 100 tuples per second, evenly spaced by their ratio."""
    runs = _table(
        lab, lambda n, seed: exponential(np.geomspace(HIGH, LOW, n).tolist(), lab.size.rows, lab.size.values, seed)
    )
    ratio, range_ = _ratios(runs, "in turn")
    in_time, _ = _ratios(runs, "in time")
    timed, _ = _ratios(runs, "in turn", lambda r: r.service_us)
    fewer = exponential(np.geomspace(HIGH, LOW, 4).tolist(), lab.size.rows, lab.size.values // 2, lab.size.seeds[0])
    other = {k: lab.run(k, fewer, uniform(4, lab.size.window_us)).comparisons for k in ("nlw", "mw")}
    return [
        Claim(
            "At rates that differ MW is more than an order of magnitude better than NLW, whatever the number of streams",
            "4.3, figure 9a",
            "rates between 1,000 and 100 tuples/s, 2 to 6 streams: more than ten times",
            f"NLW's comparisons over MW's, streams read in turn: {each(ratio, '{:.1f}')} (seeds differ by {range_:.0%});"
            f" read in time order: {each(in_time, '{:.1f}')}; half as many values, 4 streams: {other['nlw'] / other['mw']:.1f};"
            f" per tuple: {shorts(_means(runs, 'in turn'))}",
            verdict([all(r >= 10 for r in (*ratio.values(), other["nlw"] / other["mw"]))]),
            times=f"NLW's service time over MW's: {each(timed, '{:.1f}')}; us per tuple: {shorts(_means(runs, 'in turn', lambda r: r.service_us))}",
            raw=_raw(runs),
            plots=_plots("a", "rates of 1,000 to 100 tuples/s", runs),
        ),
        _merge_and_hash(runs),
    ]


def _merge_and_hash(runs: Table) -> Claim:
    counted = {str(n): _mean(runs, n, "mw", "in turn", _comparisons) / _mean(runs, n, "hw", "in turn", _comparisons) for n in _streams(runs)}  # fmt: skip
    timed = {str(n): _mean(runs, n, "mw", "in turn", lambda r: r.service_us) / _mean(runs, n, "hw", "in turn", lambda r: r.service_us) for n in _streams(runs)}  # fmt: skip
    return Claim(
        "At rates that differ MW is comparable to HW, which needs an equality",
        "1",
        "MW has a comparable performance",
        f"MW's comparisons over HW's, by streams: {each(counted, '{:.1f}')}; per tuple: {shorts(_means(runs, 'in turn'))}",
        verdict([all(t <= COMPARABLE for t in timed.values())], main=all(c <= COMPARABLE for c in counted.values())),
        times=f"MW's service time over HW's: {each(timed, '{:.1f}')}",
        raw={"comparisons": counted, "service": timed},
    )


def _comparisons(run: Run) -> float:
    return run.comparisons


def check_comparable(lab: Lab) -> list[Claim]:
    """Figure 9b: all streams at 1,000 tuples per second."""
    runs = _table(lab, lambda n, seed: exponential([HIGH] * n, lab.size.rows, lab.size.values, seed))
    ratio, _ = _ratios(runs, "in turn")
    tests, _ = _ratios(runs, "in turn", lambda r: r.tests)
    timed, _ = _ratios(runs, "in turn", lambda r: r.service_us)
    hw = {n: min(runs[key].comparisons for key in runs if key[2] != "hw" and key[0] == n) / runs[n, lab.size.seeds[0], "hw", "in turn"].comparisons for n in _streams(runs)}  # fmt: skip
    hw_time = {str(n): _mean(runs, n, "mw", "in turn", lambda r: r.service_us) / _mean(runs, n, "hw", "in turn", lambda r: r.service_us) for n in _streams(runs)}  # fmt: skip
    return [
        Claim(
            "At comparable rates NLW and MW converge: mode 2 becomes the same nested loop",
            "4.3, figure 9b",
            "the two curves meet as streams are added (real data, about 5,000 transactions an hour)",
            f"NLW's comparisons of values over MW's: {each(tests)}: the same pairs; of times and values: {each(ratio)}: NLW tests the"
            f" period of every tuple that it meets, MW that of an admitted tuple once; per tuple: {shorts(_means(runs, 'in turn'))}",
            judge_convergence(list(ratio.values())),
            times=f"NLW's service time over MW's: {each(timed)}",
            raw=_raw(runs),
            plots=_plots("b", "all at 1,000 tuples/s", runs),
        ),
        Claim(
            "HW scales best with the number of streams, where there is an equality",
            "4.3, figure 9",
            "HW is the most scalable, and best",
            f"comparisons of the better of NLW and MW over HW's: {each({str(n): r for n, r in hw.items()}, '{:.0f}')}",
            verdict([all(r > 1 for r in hw.values()), all(r > 1 for r in hw_time.values())]),
            times=f"MW's service time over HW's: {each(hw_time, '{:.0f}')}",
            raw={"comparisons": hw, "service": hw_time},
        ),
    ]


def check_alternates(lab: Lab) -> list[Claim]:
    """Figure 9c: of four streams the last one changes between 10 and 1,000 tuples per second every 100 tuples."""
    runs: dict[tuple[str, str, Order], list[Run]] = {}
    for seed in lab.size.seeds:
        level = exponential([HIGH] * 4, lab.size.rows, lab.size.values, seed)
        for title, feed in (("level", level), ("alternating", alternate_rate(level, LOWEST, HIGH, seed))):
            for kernel in KERNELS:
                orders: tuple[Order, ...] = ("in turn",) if kernel == "mw" else ("in turn", "in time")
                for order in orders:
                    runs.setdefault((title, kernel, order), []).append(
                        lab.run_with_curve(kernel, feed, uniform(4, lab.size.window_us), order)
                    )
    cost = {key: float(np.mean([r.comparisons for r in of])) for key, of in runs.items()}
    time = {key: float(np.mean([r.service_us for r in of])) for key, of in runs.items()}
    change = {k: cost["alternating", k, "in turn"] / cost["level", k, "in turn"] for k in KERNELS}
    in_time = {k: cost["alternating", k, "in time"] / cost["level", k, "in time"] for k in ("nlw", "hw")}
    timed = {k: time["alternating", k, "in turn"] / time["level", k, "in turn"] for k in KERNELS}
    curves = {f"{k.upper()}, {title}": runs[title, k, "in turn"][0].per_thousand() for title in ("level", "alternating") for k in KERNELS}  # fmt: skip
    title = "Figure 9c: four streams, one alternating between 10 and 1,000 tuples/s"
    kinds = (("comparisons", "comparisons per tuple"), ("service", "us per tuple"))
    plots = tuple(
        Plot(f"figure-09c-{name}", title, "input tuples", unit, {of: (c[0], c[n]) for of, c in curves.items()}, log=True, marks=False)
        for n, (name, unit) in enumerate(kinds, 1)
    )  # fmt: skip
    return [
        Claim(
            "Where one stream alternates between 10 and 1,000 tuples/s MW's cost falls; NLW's and HW's hardly change",
            "4.3, figure 9c",
            "MW reacts at once, being in mode 1 most of the time; NLW and HW are not changed significantly",
            f"comparisons over those at a level rate, streams read in turn: {each(change)}; in time order: {each(in_time)};"
            f" per tuple: {shorts({f'{k} {t}': cost[t, k, 'in turn'] for k in KERNELS for t in ('level', 'alternating')})}",
            verdict([change["mw"] < 0.7, all(1 / 1.5 <= change[k] <= 1.5 for k in ("nlw", "hw"))]),
            times=f"service time over that at a level rate: {each(timed)}",
            raw={" / ".join(key): [r.comparisons for r in of] for key, of in runs.items()},
            plots=plots,
        )
    ]


def _table(lab: Lab, feed: Callable[[int, int], Feed]) -> Table:
    out: Table = {}
    for n in range(2, lab.size.streams + 1):
        for seed in lab.size.seeds:
            streams = feed(n, seed)
            for kernel in KERNELS:
                orders: tuple[Order, ...] = ("in turn",) if kernel == "mw" else ("in turn", "in time")
                for order in orders:
                    out[n, seed, kernel, order] = lab.run(kernel, streams, uniform(n, lab.size.window_us), order)
    return out


def _streams(runs: Table) -> list[int]:
    return sorted({n for n, *_ in runs})


def _mean(runs: Table, n: int, kernel: str, order: Order, of: Callable[[Run], float]) -> float:
    return float(np.mean([of(r) for (m, _, k, o), r in runs.items() if (m, k, o) == (n, kernel, order)]))


def _ratios(
    runs: Table, order: Order, of: Callable[[Run], float] = lambda r: r.comparisons
) -> tuple[dict[str, float], float]:
    """NLW's over MW's by streams, and how far seeds are apart."""
    ratio = {n: _mean(runs, n, "nlw", order, of) / _mean(runs, n, "mw", "in turn", of) for n in _streams(runs)}
    each_seed = [[of(r) / of(runs[n, s, "mw", "in turn"]) for (m, s, k, o), r in runs.items() if (m, k, o) == (n, "nlw", order)] for n in ratio]  # fmt: skip
    return {str(n): r for n, r in ratio.items()}, max(max(by) / min(by) - 1 for by in each_seed)


def _means(runs: Table, order: Order, of: Callable[[Run], float] = lambda r: r.comparisons) -> dict[str, float]:
    ends = (_streams(runs)[0], _streams(runs)[-1])
    return {f"{k} {n}": _mean(runs, n, k, order, of) for n in ends for k in KERNELS}


def _raw(runs: Table) -> Mapping[str, object]:
    return {
        f"{n} streams / seed {seed} / {k} / {order}": [
            r.comparisons,
            r.tests,
            r.service_us,
            r.answer.results,
            r.consumed,
        ]
        for (n, seed, k, order), r in runs.items()
    }


def _plots(letter: str, title: str, runs: Table) -> tuple[Plot, ...]:
    plots = []
    kinds: tuple[tuple[str, str, Callable[[Run], float]], ...] = (
        ("comparisons", "comparisons per tuple", lambda r: r.comparisons),
        ("service", "us per tuple", lambda r: r.service_us),
    )
    for name, unit, of in kinds:
        series = {k.upper(): (_streams(runs), [_mean(runs, n, k, "in turn", of) for n in _streams(runs)]) for k in KERNELS}  # fmt: skip
        series["NLW, in time order"] = (_streams(runs), [_mean(runs, n, "nlw", "in time", of) for n in _streams(runs)])
        plots.append(Plot(f"figure-09{letter}-{name}", f"Figure 9{letter}: {title}", "streams", unit, series, log=True))
    return tuple(plots)
