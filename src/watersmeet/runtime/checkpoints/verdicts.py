"""What of a stored state a changed query keeps: part by part, and from which event time on its answers are complete.

    kept        the rows that the part needs are there
    refilled    some are not: what is stored is used, the rest comes from now on; answers of rows from a stated time on are complete
    dropped     nobody needs what was stored
    impossible  no answer could be vouched for

A query needs the rows of alias x from cut'(x) on, the cut of its own windows and watermarks. The state has all that came from known(x) on:

    known(x) = max of   cut(x)                          if cut'(x) < cut(x): windows have become wider, or watermarks have gone back
                        watermark(x), both of them      if lateness or idleness differ: the others count rows differently
                        highest event time of x + 1     if a filter or a key is gone, or a column is new
                        what an earlier change has left

So all results whose members have event times of at least `since` = max of known(x), over all x with known(x) > cut'(x), are those of a run that had the query from the start.

Invariant: a judgement is a function of manifest, intent and plan. What it calls possible, `upgrade` does; what it calls impossible, it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from watersmeet.columns.spark_types import held_type
from watersmeet.dataflow.clock import NEVER, Clock
from watersmeet.kernels.instants import add_span
from watersmeet.plan.changes import VERDICTS, Change, Verdict, find_differences_of
from watersmeet.plan.fingerprint import name_part
from watersmeet.plan.finish import bucket_us
from watersmeet.plan.model import TIME, InputPlan, Plan, WireColumn, list_required
from watersmeet.query.expr import Expr
from watersmeet.runtime.checkpoints.described import DescribedInput, DescribedPlan
from watersmeet.runtime.checkpoints.stored import Stored
from watersmeet.runtime.progress import moment, show_moment

STREAMS, COLUMNS, FILTERS, ROWS = "streams and aliases", "columns and their types", "filters", "[ROWS n]"
WINDOWS, KEYS, CONDITIONS, JOINS = "windows", "keys", "conditions", "joins"
LATENESS, ROUTING, FINISH = name_part("lateness"), name_part("routing"), name_part("finish")
_FIXED = {
    name_part("timezone"): "stored values were computed in the other time zone",
    name_part("ansi"): "stored values were computed under the other setting",
    name_part("max_ahead"): "rows that were set aside, or that moved the clock, cannot be found again",
    "tables": "stored rows have what other tables said of them",
}
_PIPED = {LATENESS, ROUTING}
"""What may differ where joins follow each other: what they store is joined already."""


@dataclass(frozen=True)
class Conversion:
    """How the stored rows of an alias become rows of the new plan."""

    copied: Mapping[str, str] = field(default_factory=dict)
    """Wire columns that are stored columns under another name."""
    computed: tuple[WireColumn, ...] = ()
    """Those that are computed of stored columns."""
    blank: tuple[WireColumn, ...] = ()
    """Those that only SELECT needs, and nobody has stored: NULL."""
    filters: tuple[Expr, ...] = ()
    """Conditions that stored rows have not been asked yet."""
    drops: bool = False
    """Whether no stored row can be used."""


@dataclass(frozen=True)
class Cause:
    """Why the stored rows of an alias are not all that the query needs."""

    part: str
    alias: str
    known_us: int
    why: str


@dataclass(frozen=True)
class Judgement:
    """What becomes of a state."""

    changes: list[Change]
    conversions: dict[str, Conversion]
    known: dict[str, int]
    """By alias from when on its rows are complete, where they are not."""
    since: int | None
    """Answers of rows from this event time on are complete; None: all are."""
    keeps_form: bool
    """Whether stored rows stay as they are, where they are."""
    keeps_finish: bool
    """Whether the rows or groups of DISTINCT or GROUP BY stay."""

    @property
    def is_same(self) -> bool:
        """Whether the query goes on as it is."""
        return all(change.verdict == "kept" and not change.why for change in self.changes)

    @property
    def impossible(self) -> list[Change]:
        return [change for change in self.changes if change.verdict == "impossible"]


def judge(stored: Stored, plan: Plan) -> Judgement:
    """What a plan keeps of a stored state."""
    return _Judge(stored, plan).judge()


class _Judge:
    def __init__(self, stored: Stored, plan: Plan) -> None:
        self.stored, self.plan, self.maxima = stored, plan, stored.manifest.maxima
        self.before = DescribedPlan(stored.intent.plan)
        self.differing = find_differences_of(stored.intent.plan, plan.description())
        self.changed = {part for part, why in self.differing.items() if why}
        self.verdicts: dict[str, tuple[Verdict, str]] = {}
        self.causes: list[Cause] = []
        self.conversions: dict[str, Conversion] = {}

    def judge(self) -> Judgement:
        reasons = dict(self._find_impossible()) if self.changed else {}
        known: dict[str, int] = {}
        if not reasons and self.changed:
            for source in self.plan.inputs:
                self._look_at(source)
            known = self._find_known()
        since = max(known.values(), default=None)
        finish = self._judge_finish(since) if self.changed and not reasons else None
        since = finish if finish is not None else since
        changes = [self._settle(part, why, reasons, known) for part, why in self.differing.items()]
        changes.sort(key=lambda change: VERDICTS.index(change.verdict))
        same_form = not self.changed & {STREAMS, COLUMNS, FILTERS, KEYS, ROUTING, FINISH}
        same_form &= all(self._required_before(i.alias) == _find_required(i) for i in self.plan.inputs)
        return Judgement(changes, self.conversions, known, since, same_form, self._keeps_finish)

    def _settle(self, part: str, why: str, reasons: Mapping[str, str], known: Mapping[str, int]) -> Change:
        """What becomes of a part: if it alone were changed, answers would be complete from the time that is named."""
        if not why:
            return Change(part, "kept")
        if part in reasons:
            return Change(part, "impossible", f"{why}: {reasons[part]}")
        if reasons:
            return Change(part, "kept", f"{why}, if it were by itself")
        if part in self.verdicts:
            verdict, because = self.verdicts[part]
            return Change(part, verdict, f"{why}: {because}")
        lacking = [c for c in self.causes if c.part == part and c.alias in known]
        if not lacking:
            return Change(part, "kept", why)
        said = "; ".join(dict.fromkeys(c.why for c in lacking))
        complete = max(c.known_us for c in lacking)
        return Change(part, "refilled", f"{why}: {said}; complete from {show_instant(complete)} on")

    # What no conversion can do

    def _find_impossible(self) -> Iterator[tuple[str, str]]:
        """(part, reason) of all that is impossible."""
        whole = self._find_reason_for_all()
        if whole is not None:
            yield from ((part, whole) for part in self.changed)
            return
        yield from ((part, why) for part, why in _FIXED.items() if part in self.changed)
        if STREAMS in self.changed and (why := self._find_lost_stream()) is not None:
            yield STREAMS, why
        if (why := self._find_lost_groups()) is not None:
            yield FINISH if FINISH in self.changed else next(iter(sorted(self.changed - {ROUTING}))), why

    def _find_reason_for_all(self) -> str | None:
        raw, manifest = self.before.raw, self.stored.manifest
        stages = len(self.before.stages) if self.before.inputs else 1
        if not self.before.inputs or manifest.queries:
            return "the checkpoint holds a registry of queries"
        if manifest.sites or self.plan.sites is not None:
            return "sites keep parts of the state"
        if JOINS in raw or self.plan.parts:
            return "who has met a partner cannot be computed again for outer, semi, anti and as-of joins"
        if [*(i.rows for i in self.before.inputs.values() if i.rows), *(i.rows for i in self.plan.inputs if i.rows)]:
            return "rows of a ROWS window are numbered from the beginning on"
        if stages > 1 or len(self.plan.stages) > 1:
            sides = [tuple(side.name for side in stage.sides) for stage in self.plan.stages]
            if not self.changed <= _PIPED or sides != [names for names, _ in self.before.stages]:
                return "joins follow each other, and what the later ones store is joined already; only lateness=, idle=, and units= may change"
        return None

    def _find_lost_stream(self) -> str | None:
        streams = {i.stream for i in self.before.inputs.values()}
        for alias, was in self.before.inputs.items():
            now = self.plan.by_alias.get(alias)
            if now is None or now.stream != was.stream:
                return f"{alias} is gone, or reads another stream, and Spark's log counts on its source"
        again = [i.alias for i in self.plan.inputs if i.alias not in self.before.inputs and i.stream in streams]
        if again:
            return f"{again[0]} reads a stream that is read already, so Spark would not read its past again"
        return None

    def _find_lost_groups(self) -> str | None:
        """Why groups, or rows that have left, cannot go on."""
        if self.plan.finish is None or self._keeps_finish:
            return None
        if self.plan.join.grouping is not None:
            return "groups would miss what has come before, or keep what would not belong to them"
        if bucket_us(self.plan.join) is None:
            return "without windows a row leaves once for ever, and which ones the new query would have let out is not known"
        return None

    @property
    def _keeps_finish(self) -> bool:
        """Whether rows or groups are the same ones, of the same results."""
        if self.plan.finish is None:
            return False
        was = self.before.raw.get("finish")
        own = self.plan.finish.description(self.plan.join)
        return _core(was) == _core(own) and self.changed <= {ROUTING, FINISH}

    def _judge_finish(self, since: int | None) -> int | None:
        """From when on DISTINCT is exact, where rows that have left are not those that the new query would have let out."""
        was, distinct = "finish" in self.before.raw, self.plan.join.distinct
        if FINISH in self.changed and self.plan.finish is None and was:
            self.verdicts[FINISH] = ("dropped", "what was kept for it is not needed")
        if self._keeps_finish or not distinct:
            return None
        width = bucket_us(self.plan.join)
        assert width is not None
        last = max([*self.maxima.values(), *([] if since is None else [since])], default=NEVER)
        if last <= NEVER:
            return None
        first = add_span(last, width) + 1
        first = first if width == 0 else -(-first // width) * width
        because = "which rows the new query would have let out already is not known"
        self.verdicts[FINISH if FINISH in self.changed else sorted(self.changed - {ROUTING})[0]] = (
            "refilled",
            f"{because}; complete from {show_instant(first)} on",
        )
        return first

    # Alias by alias

    def _look_at(self, source: InputPlan) -> None:
        """How the rows of an alias are converted, and what is missing of them."""
        was = self.before.inputs.get(source.alias)
        if was is None:
            self.conversions[source.alias] = Conversion(drops=True)
            return
        self._convert(source, was)
        spec, old = self.plan.streams[source.stream], self.before.streams[source.stream]
        marks = [self.before.watermarks(self.maxima), Clock(self.plan.streams, self.maxima).after]
        if len(self.plan.stages) > 1 and LATENESS in self.changed:
            furthest = max(max(m.values()) for m in marks)
            self._miss(
                LATENESS, source, furthest, "rows were counted late, and joined rows dropped, by another measure"
            )
        elif (spec.lateness_us, spec.idle_us) != (old.lateness_us, old.idle_us):
            furthest = max(m[source.stream] for m in marks)
            self._miss(LATENESS, source, furthest, "rows were counted late by another measure")
        cut = self.before.cut(source.alias, self.maxima)
        if cut > self._cut(source.alias):
            part = next((p for p in (STREAMS, WINDOWS, LATENESS) if p in self.changed), WINDOWS)
            self._miss(part, source, cut, f"rows of {source.alias} are stored from {show_instant(cut)} on")
        gone = set(was.filters) - {f.text for f in source.filters}
        if gone:
            self._miss_past(FILTERS, source, f"rows of {source.alias} that {sorted(gone)[0]} left out are not stored")
        if not self._required_before(source.alias) <= _find_required(source):
            part = next((p for p in (KEYS, CONDITIONS) if p in self.changed), CONDITIONS)
            self._miss_past(part, source, f"rows of {source.alias} without a value to compare are not stored")

    def _required_before(self, alias: str) -> set[str]:
        """Expressions without which rows were not stored; where that was not written down, more than these if a condition is gone."""
        required = self.stored.intent.required
        if required is not None:
            return set(required.get(alias, ()))
        raw, now = self.before.raw, set(self.plan.description()["conditions"])
        unknown = {"?"} if set(raw["conditions"]) - now else set()
        return unknown | {members[alias] for _, members in raw["classes"] if alias in members}

    def _convert(self, source: InputPlan, was: DescribedInput) -> None:
        copied: dict[str, str] = {}
        computed, blank, lost = list[WireColumn](), list[WireColumn](), list[str]()
        for column in source.columns:
            stored = was.find(column.expr.text, column.type)
            if stored is not None:
                copied[column.name] = stored
            elif self._can_compute(column.expr, source, was):
                computed.append(column)
            elif column.name in self._find_compared(source) or held_type(column.type) is None:
                lost.append(column.expr.text)
            else:
                blank.append(column)
        new = [f for f in source.filters if f.text not in was.filters]
        lost_filters = [f.text for f in new if not self._can_compute(f, source, was)]
        drops = bool(lost or lost_filters)
        self.conversions[source.alias] = Conversion(copied, tuple(computed), tuple(blank), tuple(new), drops)
        for text in lost:
            self._miss_past(KEYS if KEYS in self.changed else COLUMNS, source, f"{text} is not stored")
        for text in lost_filters:
            self._miss_past(FILTERS, source, f"whether {text} holds is not known of stored rows")
        for column in blank:
            self._miss_past(COLUMNS, source, f"{column.expr.text} of stored rows is NULL")

    def _can_compute(self, expr: Expr, source: InputPlan, was: DescribedInput) -> bool:
        """Whether an expression can be computed in process of columns that are stored as they were read."""
        schema = self.plan.join.spec(source.alias).schema
        return expr.portable and all(was.find(str(ref), schema.get(ref.column)) is not None for ref in expr.columns)

    def _find_compared(self, source: InputPlan) -> set[str]:
        """Wire columns that decide which rows meet."""
        ends = {wire for r in self.plan.residuals for alias, wire in (r.left, r.right) if alias == source.alias}
        conditions = (*self.plan.inside, *self.plan.after, *self.plan.final)
        refs = {ref for e in conditions for ref in e.columns if ref.alias == source.alias}
        return {TIME, *source.keys.values(), *source.required, *ends, *(source.column(ref) for ref in refs)}

    def _miss(self, part: str, source: InputPlan, known_us: int, why: str) -> None:
        if known_us > NEVER:
            self.causes.append(Cause(part, source.alias, known_us, why))

    def _miss_past(self, part: str, source: InputPlan, why: str) -> None:
        """All that has come is incomplete."""
        if source.stream in self.maxima:
            self._miss(part, source, self.maxima[source.stream] + 1, why)

    def _cut(self, alias: str) -> int:
        """The time before which the new query needs no row of an alias."""
        stage, side = self.plan.entry(alias)
        return Clock(self.plan.streams, self.maxima).cut(self.plan.bounds(stage, stage.sides[side]))

    def _find_known(self) -> dict[str, int]:
        earlier = self.stored.manifest.known
        out = {}
        for source in self.plan.inputs:
            own = [c.known_us for c in self.causes if c.alias == source.alias]
            known = max([*own, earlier.get(source.alias, NEVER)], default=NEVER)
            if known > self._cut(source.alias):
                out[source.alias] = known
        return out


def _find_required(source: InputPlan) -> set[str]:
    """Expressions without which rows of an alias are not stored."""
    return set(list_required(source))


def _core(finish: Mapping[str, object] | None) -> dict[str, object] | None:
    """A description of DISTINCT or GROUP BY, however many units keep it."""
    return None if finish is None else {key: value for key, value in finish.items() if key != "units"}


def show_instant(us: int | None) -> str:
    """An event time in microseconds as text, to the next second.

    >>> show_instant(1_500_000)
    '1970-01-01 00:00:02'
    """
    return show_moment(moment(NEVER if us is None or us <= NEVER else -(-us // 1_000_000) * 1_000_000))
