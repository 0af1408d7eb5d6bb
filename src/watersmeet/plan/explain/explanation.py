"""What `explain` returns: the plan as text that one can read, and as facts that a program can.

    short   four lines and the warnings      `plan.explain.short`
    full    section by section               `plan.explain.full`, and `plan.explain.sites` for joins across sites

Invariant: facts are taken from the plan, never from the text; they consist of what JSON knows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, get_args

from watersmeet.errors import OptionError
from watersmeet.plan.changes import Change
from watersmeet.plan.explain.full import explain_full, show_routing
from watersmeet.plan.explain.short import bounds, explain_short, show_joins, show_tables, unproven, warnings
from watersmeet.plan.model import Plan, Stage
from watersmeet.query.window import UNBOUNDED, WindowGraph
from watersmeet.view.notebook import draw_plan, show_text

Detail = Literal["short", "full"]


class Explanation(str):
    """A plan as text; `to_dict` has the facts.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> plan = wm.sql("SELECT a.user FROM clicks a, clicks b WHERE a.user = b.user WINDOW = 10 SECONDS", clicks=clicks).explain()
    >>> "|b - a| <= 10 s" in plan
    True
    >>> plan.to_dict()["state"][0]
    {'side': 'a', 'kept_us': 10000000, 'late_us': 0, 'rows': None}
    """

    _facts: Mapping[str, Any]

    def __new__(cls, text: str, facts: Mapping[str, Any]) -> Explanation:
        made = super().__new__(cls, text)
        made._facts = facts
        return made

    def to_dict(self) -> dict[str, Any]:
        """The facts, as JSON takes them; spans are in microseconds of event time, and None where nothing bounds them.

        query, runtime, fingerprint: texts. aliases: by name, with stream, time, lateness and so on. windows: for every pair x, y how much
        younger y may be than x, and whether that was written or follows from other windows. keys: what must be equal. state: what is kept of
        every side. routing: by stage. kernel, units, order, driver, shipping: what was chosen. warnings, lines (of the text): lists of texts.
        """
        return {**copy.deepcopy(dict(self._facts)), "lines": self.splitlines()}

    def extend(self, title: str, lines: Sequence[str]) -> Explanation:
        """The same with a section more; without lines there is none."""
        more = [f"{title if n == 0 else '':<11}{text}" for n, text in enumerate(lines)]
        return Explanation("\n".join([str(self), *more]), {**self._facts, **({title: list(lines)} if more else {})})

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return show_text("Plan", str(self), *draw_plan(self._facts))

    def __getnewargs__(self) -> tuple[str, Mapping[str, Any]]:  # type: ignore[override]
        return str(self), self._facts


def explain(
    plan: Plan,
    runtime: str,
    detail: Detail = "full",
    *,
    routing_now: Sequence[str] = (),
    shipping_now: Sequence[str] = (),
    sites_now: Sequence[str] = (),
) -> Explanation:
    """The plan in a few lines, or in full; the last three arguments are what a running query has decided."""
    if detail not in get_args(Detail):
        raise OptionError(f"explain({detail!r}): give 'short' or 'full'")
    if detail == "short":
        now = [f"{'now' if n == 0 else '':<11}{text}" for n, text in enumerate(routing_now)]
        text = "\n".join([explain_short(plan, runtime, next(show_routing(plan))), *now])
    else:
        text = explain_full(plan, runtime, routing_now, shipping_now, sites_now)
    return Explanation(text, {**facts_of(plan, runtime), **({"routing_now": list(routing_now)} if routing_now else {})})


def explain_stored(
    explained: Explanation, where: str, batch: int, query: str, changes: Sequence[Change], since: str | None = None
) -> Explanation:
    """An explanation, and what the query keeps of a stored state of a query; `since`: from when on its answers are complete, if they are not all."""
    facts = explained.to_dict()
    goes_on = all(change.verdict == "kept" and not change.why for change in changes)
    upgrades = not any(change.verdict == "impossible" for change in changes)
    how = "this query goes on from it" if goes_on else "this query cannot go on from it"
    how = "this query goes on from it with start(upgrade=True)" if upgrades and not goes_on else how
    said = [f"{where}, after batch {batch}: {how}"]
    if query != facts["query"]:
        said.append(f"written by  {query}")
    said += [f"{change.verdict:<12}{change}" for change in changes if change.why]
    kept = ", ".join(change.part for change in changes if not change.why)
    said += [f"{'kept':<12}{kept}"] if kept else []
    if not upgrades:
        said.append("start with a new checkpoint, and backfill what it needs of the past")
    elif since is not None:
        said.append(f"complete    for rows from {since} on; of older rows some answers may be missing")
    lines = [f"{'checkpoint' if n == 0 else '':<11}{text}" for n, text in enumerate(said)]
    parts = [{"part": c.part, "verdict": c.verdict, "why": c.why} for c in changes]
    stored = {"where": where, "batch": batch, "query": query, "goes_on": goes_on, "upgrades": upgrades}
    stored |= {"complete_from": since, "parts": parts}
    return Explanation("\n".join([str(explained), *lines]), {**facts, "checkpoint": stored})


def explain_measured(explained: Explanation, skew: float, advice: Sequence[str]) -> Explanation:
    """An explanation, and how uneven the units of a running query were, with what to set."""
    lines = [f"{'warning' if n == 0 else '':<11}{text}" for n, text in enumerate(advice)]
    facts = explained.to_dict()
    measured = {"skew": skew, "warnings": [*facts["warnings"], *advice]}
    return Explanation("\n".join([str(explained), *lines]), {**facts, **measured})


def facts_of(plan: Plan, runtime: str) -> dict[str, Any]:
    """The facts of a plan on a runtime."""
    return {
        "query": " ".join(plan.join.text.split()),
        "runtime": runtime,
        "aliases": {i.alias: _alias(plan, i.alias) for i in plan.inputs},
        "windows": list(_windows(plan.join.windows)),
        "alternatives": [list(_windows(way)) for way in plan.join.windows.alternatives],
        "joins": list(show_joins(plan)),
        "tables": list(show_tables(plan)),
        "keys": [str(c) for c in plan.classes],
        "state": [{"side": b.name, "kept_us": b.kept_us, "late_us": b.late_us, "rows": b.rows} for b in bounds(plan)],
        "routing": [_routing(stage) for stage in plan.stages],
        "kernel": f"gca({plan.kernel})" if plan.gca else plan.kernel,
        "units": plan.units,
        "order": None if plan.order is None else list(plan.order),
        "driver": plan.driver,
        "shipping": plan.shipping,
        "warnings": [*warnings(plan), *unproven(plan, runtime)],
        "fingerprint": plan.fingerprint(),
    }


def _alias(plan: Plan, alias: str) -> dict[str, Any]:
    spec = plan.join.spec(alias)
    return {
        "stream": spec.name,
        "time": spec.time,
        "lateness_us": spec.lateness_us,
        "idle_us": spec.idle_us,
        "max_ahead_us": spec.max_ahead_us,
        "site": spec.site,
        "rows": plan.by_alias[alias].rows,
        "rows_tumble": plan.by_alias[alias].rows_tumble,
    }


def _windows(graph: WindowGraph) -> Iterator[dict[str, Any]]:
    """Every pair of aliases: `least_us <= second - first <= most_us`."""
    for x, y in combinations(graph.aliases, 2):
        lo, hi = graph.lo(x, y), graph.hi(x, y)
        yield {
            "first": x,
            "second": y,
            "least_us": None if lo <= -UNBOUNDED else lo,
            "most_us": None if hi >= UNBOUNDED else hi,
            "written": (x, y) in graph.written,
        }


def _routing(stage: Stage) -> dict[str, Any]:
    return {"sides": [side.name for side in stage.sides], "kind": stage.routing.kind, "units": stage.units}
