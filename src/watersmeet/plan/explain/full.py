"""A plan as text, in full, section by section.

Invariant: everything that decides cost or state is shown: windows, keys, where each condition is evaluated, routing and
copies, kernel, probe orders, drivers, and how long each alias is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from watersmeet.plan.explain.short import ENDLESS, bounds, show_groups, show_joins, show_tables, show_widened, unproven
from watersmeet.plan.explain.sites import explain_sites
from watersmeet.plan.finish import FinishPlan, bucket_us, how_often
from watersmeet.plan.model import EARLY, INTERLEAVED, Plan, Stage
from watersmeet.plan.order import probe_order
from watersmeet.plan.rules.ship import REFERENCE_BYTES, defer_payloads, offers, payload_refs, widths
from watersmeet.plan.shipping import break_even
from watersmeet.query.duration import show_us
from watersmeet.query.select import Grouping
from watersmeet.query.session import IN_UTC
from watersmeet.query.window import UNBOUNDED, widest
from watersmeet.routing.biclique import Biclique, Cells, Keys
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.sites import BySite

KERNELS = {
    "hw": "hash window join: index by key, then by time; the period is bisected",
    "sorted": "range probe on {on}: index by value, then by time; only the range inside the period is met",
    "nlw": "nested-loop window join: every pair inside the period is tested",
    "mw": "merge window join: old and new tuples swept together in event-time order, with one window for all; a tuple without a partner in some stream is dropped before any predicate",
    "lca": "local conservative approach: merge window join with each stream's own largest window",
    "ripple": "ripple join, a baseline: tuple by tuple, every probe scans all that is stored, which is purged every 10,000 tuples",
    "xjoin": "XJoin, a baseline: tuple by tuple, every probe meets the bucket of its key, and all buckets are purged every 10,000 tuples",
}

_WHY: Mapping[str, str] = {
    "timestamp": "tuples in the order of time, whichever input they are of, a slice of the batch at a time",
    "round_robin": "the oldest waiting tuple of each input in turn, a slice of the batch at a time",
    "consumption_rate": "fewest results per tuple first, so that buffers empty early",
    "initial_output_size": "most results expected from its buffer first",
    "output_rate": "most results expected per tuple first",
    "auto": f"the order of least estimated cost, up to {EARLY:.0%} more for early results",
}


def explain_full(
    plan: Plan, runtime: str, routing_now: Sequence[str], shipping_now: Sequence[str], sites_now: Sequence[str]
) -> str:
    """All sections; the last three arguments are what a running query has decided."""
    sections = [
        ("query", [" ".join(plan.join.text.split())]),
        ("streams", list(_streams(plan))),
        *_session(plan),
        ("windows", [*_windows(plan), *show_widened(plan.join)]),
        *([("joins", list(show_joins(plan)))] if plan.parts or plan.join.notes else []),
        *([("tables", list(show_tables(plan)))] if plan.join.tables else []),
        ("keys", [f"K{n} ({c.type}): {c}" for n, c in enumerate(plan.classes)] or ["none"]),
        ("filters", [f"{i.alias}: {f} (before the join)" for i in plan.inputs for f in i.filters] or ["none"]),
        ("conditions", list(_conditions(plan)) or ["none"]),
        *([("warning", unsure)] if (unsure := unproven(plan, runtime)) else []),
        *list_decisions(plan, routing_now, shipping_now, sites_now),
        ("state", list(_state(plan))),
        *finish_sections(plan),
        ("runtime", [runtime]),
        ("placement", [f"fingerprint {plan.fingerprint()}"]),
    ]
    lines = []
    for title, rows in sections:
        lines += [f"{title if n == 0 else '':<11}{row}" for n, row in enumerate(rows)] if title else rows
    return "\n".join(lines)


def list_decisions(
    plan: Plan, routing_now: Sequence[str] = (), shipping_now: Sequence[str] = (), sites_now: Sequence[str] = ()
) -> Iterator[tuple[str, list[str]]]:
    """What was chosen, and why, by section."""
    yield "routing", [*show_routing(plan), *routing_now]
    if plan.sites is not None:
        yield "", list(sites_now) or explain_sites(plan)
    else:
        yield "shipping", [*_shipping(plan), *shipping_now]
    yield "kernel", list(_kernel(plan))
    if plan.sites is None:
        yield "orders", list(_orders(plan))
        yield "drivers", list(_drivers(plan))


def _streams(plan: Plan) -> Iterator[str]:
    for i in plan.inputs:
        spec = plan.join.spec(i.alias)
        idle = (
            ""
            if spec.idle_us is None
            else f", idle after {show_us(spec.idle_us)}: a silent stream's watermark follows the others"
        )
        ahead = "" if spec.max_ahead_us is None else f", at most {show_us(spec.max_ahead_us)} ahead of the clock"
        rows = "" if i.rows is None else f", {i.rows_text}"
        yield f"{i.alias} = {spec.name} (time {spec.time}, lateness {show_us(spec.lateness_us)}{idle}{ahead}{rows})"


def _session(plan: Plan) -> list[tuple[str, list[str]]]:
    """Where the query was bound, if that is not Spark's defaults in UTC."""
    session = plan.join.session
    ansi = [] if session.ansi else ["ANSI mode off"]
    return [] if session == IN_UTC else [("session", [", ".join([f"time zone {session.timezone}", *ansi])])]


def _windows(plan: Plan) -> Iterator[str]:
    graph = plan.join.windows
    for x, y in combinations(plan.aliases, 2):
        source, bounds = "written" if (x, y) in graph.written else "implied by the others", graph.show(x, y)
        yield f"{x}, {y}: {bounds}" + ("" if bounds == "unbounded" else f" ({source})")
    for n, way in enumerate(graph.alternatives):
        yield f"{'or' if n else 'either'} {' and '.join(way.show(x, y) for x, y in graph.written)}"


def _conditions(plan: Plan) -> Iterator[str]:
    yield from (f"{r.text} (compiled residual in the unit)" for r in plan.residuals)
    ways = {hint.text: len(hint.ways) for hint in plan.hints}
    found = {0: "", 1: "looked up by range, then "}
    for e in plan.inside:
        number = ways.get(str(e), 0)
        yield f"{e} ({found.get(number, f'a union of {number} look-ups by range, then ')}DuckDB in the unit)"
    yield from (f"{e} (Spark, after the join)" for e in plan.after)


def show_routing(plan: Plan) -> Iterator[str]:
    for stage in plan.stages:
        place = f"{' with '.join(s.name for s in stage.sides)}: " if len(plan.stages) > 1 else ""
        for n, line in enumerate(_show_stage(plan, stage)):
            yield (place if n == 0 else "  " if place else "") + line
    if plan.sequenced and plan.sites is not None:
        yield f"rows      {', '.join(i.alias for i in plan.sequenced)}: numbered at the stream's own site, in event-time order, at its first unit"
    elif plan.sequenced:
        yield f"sequencer first, one unit: numbers {', '.join(i.alias for i in plan.sequenced)} in event-time order; results wait for the watermark"
    yield from plan.notes


def _show_stage(plan: Plan, stage: Stage) -> Iterator[str]:
    if isinstance(stage.routing, Hypercube):
        return _grid(plan, stage, stage.routing)
    if isinstance(stage.routing, BySite):
        return _sites(stage.routing)
    assert isinstance(stage.routing, Biclique), "hot keys are spread in batches, never in the plan"
    return _biclique(plan, stage, stage.routing)


def _sites(routing: BySite) -> Iterator[str]:
    yield f"a unit for each of the sites {', '.join(routing.names)}; tuples stay where they arrive until a join sends for them"


def _grid(plan: Plan, stage: Stage, grid: Hypercube) -> Iterator[str]:
    if not grid.dimensions:
        yield "none: one unit, since no key tells tuples apart"
        return
    dims = " x ".join(
        f"{'+'.join(_dimension(stage, c) for c in d)}:{s}" for d, s in zip(grid.dimensions, grid.shares, strict=True)
    )
    yield f"{grid.kind} over {grid.units} units ({dims})"
    for n, side in enumerate(stage.sides):
        if grid.copies(n) > 1:
            yield f"{side.name} is copied to {grid.copies(n)} units"
    if grid.kind == "hash" and grid.units > 1 and len(stage.sides) == 2:
        yield "a key lies on one unit; under skew take routing='contrand(d, e)', which spreads it over a subgroup"


def _dimension(stage: Stage, c: int) -> str:
    return f"K{c}" if c >= 0 else f"content of {stage.sides[-1 - c].name}"


def _biclique(plan: Plan, stage: Stage, routing: Biclique) -> Iterator[str]:
    sides = [f"{len(units)} for {side.name}" for units, side in zip(routing.members, stage.sides, strict=True)]
    yield f"biclique, {routing.kind}: {' and '.join(sides)}; every tuple is stored once"
    groups = [len(g) for g in routing.sides]
    for n, side in enumerate(stage.sides):
        other, each = stage.sides[1 - n].name, len(routing.members[1 - n]) / groups[1 - n]
        if groups[1 - n] == 1:
            yield f"{side.name} probes all {len(routing.members[1 - n])} units of {other}"
        elif isinstance(routing.by, Cells):
            yield f"{side.name} probes the units of {other} whose cells of values its band touches, one or two of {groups[1 - n]}"
        else:
            yield f"{side.name} probes one subgroup of {other}, {each:g} of {len(routing.members[1 - n])} units"
    if isinstance(routing.by, Cells):
        yield f"cells are {routing.by.width:g} wide; if few values are hot, routing='random' balances better and ships more"
    elif isinstance(routing.by, Keys):
        yield "fewer subgroups balance skewed keys better and ship more; contrand(1, 1) is random routing"


def _kernel(plan: Plan) -> Iterator[str]:
    on = ", ".join(known.text for known in plan.residuals or plan.hints)
    name = f"gca({plan.kernel})" if plan.gca else plan.kernel
    yield f"{name} ({KERNELS[plan.kernel].format(on=on)})"
    yield plan.kernel_why
    if plan.gca:
        largest = widest(plan.join.windows).horizon_us
        wide = "which is unbounded" if largest >= UNBOUNDED else f"{show_us(largest)} either way"
        yield f"filtered with the largest window of any pair, {wide}, then refined with each pair's own"
    if plan.kernel == "hw" and plan.residuals:
        yield f"where a key has many tuples, {on} is looked up among them: index by key, value and time"
    if plan.kernel == "hw" and plan.residuals and not plan.is_keyed:
        yield f"sorted where no key leads to an alias ({KERNELS['sorted'].format(on=on)})"


def _shipping(plan: Plan) -> Iterator[str]:
    if plan.shipping == "full":
        yield "full: whole tuples travel to the units once"
        return
    if plan.shipping == "auto":
        yield "auto: whole tuples travel to the units; with start(), payloads follow later as soon as that is measured to be cheaper"
    else:
        yield "semijoin (forced): keys and references travel first, payloads of matches are fetched in later rounds"
    for i in plan.inputs:
        first, late = widths(plan, i)
        if i.alias in offers(plan):
            apart = defer_payloads(plan, (i.alias,))
            names = ", ".join(ref.column for ref in payload_refs(apart, apart.by_alias[i.alias]))
            yield f"{i.alias}: about {first + REFERENCE_BYTES} bytes first, {names} (about {late} bytes) for matches; ships less as long as it has fewer than {break_even(plan, i.alias, late):.2f} results per tuple"
        else:
            yield f"{i.alias}: whole, about {first + late} bytes: nothing worth fetching later"


def _orders(plan: Plan) -> Iterator[str]:
    if len(plan.stages) > 1:
        for n, stage in enumerate(plan.stages, start=1):
            yield f"stage {n}: {' with '.join(s.name for s in stage.sides)}"
        return
    basis = "forced" if plan.order is not None else "then by measured fan-out"
    for alias in plan.aliases:
        yield f"{alias} drives: {' -> '.join(probe_order(plan, alias))} ({basis})"


def _drivers(plan: Plan) -> Iterator[str]:
    """What orders the drivers inside a batch, and on what grounds."""
    if any(isinstance(stage.routing, Hypercube) for stage in plan.stages):
        yield f"{plan.driver}{'' if plan.driver == 'auto' else ' (forced)'}: {_WHY[plan.driver]}"
        if plan.driver not in INTERLEAVED:
            yield "by tuples waiting and stored, and by selectivities measured in the batches before; in FROM's order where all is equal"
    if any(isinstance(stage.routing, Biclique) for stage in plan.stages):
        yield "at a unit of a biclique one side probes: nothing to order"


def _state(plan: Plan) -> Iterator[str]:
    for bound in bounds(plan):
        if bound.rows is not None:
            yield f"{bound.name}: its {plan.by_alias[bound.name].rows_text}" + (
                "" if bound.kept_us is None else f", at most {show_us(bound.kept_us + bound.late_us)}"
            )
        elif bound.kept_us is None:
            yield f"{bound.name}: WARNING full history: no window bounds it, so its {ENDLESS}"
        else:
            yield f"{bound.name}: {show_us(bound.kept_us)} of event time" + (
                f" plus {show_us(bound.late_us)} of the others' lateness" if bound.late_us else ""
            )


def finish_sections(plan: Plan) -> list[tuple[str, list[str]]]:
    """None, or one titled section."""
    if plan.finish is None:
        return []
    if plan.join.grouping is not None:
        return [("aggregate", list(_aggregate(plan, plan.finish, plan.join.grouping)))]
    return [("distinct", list(_distinct(plan, plan.finish)))]


def _distinct(plan: Plan, finish: FinishPlan) -> Iterator[str]:
    width = bucket_us(plan.join)
    lateness = max(s.lateness_us for s in plan.join.streams.values())
    yield f"a row leaves {how_often(width)}"
    yield _first_phase(finish, f"repeats dropped inside {plan.stages[-1].routing.units} units, per micro-batch")
    yield f"second phase: {finish.units} deduplicators, by hash of the row"
    if width is None:
        yield "state: WARNING every row that has left is kept, so state grows without end; add WINDOW or a condition on event time"
    else:
        late = f" plus {show_us(lateness)} of lateness" if lateness else ""
        yield f"state: rows of {show_us(width)} of event time{late}, until every stream's watermark has passed them"


def _aggregate(plan: Plan, finish: FinishPlan, grouping: Grouping) -> Iterator[str]:
    names = [str(o.expr) for o in plan.join.select[: grouping.keys]]
    window = grouping.window
    if window is not None:
        names[window.key] = str(window)
    keys = ", ".join(names)
    yield f"{', '.join(map(str, grouping.aggregates))} {f'by {keys}' if keys else 'of all results'}"
    yield _first_phase(
        finish, f"local views in {plan.stages[-1].routing.units} units, one row per group and micro-batch"
    )
    if window is not None:
        yield f"second phase: {finish.units} mergers by hash of the group; on static data Spark's groupBy()"
        yield from show_groups(plan.join)
        yield f"state: one row per group that has not ended, of the last {show_us(window.size_us)} and what the streams' watermarks lag behind"
        return
    over = "" if finish.is_mergeable else " over whole results"
    merger = f"Spark's groupBy(){over} with dataframe(), {finish.units} mergers by hash of the group elsewhere"
    yield f"second phase: merged by {merger if finish.inside else 'Spark: groupBy() over the rows'}"
    yield "state: one row per group" + ("; groups never expire, so it grows with their number" if keys else "")


def _first_phase(finish: FinishPlan, inside: str) -> str:
    return f"first phase: {inside if finish.inside else f'none, whole results are shipped: {finish.why_outside}'}"
