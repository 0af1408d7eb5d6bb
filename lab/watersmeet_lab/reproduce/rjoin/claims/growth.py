"""Figures 3 to 6: more tuples, more queries, more skew, longer joins."""

from __future__ import annotations

from itertools import pairwise

from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, short, shorts, verdict
from watersmeet_lab.reproduce.rjoin.claims.nodes import busy, half, loads
from watersmeet_lab.reproduce.rjoin.lab import Lab, Sample

LINEAR = 1.5
"""Traffic per tuple over the last stretch against the one before: up to this much is called a linear increase."""
SLIGHT = 2.0
"""From the least skew to the most, traffic may rise up to so many times to have increased slightly."""
ALIKE = 0.5
"""Half of the load lies on so many times fewer or more nodes at most: the same pattern."""


def check_growth(lab: Lab) -> list[Claim]:
    return [*_tuples(lab), _queries(lab), *_skew(lab), _joins(lab)]


def rises(values: list[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def grows_slightly(values: list[float]) -> bool:
    """Whether values rise, and the last is not many times the first.

    >>> grows_slightly([10, 12, 14]), grows_slightly([10, 50, 100]), grows_slightly([10, 9, 14])
    (True, False, False)
    """
    return rises(values) and values[-1] <= SLIGHT * values[0]


def alike(samples: dict[str, Sample]) -> bool:
    """Whether load is spread in the same pattern: half of it lies on a similar number of nodes."""
    halves = [half(s.processing) for s in samples.values()]
    return min(halves) >= ALIKE * max(halves)


def _tuples(lab: Lab) -> list[Claim]:
    at = lab.size.many_tuples
    course = lab.course(lab.workload(tuples=at[-1]), at)
    samples = {n: course.samples[n] for n in at if n in course.samples}
    per_tuple, asking = {}, {}
    for a, b in pairwise([None, *samples.values()]):
        assert b is not None
        before = (0, 0, 0) if a is None else (a.tuples, a.messages, a.asking)
        per_tuple[b.tuples] = (b.messages - before[1]) / (b.tuples - before[0])
        asking[b.tuples] = (b.asking - before[2]) / (b.tuples - before[0])
    grows = [y / x for x, y in pairwise(list(asking.values())[1:])]
    total = [y / x for x, y in pairwise(list(per_tuple.values())[1:])]
    named = {f"{n}": s for n, s in samples.items()}
    series = {
        "all": (list(per_tuple), list(per_tuple.values())),
        "asking for rates": (list(asking), list(asking.values())),
    }
    used = {n: busy(s.load.rows) for n, s in samples.items()}
    spread = {n: half(s.processing) for n, s in samples.items()}
    return [
        Claim(
            "The traffic of a tuple grows linearly with the tuples before it, and asking for rates ever more slowly",
            "8, figure 3(a)",
            "RIC traffic first rises fast, then at a significantly lower rate; the total increase is linear",
            f"messages per tuple, up to {at[-1]:,} tuples: {shorts({f'{n:,}:': v for n, v in per_tuple.items()})}; asking: {shorts({f'{n:,}:': v for n, v in asking.items()})}"
            f"; from stretch to stretch the total grows {min(total):.2f} to {max(total):.2f} times, asking {min(grows):.2f} to {max(grows):.2f} times",
            verdict([min(total) >= 1, max(total) <= LINEAR, asking[max(asking)] / per_tuple[max(per_tuple)] < list(asking.values())[1] / list(per_tuple.values())[1]]),
            times=f"{course.seconds:.0f} s",
            raw={"messages_per_tuple": per_tuple, "asking_per_tuple": asking, "answers": {n: s.answers for n, s in samples.items()}},
            plots=(Plot("figure-3a-tuples", "Figure 3(a): traffic of a tuple", "tuples", "messages per tuple", series),),
        ),
        Claim(
            "As more tuples come, more nodes share the load",
            "8, figure 3(b) and (c)",
            "load is uneven at first; after 2,500 tuples almost all nodes (940) take part",
            f"nodes that got rewritten queries: {each({f'{n:,}:': v for n, v in used.items()}, '{:.0f}')}; half of the processing load lies on"
            f" {each({f'{n:,}:': v for n, v in spread.items()}, '{:.0f}')} nodes",
            verdict([used[max(used)] >= 0.9 * lab.size.nodes, used[max(used)] >= used[min(used)], spread[max(spread)] >= spread[min(spread)]]),
            raw={"nodes": used, "half": spread},
            plots=loads("3", "by number of tuples", named),
        ),
    ]  # fmt: skip


def _queries(lab: Lab) -> Claim:
    found = {q: lab.course(lab.workload(queries=q), (lab.size.tuples,)).last for q in lab.size.query_counts}
    messages = {f"{q:,}:": s.messages / lab.size.tuples for q, s in found.items()}
    each_query = [s.messages / q for q, s in found.items()]
    grouped = [s.groups / int(s.load.rows.sum()) for s in found.values()]
    named = {f"{q:,} queries": s for q, s in found.items()}
    series = {"messages per tuple": (list(found), list(messages.values()))}
    return Claim(
        "Traffic grows more slowly than the number of queries: they share rates and messages",
        "8, figure 4",
        "as more queries are indexed the rate of increase is smaller; the pattern of loads stays the same",
        f"messages per tuple after {lab.size.tuples:,} tuples: {shorts(messages)}; messages for every query: {short(each_query[0])} to {short(each_query[-1])};"
        f" if rows of one event to one key travelled together, {grouped[0]:.2f} to {grouped[-1]:.2f} messages for every rewritten query",
        verdict([rises(list(messages.values())), rises([-m for m in each_query]), alike(named)]),
        raw={"messages": {q: s.messages for q, s in found.items()}, "grouped": grouped},
        plots=(Plot("figure-4a-queries", "Figure 4(a): traffic by number of queries", "queries", "messages per tuple", series), *loads("4", "by number of queries", named)),
    )  # fmt: skip


def _skew(lab: Lab) -> list[Claim]:
    claims, n = [], lab.size.tuples
    for ranks, said in (
        ("shared", "the same value is most frequent in all attributes"),
        ("own", "each attribute has its own most frequent value"),
    ):
        found = {t: lab.course(lab.workload(theta=t, ranks=ranks), (n,)).last for t in lab.size.thetas}
        messages = {f"{t}:": s.messages / s.tuples for t, s in found.items()}
        asking = {f"{t}:": s.asking / s.tuples for t, s in found.items()}
        processing = {f"{t}:": float(s.processing.sum()) for t, s in found.items()}
        most = {f"{t}:": float(s.processing.max()) for t, s in found.items()}
        named = {f"theta {t}": s for t, s in found.items()}
        series = {
            "all": (list(found), list(messages.values())),
            "asking for rates": (list(found), list(asking.values())),
        }
        stopped = [f"theta {t} after {s.tuples}" for t, s in found.items() if s.tuples < n]
        claims.append(Claim(
            f"More skew means more work, and less asking for rates; here {said}",
            "8, figure 5",
            "all loads grow with theta, also of the busiest node; RIC's cost falls; total traffic grows slightly",
            f"theta, messages per tuple: {shorts(messages)}; asking {shorts(asking)}; processing load {shorts(processing)}; of the busiest node {shorts(most)}"
            + (f"; stopped: {', '.join(stopped)}" if stopped else ""),
            verdict([rises(list(processing.values())), rises(list(most.values())), grows_slightly(list(messages.values())), rises([-a for a in asking.values()])]),
            raw={"messages": messages, "asking": asking, "processing": processing, "most": most},
            plots=(Plot(f"figure-5a-skew-{ranks}", f"Figure 5(a): traffic by skew, {ranks} ranks", "theta", "messages per tuple", series), *loads("5", f"by skew, {ranks} ranks", named, f"-{ranks}")),
        ))  # fmt: skip
    return claims


def _joins(lab: Lab) -> Claim:
    found = {k: lab.course(lab.workload(joins=k), (lab.size.tuples,)).last for k in lab.size.joins}
    named = {f"{k}-way": s for k, s in found.items()}
    messages = {name: s.messages / s.tuples for name, s in named.items()}
    processing = {name: float(s.processing.sum()) for name, s in named.items()}
    storage = {name: float(s.storage.sum()) for name, s in named.items()}
    halves = {name: float(half(s.processing)) for name, s in named.items()}
    series = {"messages per tuple": (list(found), list(messages.values()))}
    return Claim(
        "Longer joins need more traffic, processing and storage, shared in a similar way",
        "8, figure 6",
        "4-, 6- and 8-way joins: more of everything, shared similarly",
        f"messages per tuple: {shorts(messages)}; processing {shorts(processing)}; stored {shorts(storage)}; half of the processing load lies on {each(halves, '{:.0f}')} nodes",
        verdict([rises(list(messages.values())), rises(list(processing.values())), rises(list(storage.values())), alike(named)]),
        raw={"messages": messages, "processing": processing, "storage": storage, "answers": {k: s.answers for k, s in found.items()}},
        plots=(Plot("figure-6a-joins", "Figure 6(a): traffic by length of the join", "k", "messages per tuple", series), *loads("6", "by length of the join", named)),
    )  # fmt: skip
