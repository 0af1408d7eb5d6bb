"""Where tuples live: the stages of the plan and the routing of each, from the query, the types and the options alone.

    a key that all aliases share           hash routing                              no copies
    keys that link all aliases             a hypercube over the keys                 copies along the keys one lacks
    two streams, a bounded difference      a biclique by ranges of values            stored once; a probe visits a subgroup
    two streams, any other condition       a biclique at random                      stored once; a probe visits a side
    one stream, looked up in tables        spread by content
    three or more that keys do not link    a pipeline of such joins, or a hypercube with a dimension for every stream
                                           that has no key: whichever is estimated to ship and store less

    a, b  ->  a+b, c  ->  a+b+c, d         a left-deep pipeline: every stage is a join of two sides with units of its own

Estimates take all streams to be equally fast, a tuple to meet one partner where a key or a bounded difference relates them
and UNKNOWN_FANOUT where only another condition does. They decide cost, never results.

Invariant: placement never depends on data: a restart must find tuples where they were put. The results of a stage carry every wire
column of their members that a later stage's keys, conditions or windows, or the SELECT ask for, and nothing else; the event time of
every member is always among them.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.2.2 (which routing for which selectivity) and 3.4 (left-deep pipelines).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from watersmeet.errors import OptionError
from watersmeet.plan.model import TIME, Plan, Side, Stage
from watersmeet.plan.options import ForcedRouting, Given
from watersmeet.plan.order import greedy
from watersmeet.plan.residual import Clue, Near, Residual
from watersmeet.plan.rules.value_band import value_band
from watersmeet.query.expr import Expr
from watersmeet.routing.biclique import Biclique, Cells, Keys, biclique
from watersmeet.routing.hypercube import Hypercube, grid

UNKNOWN_FANOUT = 10


def place_units(plan: Plan, given: Given) -> Plan:
    """Choose the stages, or refuse a routing that cannot bring all combinations together; sites and trees have their own."""
    if plan.sites is not None or plan.parts:
        return plan
    wanted = ForcedRouting.of(given.options.routing)
    made = _Placer(plan, given.order(plan)).place(wanted)
    spreads = wanted.name == "auto" and given.options.shipping != "semijoin" and not plan.sequenced
    made = replace(made, may_spread=spreads and (_has_keys(made) or _joins_two_sides(made)))
    if plan.sequenced and any(isinstance(s.routing, Biclique) or len(made.stages) > 1 for s in made.stages):
        raise OptionError(
            f"routing={wanted.name!r}: tuples of a ROWS window are numbered first and joined in one grid; leave routing='auto'"
        )
    return made


def _has_keys(plan: Plan) -> bool:
    """Whether keys decide where tuples of several sides of some stage go."""
    grids = [(s, s.routing) for s in plan.stages if isinstance(s.routing, Hypercube)]
    return any(
        share > 1 and sum(grid.find_fixed(n)[d] for n in range(len(stage.sides))) > 1
        for stage, grid in grids
        for d, share in enumerate(grid.shares)
    )


def _joins_two_sides(plan: Plan) -> bool:
    """Whether a biclique routes: its ranges and the sizes of its sides may follow the data."""
    return len(plan.stages) == 1 and isinstance(plan.stages[0].routing, Biclique)


def route_two(plan: Plan, sides: tuple[Side, ...], wanted: ForcedRouting) -> Hypercube | Biclique:
    """The routing of a join of two sides, by the keys and conditions of a plan that has no others."""
    placer = _Placer(plan, None)
    if len(plan.inputs) == 2:
        routing = placer.place(wanted).stages[0].routing
        assert isinstance(routing, Hypercube | Biclique)
        return routing
    return placer.route(sides, at_random=wanted.name == "random")


class _Placer:
    def __init__(self, plan: Plan, order: Sequence[str] | None) -> None:
        self.plan, self.order, self.units = plan, order, plan.units_wanted
        self.classes_of = tuple(frozenset(i.keys) for i in plan.inputs)
        self.shared = frozenset.intersection(*self.classes_of)

    def place(self, wanted: ForcedRouting) -> Plan:
        if wanted.name == "auto":
            return self._auto()
        if wanted.name == "hash" and not self.shared:
            raise OptionError(
                "routing='hash' needs one key that all aliases share; this query has none: leave routing='auto'"
            )
        if wanted.name in ("hash", "hypercube"):
            return self._in_one(self._grid())
        if len(self.plan.inputs) == 1:
            raise OptionError(
                f"routing={wanted.name!r} joins streams, and this query has one: leave routing='auto', which spreads it"
            )
        if wanted.name == "matrix":
            self._two("matrix")
            return self._in_one(grid((frozenset(), frozenset()), self.units, (0, 1)))
        if wanted.name == "pipeline" or (wanted.name == "random" and len(self.plan.inputs) > 2):
            return self._pipeline(at_random=wanted.name == "random")
        self._two(wanted.name)
        return self._in_one(self._biclique(wanted))

    def _auto(self) -> Plan:
        if self.plan.is_keyed and len(self.plan.inputs) > 1:
            return self._in_one(grid(self.classes_of, self.units))
        if self.units < 2 or self.plan.sequenced or len(self.plan.inputs) == 1:
            return self._in_one(self._grid())
        if len(self.plan.inputs) == 2:
            return self._in_one(self.route(self._singles(), at_random=False))
        piped, cube = self._pipeline(at_random=False), self._in_one(self._grid())
        piped_cost, cube_cost = self._pipeline_cost(piped), self._cube_cost(cube)
        if sum(piped_cost) < sum(cube_cost):
            chosen, (ships, stores), other, (would_ship, would_store) = piped, piped_cost, "a hypercube", cube_cost
        else:
            chosen, (ships, stores), other, (would_ship, would_store) = cube, cube_cost, "a pipeline", piped_cost
        estimate = f"ships about {ships:.1f} and stores {stores:.1f} rows for one row of every stream; {other} would ship {would_ship:.1f} and store {would_store:.1f}"
        return replace(chosen, notes=(*chosen.notes, f"chosen by estimate: {estimate}"))

    def _grid(self) -> Hypercube:
        return grid(self.classes_of, self.units, [n for n, own in enumerate(self.classes_of) if not own])

    def _two(self, name: str) -> None:
        if len(self.plan.inputs) != 2:
            raise OptionError(
                f"routing={name!r} joins two streams, and this query has {len(self.plan.inputs)}: use routing='pipeline', 'hypercube' or 'auto'"
            )

    def _in_one(self, routing: Hypercube | Biclique) -> Plan:
        return replace(self.plan, stages=(Stage(self._singles(), routing),))

    def _singles(self) -> tuple[Side, ...]:
        return tuple(Side((i.alias,), i.alias, i.keys) for i in self.plan.inputs)

    def _halves(self) -> tuple[int, int]:
        if self.units < 2:
            raise OptionError(f"units={self.units}: a biclique needs a unit for each side; give units=2 or more")
        return self.units - self.units // 2, self.units // 2

    def _biclique(self, wanted: ForcedRouting) -> Biclique:
        m, n = self._halves()
        if wanted.name == "random":
            return biclique(m, n)
        if wanted.name == "contrand":
            if not self.shared:
                raise OptionError(
                    "routing='contrand' hashes a key that both streams share; this query has none: use routing='random' or 'auto'"
                )
            d, e = wanted.groups or (max(m // 2, 1), max(n // 2, 1))
            if not (1 <= d <= m and 1 <= e <= n):
                raise OptionError(
                    f"routing='contrand({d}, {e})': units={self.units} gives {m} and {n} units, which cannot be in {d} and {e} subgroups"
                )
            return biclique(m, n, Keys(tuple(sorted(self.shared))), d, e)
        band = value_band(self.plan, *self._singles())
        if band is None:
            raise OptionError(
                "routing='range' needs a difference with two finite bounds, such as abs(a.v - b.v) <= 1; this query has none: use routing='random' or 'auto'"
            )
        return biclique(m, n, band, m, n)

    def route(self, sides: tuple[Side, ...], *, at_random: bool) -> Hypercube | Biclique:
        """The routing of a join of two sides."""
        left, right = sides
        shared = tuple(sorted(set(left.keys) & set(right.keys)))
        if shared and not at_random:
            return Hypercube((shared,), (self.units,), (frozenset(shared), frozenset(shared)))
        if self.units < 2:
            return grid((frozenset(), frozenset()), self.units, (0, 1))
        m, n = self._halves()
        band = None if at_random else value_band(self.plan, left, right)
        return biclique(m, n) if band is None else biclique(m, n, band, m, n)

    def _pipeline(self, *, at_random: bool) -> Plan:
        order = tuple(self.order) if self.order is not None else join_order(self.plan)
        singles = {s.name: s for s in self._singles()}
        left, stages = singles[order[0]], []
        for n, alias in enumerate(order[1:], start=1):
            sides = (left, singles[alias])
            stages.append(Stage(sides, self.route(sides, at_random=at_random)))
            left = compound(self.plan, order[: n + 1], order[n + 1 :])
        return replace(self.plan, stages=tuple(stages))

    def _pipeline_cost(self, plan: Plan) -> tuple[float, float]:
        """Rows shipped and stored for one row of every stream."""
        shipped, stored, flow = 0.0, 0.0, 1.0
        for stage in plan.stages:
            shipped += flow * stage.routing.copies(0) + stage.routing.copies(1)
            stored += flow + 1
            related = not isinstance(stage.routing, Biclique) or isinstance(stage.routing.by, Cells)
            flow *= 1 if related else UNKNOWN_FANOUT
        return shipped, stored

    def _cube_cost(self, plan: Plan) -> tuple[float, float]:
        copies = float(sum(plan.stages[0].routing.copies(n) for n in range(len(plan.inputs))))
        return copies, copies


def join_order(plan: Plan) -> tuple[str, ...]:
    """The first alias of FROM, then always one that a key relates to those before, else a condition; ties: FROM."""

    def rank(bound: set[str], y: str) -> int:
        if any(y in c.members and bound & set(c.members) for c in plan.classes):
            return 0
        if any({r.left[0], r.right[0]} <= bound | {y} and y in (r.left[0], r.right[0]) for r in plan.residuals):
            return 1
        return 2 if any(y in p.aliases and p.aliases <= bound | {y} for p in plan.join.predicates) else 3

    first, *others = plan.aliases
    return first, *greedy(first, others, rank=rank)


def reference(plan: Plan, aliases: tuple[str, ...], partners: tuple[str, ...]) -> str:
    """The member on whose time the partners' windows are tightest; ties: the first."""
    windows = plan.join.windows
    return min(aliases, key=lambda a: max((windows.hi(a, y) for y in partners), default=0))


def compound(plan: Plan, aliases: tuple[str, ...], later: tuple[str, ...]) -> Side:
    """The results of joins of some aliases as a side, with what joins with the later ones and the SELECT need of them."""
    classes = [n for n, c in enumerate(plan.classes) if set(c.members) & set(later)]
    clues = [clue for hint in plan.hints for way in hint.ways for clue in way]
    residuals = [r for r in (*plan.residuals, *clues) if {r.left[0], r.right[0]} & set(later)]
    conditions = [e for e in plan.inside if e.aliases & set(later)]
    brought = columns_carried(plan, aliases, classes, residuals, conditions)
    side = Side(aliases, reference(plan, aliases, later[:1]), {}, brought)
    return put_keys(plan, side, [a for a in plan.aliases if a in aliases], range(len(plan.classes)))


def columns_carried(
    plan: Plan,
    aliases: tuple[str, ...],
    classes: Iterable[int],
    residuals: Iterable[Residual | Clue],
    conditions: Iterable[Expr],
) -> tuple[tuple[str, str], ...]:
    """(alias, wire column) of what stages after this one, which decide these, and the SELECT need of some aliases."""
    needed = {(a, TIME) for a in aliases}
    for number in classes:
        needed |= {(i.alias, i.keys[number]) for i in plan.inputs if number in i.keys}
    for residual in residuals:
        needed |= {residual.left, residual.right} | ({residual.radius} if isinstance(residual, Near) else set())
    for ref in (*(ref for e in conditions for ref in e.columns), *plan.output):
        if ref.alias in aliases:
            needed.add((ref.alias, plan.by_alias[ref.alias].column(ref)))
    return tuple(
        (i.alias, c.name) for i in plan.inputs if i.alias in aliases for c in i.columns if (i.alias, c.name) in needed
    )


def put_keys(plan: Plan, side: Side, order: Sequence[str], classes: Container[int]) -> Side:
    """A side of results with the keys of some classes that they bring along, of the first alias that has one."""
    keys = {
        c: side.column(alias, name)
        for alias in reversed(order)
        for c, name in plan.by_alias[alias].keys.items()
        if c in classes and (alias, name) in side.carried
    }
    return replace(side, keys=keys)
