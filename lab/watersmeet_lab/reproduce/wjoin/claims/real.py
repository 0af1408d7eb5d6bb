"""Section 4.3, figures 7 and 9 on real streams: MW against NLW over flights, where their package is installed.

Carriers that fly about equally often still drift apart when they are read in turn: after some weeks one is days ahead, which
is several windows. So MW has tuples to leave alone even there, as on the paper's logs.
"""

from __future__ import annotations

from watersmeet_lab.reproduce.report import Claim, each, verdict
from watersmeet_lab.reproduce.wjoin.data import DAY
from watersmeet_lab.reproduce.wjoin.flights import COMPARABLE, VARIABLE, find_file, flights
from watersmeet_lab.reproduce.wjoin.lab import ALMOST, Lab, Order, Run, uniform


def check_real(lab: Lab) -> list[Claim]:
    """One claim, or none without the package."""
    path = find_file()
    if path is None:
        return []
    runs: dict[tuple[str, str, Order], Run] = {}
    ways: tuple[tuple[str, Order], ...] = (("nlw", "in turn"), ("nlw", "in time"), ("mw", "in turn"), ("hw", "in turn"))
    for title, carriers, streams in (("comparable", COMPARABLE, (2, 3, 4)), ("variable", VARIABLE, (4,))):
        feed = flights(path, carriers, lab.size.flight_days)
        for n in streams:
            for kernel, order in ways:
                runs[f"{title} {n}", kernel, order] = lab.run(kernel, feed.first(n), uniform(n, DAY), order)
    titles = list(dict.fromkeys(title for title, _, _ in runs))
    cost = {key: run.comparisons for key, run in runs.items()}
    ratio = {t: cost[t, "nlw", "in turn"] / cost[t, "mw", "in turn"] for t in titles}
    in_time = {t: cost[t, "nlw", "in time"] / cost[t, "mw", "in turn"] for t in titles}
    timed = {t: runs[t, "nlw", "in turn"].service_us / runs[t, "mw", "in turn"].service_us for t in titles}
    hashed = {t: cost[t, "mw", "in turn"] / cost[t, "hw", "in turn"] for t in titles}
    return [
        Claim(
            "On real streams MW is almost an order of magnitude better than NLW",
            "4.3, figures 7 and 9, real data",
            "almost ten times as fast, 2 to 4 streams; converging at comparable rates as streams are added",
            f"flights by carrier, joined on the destination within a day; NLW's comparisons over MW's, read in turn: {each(ratio, '{:.1f}')};"
            f" in time order: {each(in_time, '{:.1f}')}; MW's over HW's: {each(hashed, '{:.1f}')}",
            verdict([all(r >= ALMOST for r in ratio.values())]),
            times=f"NLW's service time over MW's: {each(timed, '{:.1f}')}",
            raw={" / ".join(key): [r.comparisons, r.tests, r.service_us, r.answer.results] for key, r in runs.items()},
        )
    ]
