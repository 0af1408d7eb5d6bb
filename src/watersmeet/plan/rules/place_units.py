"""Where tuples live: the stages of the plan and the routing of each, from the query, the types and the options alone.

    a key that all aliases share           hash routing                              no copies
    keys that link all aliases             a hypercube over the keys                 copies along the keys one lacks
    two streams, a bounded difference      a biclique by ranges of values            stored once; a probe visits a subgroup
    two streams, any other condition       a biclique at random                      stored once; a probe visits a side
    three or more that keys do not link    a pipeline of such joins, or a hypercube with a dimension for every stream
                                           that has no key: whichever is estimated to ship and store less

Estimates take all streams to be equally fast, a tuple to meet one partner where a key or a bounded difference relates them
and UNKNOWN_FANOUT where only another condition does. They decide cost, never results.

Invariant: placement never depends on data: a restart must find tuples where they were put.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.2.2 (which routing for which selectivity) and 3.4 (left-deep pipelines).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.errors import OptionError
from watersmeet.plan.model import Plan, Side, Stage
from watersmeet.plan.rules.pipeline import carried, join_order, reference
from watersmeet.plan.rules.value_band import value_band
from watersmeet.routing.biclique import Biclique, Cells, Keys, biclique
from watersmeet.routing.hypercube import Hypercube, grid

ROUTINGS = ("auto", "hash", "hypercube", "random", "range", "contrand", "matrix", "pipeline")
UNKNOWN_FANOUT = 10
_CONTRAND = re.compile(r"contrand\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True)
class Routing:
    """What a user asks for: a name, and for contrand the numbers of subgroups.

    >>> Routing.of("contrand(2, 3)")
    Routing(name='contrand', groups=(2, 3))
    """

    name: str
    groups: tuple[int, int] | None = None

    @classmethod
    def of(cls, text: object) -> Routing:
        if isinstance(text, str):
            found = _CONTRAND.fullmatch(text.strip())
            if found:
                return cls("contrand", (int(found[1]), int(found[2])))
            if text in ROUTINGS:
                return cls(text)
        raise OptionError(
            f"routing={text!r}: this release has {', '.join(repr(r) for r in ROUTINGS)} and 'contrand(d, e)' with numbers of subgroups"
        )


def place_units(plan: Plan, wanted: Routing, order: Sequence[str] | None) -> Plan:
    """Choose the stages, or refuse a routing that cannot bring all combinations together."""
    made = _Placer(plan, order).placed(wanted)
    if plan.sequenced and any(isinstance(s.routing, Biclique) or len(made.stages) > 1 for s in made.stages):
        raise OptionError(
            f"routing={wanted.name!r}: tuples of a ROWS window are numbered first and joined in one grid; leave routing='auto'"
        )
    return made


class _Placer:
    def __init__(self, plan: Plan, order: Sequence[str] | None) -> None:
        self.plan, self.order, self.units = plan, order, plan.units_wanted
        self.classes_of = tuple(frozenset(i.keys) for i in plan.inputs)
        self.shared = frozenset.intersection(*self.classes_of)

    def placed(self, wanted: Routing) -> Plan:
        if wanted.name == "auto":
            return self._auto()
        if wanted.name == "hash" and not self.shared:
            raise OptionError(
                "routing='hash' needs one key that all aliases share; this query has none: leave routing='auto'"
            )
        if wanted.name in ("hash", "hypercube"):
            return self._in_one(self._grid())
        if wanted.name == "matrix":
            self._two("matrix")
            return self._in_one(grid((frozenset(), frozenset()), self.units, (0, 1)))
        if wanted.name == "pipeline" or (wanted.name == "random" and len(self.plan.inputs) > 2):
            return self._pipeline(at_random=wanted.name == "random")
        self._two(wanted.name)
        return self._in_one(self._biclique(wanted))

    def _auto(self) -> Plan:
        if self._linked():
            return self._in_one(grid(self.classes_of, self.units))
        if self.units < 2 or self.plan.sequenced:
            return self._in_one(self._grid())
        if len(self.plan.inputs) == 2:
            return self._in_one(self._binary(self._singles(), at_random=False))
        piped, cube = self._pipeline(at_random=False), self._in_one(self._grid())
        piped_cost, cube_cost = self._pipeline_cost(piped), self._cube_cost(cube)
        if sum(piped_cost) < sum(cube_cost):
            chosen, (ships, stores), other, (would_ship, would_store) = piped, piped_cost, "a hypercube", cube_cost
        else:
            chosen, (ships, stores), other, (would_ship, would_store) = cube, cube_cost, "a pipeline", piped_cost
        said = f"ships about {ships:.1f} and stores {stores:.1f} rows for one row of every stream; {other} would ship {would_ship:.1f} and store {would_store:.1f}"
        return replace(chosen, notes=(*chosen.notes, f"chosen by estimate: {said}"))

    def _linked(self) -> bool:
        """Whether keys link all aliases."""
        reached, classes = {0}, set(self.classes_of[0])
        while True:
            more = {n for n, own in enumerate(self.classes_of) if own & classes} - reached
            if not more:
                return len(reached) == len(self.classes_of)
            reached |= more
            classes |= {c for n in more for c in self.classes_of[n]}

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

    def _biclique(self, wanted: Routing) -> Biclique:
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

    def _binary(self, sides: tuple[Side, ...], *, at_random: bool) -> Hypercube | Biclique:
        """The routing of a join of two sides."""
        left, right = sides
        shared = tuple(sorted(set(left.keys) & set(right.keys)))
        if shared and not at_random:
            return Hypercube((shared,), (self.units,), (frozenset(shared), frozenset(shared)))
        m, n = self._halves()
        band = None if at_random else value_band(self.plan, left, right)
        return biclique(m, n) if band is None else biclique(m, n, band, m, n)

    def _pipeline(self, *, at_random: bool) -> Plan:
        order = tuple(self.order) if self.order is not None else join_order(self.plan)
        singles = {s.name: s for s in self._singles()}
        left, stages, first = singles[order[0]], [], 0
        for n, alias in enumerate(order[1:], start=1):
            sides = (left, singles[alias])
            stages.append(Stage(sides, self._binary(sides, at_random=at_random), first))
            first = stages[-1].units.stop
            left = self._compound(order[: n + 1], order[n + 1 :])
        return replace(self.plan, stages=tuple(stages))

    def _compound(self, aliases: tuple[str, ...], later: tuple[str, ...]) -> Side:
        inputs = [i for i in self.plan.inputs if i.alias in aliases]
        brought = carried(self.plan, aliases, later)
        side = Side(aliases, reference(self.plan, aliases, later[:1]), {}, brought)
        keys = {
            c: side.column(i.alias, name)
            for i in reversed(inputs)
            for c, name in i.keys.items()
            if (i.alias, name) in brought
        }
        return replace(side, keys=keys)

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
