"""Figure 2: what it is worth to know the rates of incoming tuples before a query is indexed."""

from __future__ import annotations

from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, short, verdict
from watersmeet_lab.reproduce.rjoin.claims.nodes import is_within, loads, per_node
from watersmeet_lab.reproduce.rjoin.lab import Course, Lab

RANDOM, WORST = (4.0, 5.0), (10.0, 100.0)
"""How many times RIC's traffic random and worst choices cost in the paper."""


def check_choice(lab: Lab) -> list[Claim]:
    """RIC against random and worst choices among all candidates, and among those at value level."""
    at = lab.size.choice_tuples
    workload = lab.workload(tuples=at[-1])
    runs = {name: lab.course(workload, at, name) for name in ("ric", "random", "worst")}
    narrow = {name: lab.course(workload, at, name, "value") for name in ("random", "worst")}
    return [_traffic(lab, runs, narrow), _share(lab, runs["ric"]), _loads(lab, runs, narrow)]


def _times(runs: dict[str, Course], ric: Course, name: str) -> float:
    return runs[name].last.messages / ric.last.messages


def _traffic(lab: Lab, runs: dict[str, Course], narrow: dict[str, Course]) -> Claim:
    ric, at = runs["ric"], lab.size.choice_tuples
    random, worst = _times(runs, ric, "random"), _times(runs, ric, "worst")
    stopped = [f"{name} after {c.reached} tuples" for name, c in runs.items() if not c.ended]
    limited = {name: _times(narrow, ric, name) for name in narrow}
    series = {
        "RIC, asking only": (list(at), [ric.samples[n].asking / lab.size.nodes for n in at]),
        **{n: (list(c.samples), [s.messages / lab.size.nodes for s in c.samples.values()]) for n, c in runs.items()},
        **{
            f"{n}, value level only": (list(c.samples), [s.messages / lab.size.nodes for s in c.samples.values()])
            for n, c in narrow.items()
        },
    }
    title = "Figure 2(a): traffic by the choice of keys"
    nodes = lab.size.nodes
    return Claim(
        "Knowing the rates of incoming tuples saves most of the traffic",
        "6, 8, figure 2(a)",
        "after 50 to 400 tuples: random choices cost 4 to 5 times as much, worst ones 10 to 100 times",
        f"messages per node after {at[-1]} tuples: RIC {per_node(ric.last.messages, nodes)}, random {per_node(runs['random'].last.messages, nodes)}"
        f" ({random:.1f} times), worst {'at least ' if not runs['worst'].ended else ''}{per_node(runs['worst'].last.messages, nodes)}"
        f" ({worst:.1f} times{'; stopped: ' + ', '.join(stopped) if stopped else ''}); if rewritten queries choose among keys at"
        f" value level only: {each(limited, '{:.1f} times')}",
        verdict([is_within(random, RANDOM), is_within(worst, WORST)]),
        times=", ".join(f"{name} {c.seconds:.0f} s" for name, c in runs.items()),
        raw={
            "times_random": random, "times_worst": worst, "value_level_only": limited,
            "messages": {n: {k: s.messages for k, s in c.samples.items()} for n, c in runs.items()},
            "grouped": {n: {k: s.groups for k, s in c.samples.items()} for n, c in runs.items()},
        },
        plots=(Plot("figure-2a-choice", title, "tuples", "messages per node", series, log=True),),
    )  # fmt: skip


def _share(lab: Lab, ric: Course) -> Claim:
    first, last = ric.samples[lab.size.choice_tuples[0]], ric.last
    rest = last.queries
    return Claim(
        "With RIC most messages ask for rates, few carry queries; asking gets cheaper as more is known",
        "7, 8, figure 2(a)",
        "the cost of requesting RIC is dominated by routing; the cost to index queries is small",
        f"after {last.tuples} tuples {short(last.asking)} messages ask, {short(rest)} carry queries, {short(last.other['tuples'])} index tuples,"
        f" {short(last.other['answers'])} answer; asking takes {first.asking / max(first.load.rows.sum(), 1):.2f} messages for every rewritten query"
        f" after {first.tuples} tuples, {last.asking / last.load.rows.sum():.2f} after {last.tuples}",
        verdict([
            last.asking > rest,
            last.asking / last.load.rows.sum() < first.asking / max(int(first.load.rows.sum()), 1),
        ]),
        raw={"asking": last.asking, "queries": rest, **last.other},
    )  # fmt: skip


def _loads(lab: Lab, runs: dict[str, Course], narrow: dict[str, Course]) -> Claim:
    last = {name: c.last for name, c in runs.items()}
    processing = {n: int(s.processing.sum()) for n, s in last.items()}
    storage = {n: int(s.storage.sum()) for n, s in last.items()}
    rows = {n: c.last.load.rows.sum() / last["ric"].load.rows.sum() for n, c in narrow.items()}
    same = len({s.answers for n, s in last.items() if runs[n].ended}) == 1
    said = f"the same {last['ric'].answers:,} answers" if same else "different answers"
    return Claim(
        "With RIC nodes process and store significantly less",
        "8, figure 2(b) and (c)",
        "significantly less query processing and storage load than random and worst",
        f"after {last['ric'].tuples} tuples, all nodes: processing {each(processing, '{:,.0f}')}; stored {each(storage, '{:,.0f}')}; {said} in all runs"
        f" that came to their end; rewritten queries at value level only: {each(rows, '{:.1f} times')} RIC's",
        verdict([
            same,
            *(v >= 2 * processing["ric"] for n, v in processing.items() if n != "ric"),
            *(v >= 2 * storage["ric"] for n, v in storage.items() if n != "ric"),
        ]),
        raw={"processing": processing, "storage": storage},
        plots=loads("2", f"after {last['ric'].tuples} tuples", last),
    )  # fmt: skip
