"""Where streams arrive at sites: one unit per site, and a plan of one-way joins between them.

Invariant: placement follows from the streams' sites alone; the plan of one-way joins may change from batch to batch.
Implements: Tran and Lee (2010), section 2.2 and definition 1.
Departs from the paper: streams without an equality between them are joined, too; they meet on a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

from watersmeet.errors import OptionError, StreamError, UnknownNameError, UnsupportedError
from watersmeet.plan.model import Plan, Side, Stage
from watersmeet.plan.options import Given, Options
from watersmeet.plan.rules.ship import widths
from watersmeet.plan.rules.tree import is_of_two_streams
from watersmeet.query.sites import Sites
from watersmeet.query.window import reach
from watersmeet.routing.sites import BySite
from watersmeet.sites.planning.letters import Placement
from watersmeet.sites.planning.model import KeyPair, LinearPlan, SiteQuery, SiteStream
from watersmeet.sites.planning.placed import ANYTHING, KEY_BYTES, SitesPlan
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics
from watersmeet.sites.planning.trees import TreePlan

ASSUMED_RATE, ASSUMED_VALUES, ASSUMED_INTERVAL_US = 1000.0, 1000.0, 1_000_000
"""Tuples per second, values of a key and a micro-batch, as long as nothing is measured."""
LONGEST_US = 86_400_000_000
"""A window without end is reckoned with as a day."""
SEARCHES = ("auto", "greedy", "exhaustive", "tree")


def is_across_sites(plan: Plan, sites: Sites | None) -> bool:
    """Whether the query is one across sites; an alias without a site among others that have one is an error."""
    of = {} if sites is None else sites.of
    if unknown := [alias for alias in of if alias not in plan.aliases]:
        raise UnknownNameError(f"sites: no alias {unknown[0]} in FROM; there are {', '.join(plan.aliases)}")
    where = {a: (of.get(a), plan.join.spec(a).site) for a in plan.aliases}
    for alias, (given, own) in where.items():
        if given is not None and own is not None and given != own:
            raise OptionError(f"sites: alias {alias} is at {given}, and its stream says {own}; say it once")
    missing = [a for a, places in where.items() if places == (None, None)]
    if missing and (sites is not None or len(missing) < len(where)):
        raise StreamError(
            f"alias {missing[0]} of stream {plan.by_alias[missing[0]].stream} has no site, and "
            f"{'sites= is given' if sites is not None else 'others have one'}: "
            f"wm.Stream(..., site='paris'), or sites={{{missing[0]!r}: 'paris', ...}}"
        )
    return not missing


def place_sites(plan: Plan, given: Given) -> Plan:
    """Units by site, and the first plan: the user's, or the cheapest under what is assumed; none where streams arrive at no sites."""
    if not is_across_sites(plan, given.options.at):
        return plan
    _check(given.options)
    sites = given.options.at or Sites()
    where = {a: sites.of.get(a) or str(plan.join.spec(a).site) for a in plan.aliases}
    names = tuple(dict.fromkeys(where.values()))
    for name in ("decider", "results_at"):
        site = getattr(sites, name)
        if site is not None and site not in names:
            raise OptionError(f"sites=: {name}={site!r}, and no stream arrives there; there are {', '.join(names)}")
    if strange := [s for s in sites.named if s not in names]:
        raise OptionError(
            f"sites=: a line ends at {strange[0]}, and no stream arrives there; there are {', '.join(names)}"
        )
    if (plan.join.distinct or plan.join.grouping is not None) and sites.results_at is None:
        raise UnsupportedError(
            f"DISTINCT and GROUP BY need all results at one place, and sites write what they find: wm.Sites(results_at={names[0]!r}) ships all results to {names[0]}"
        )
    unit_of = tuple(names.index(where[i.alias]) for i in plan.inputs)
    sides = tuple(Side((i.alias,), i.alias, i.keys) for i in plan.inputs)
    plan = replace(plan, stages=(Stage(sides, BySite(names, unit_of)),))
    flat = replace(plan.scope(plan.parts[0]), parts=()) if is_of_two_streams(plan) else plan
    query = _query(flat, where)
    statistics = _assume(flat, query)
    delay_us = max(s.lateness_us for s in plan.join.streams.values())
    forced = _read_plan(query, sites.plan)
    placed = SitesPlan(
        query,
        forced or _make_any_plan(query),
        sites,
        None if forced else sites.plan,
        statistics,
        _place(flat, query, where, sites.results_at),
        delay_us,
    )
    return replace(plan, sites=replace(placed, plan=placed.search_plan(statistics, ASSUMED_INTERVAL_US).plan))


def column(plan: Plan, number: int, alias: str) -> str:
    """The name of a key among the columns of a stream at a site: its expression, without the alias where it is a column."""
    return plan.classes[number].members[alias].text.removeprefix(f"{alias}.") + f" [K{number}]" * _is_repeated(
        plan, number, alias
    )


def _is_repeated(plan: Plan, number: int, alias: str) -> bool:
    """Whether an alias has one expression in several classes (compared in several types)."""
    text = plan.classes[number].members[alias].text
    return any(n != number and alias in c.members and c.members[alias].text == text for n, c in enumerate(plan.classes))


def _query(plan: Plan, where: Mapping[str, str]) -> SiteQuery:
    streams = []
    for side in plan.stages[0].sides:
        kept = min(max(plan.retention_us(plan.stages[0], side), 0), LONGEST_US)
        rows = plan.by_alias[side.reference].rows
        streams.append(
            SiteStream(
                side.reference, where[side.reference], window_us=kept if rows is None else None, window_rows=rows
            )
        )
    edges = []
    for number, members in enumerate(plan.classes):
        first, *others = members.members
        edges += [
            KeyPair((x, column(plan, number, x)), (y, column(plan, number, y)))
            for n, y in enumerate(others)
            for x in (first, *others[:n])
        ]
    edges += [KeyPair((plan.aliases[0], ANYTHING), (alias, ANYTHING)) for alias in _find_unconnected(plan)]
    return SiteQuery(tuple(streams), tuple(edges))


def _place(plan: Plan, query: SiteQuery, where: Mapping[str, str], results_at: str | None) -> Placement:
    """What the prices of letters depend on. A head meets what is older than itself."""
    graph, pairs = plan.join.windows, dict[tuple[str, str], float]()
    for x, y in permutations(plan.aliases, 2):
        if graph.hi(y, x) >= 0:
            pairs[x, y] = (min(graph.hi(y, x), LONGEST_US) - max(graph.lo(y, x), 0)) / 1e6
    heads = [a for a in plan.aliases if all((a, x) in pairs for x in plan.aliases if x != a)]
    spans = {(x, y): span for (x, y), span in pairs.items() if x in heads}
    kept = {s.alias: max(s.window_us or (s.window_rows or 0) / ASSUMED_RATE * 1e6, 1000) / 1e6 for s in query.streams}
    return Placement(dict(where), {i.alias: frozenset(i.keys) for i in plan.inputs}, spans, kept, results_at, pairs)


def _find_unconnected(plan: Plan) -> list[str]:
    """One alias of every group that no equality connects with the first alias."""
    out, classes = list[str](), [c.members for c in plan.classes]
    while left := [a for a in plan.aliases if a not in reach([plan.aliases[0], *out], classes)]:
        out.append(left[0])
    return out


def _assume(plan: Plan, query: SiteQuery) -> Statistics:
    streams = {}
    for source in plan.inputs:
        columns = {c for members in query.classes for a, c in members if a == source.alias}
        values = {c: 1.0 if c == ANYTHING else ASSUMED_VALUES for c in columns}
        streams[source.alias] = StreamStatistics(
            ASSUMED_RATE, float(sum(widths(plan, source)) + KEY_BYTES), values, dict.fromkeys(columns, float(KEY_BYTES))
        )
    return Statistics(streams)


def _read_plan(query: SiteQuery, wanted: Any) -> LinearPlan | TreePlan | None:
    """The user's own plan, if it is one."""
    if isinstance(wanted, LinearPlan | TreePlan):
        return replace(wanted, query=query)
    if isinstance(wanted, Mapping):
        return LinearPlan.of(query, wanted)
    if isinstance(wanted, str) and "," in wanted:
        return TreePlan.of(query, wanted)
    if wanted in SEARCHES:
        return None
    raise OptionError(
        f"plan={wanted!r}: give {', '.join(map(repr, SEARCHES))}, or a sequence of one-way joins for every stream, such as"
        " plan={'a': 'b SM-S1', 'b': 'a SP-D'}, or a tree, such as plan='a, b SP-S/SM-D1, c SM-D2/SM-S1'"
    )


def _make_any_plan(query: SiteQuery) -> LinearPlan:
    """Any plan."""
    sequences = {}
    for head in query.aliases:
        done = [head]
        while len(done) < len(query.aliases):
            done.append(next(a for a in query.aliases if a not in done and query.between(done, a)))
        sequences[head] = ", ".join(f"{a} SP-D" for a in done[1:])
    return LinearPlan.of(query, sequences)


def _check(options: Options) -> None:
    """What says where tuples go has no say where streams arrive at sites."""
    for name, remedy in (
        ("routing", "tuples stay at their sites"),
        ("order", "Sites(plan=...) says the order of joins"),
        ("driver", "heads go in the order of FROM"),
    ):
        if getattr(options, name) != "auto":
            raise OptionError(f"{name}= does not go with streams at sites: {remedy}; leave {name}='auto'")
    if options.kernel not in ("auto", "hw", "sorted", "nlw"):
        raise OptionError(
            f"kernel={options.kernel!r} sweeps over all streams of a unit, and rows at sites probe one stream at a time; use 'auto', 'hw', 'sorted' or 'nlw'"
        )
    if options.shipping == "semijoin":
        raise OptionError(
            "shipping='semijoin' does not go with streams at sites: Sites(plan=...) says what is shipped; leave it out"
        )
    if options.runtime == "stream":
        raise OptionError("streams at sites need rounds of messages: use runtime='rounds' and start()")
