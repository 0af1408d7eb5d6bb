"""The plan of a registry of queries: which streams there are and how many units; what is joined, the registry says.

To the runtime a catalogue is a plan whose aliases are the streams themselves, each with all its columns, and whose results are
rows (query, time, answer). Tuples go to every unit that has queries over their stream.

Invariant: a catalogue is a pure function of the streams' schemas, times, disorder, the number of units and the session; queries come and
go without touching it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.plan.model import TIME, InputPlan, Plan, WireColumn
from watersmeet.query.expr import column
from watersmeet.query.join import Input, Join
from watersmeet.query.session import IN_UTC, UTC, Session
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import WindowGraph

QUERY, YOUNGEST, ANSWER = "query", "ts", "answer"
ANSWER_FIELDS = [(QUERY, "string"), (YOUNGEST, "timestamp"), (ANSWER, "string")]
"""The columns of answers: the query's id, the youngest member's event time, and the SELECT as a JSON object."""
BATCH = "_batch"
"""The stored column that says in which batch a tuple arrived."""
_PREFIX = "c_"


def wire_name(spec: StreamSpec, name: str) -> str:
    """The wire column of a stream's column."""
    return TIME if name == spec.time else _PREFIX + name


class Streams(Join):
    """Streams that no condition relates: queries will."""

    def __post_init__(self) -> None:
        assert self.windows.aliases == self.aliases


@dataclass(frozen=True)
class Catalogue(Plan):
    """The plan of a registry."""

    engine: str = "shared"
    """What answers the queries: 'shared' or 'rjoin', see `units.programs`."""

    @property
    def units(self) -> int:
        return self.units_wanted

    @property
    def _uses_zone(self) -> bool:
        return True  # queries come and go

    def description(self) -> dict[str, Any]:
        return {
            "subscriptions": {
                s.name: [dict(s.schema), s.time, s.lateness_us, s.idle_us] for s in self.join.streams.values()
            },
            "units": self.units,
            **({} if self.engine == "shared" else {"engine": self.engine}),
            **({} if self.timezone == UTC else {"timezone": self.timezone}),
        }


def catalogue(
    specs: Mapping[str, StreamSpec], units: int, engine: str = "shared", session: Session = IN_UTC
) -> Catalogue:
    """The catalogue of some streams.

    >>> c = catalogue({"s": StreamSpec("s", {"k": "int", "at": "timestamp"}, time="at")}, 2)
    >>> [(w.name, w.type) for w in c.inputs[0].columns], c.units
    ([('c_k', 'int'), ('_ts', 'timestamp')], 2)
    """
    names = tuple(specs)
    join = Streams(
        text=f"subscriptions over {', '.join(names)}",
        inputs=tuple(Input(name, name) for name in names),
        streams=dict(specs),
        filters=(),
        predicates=(),
        windows=WindowGraph.close(names, []),
        select=(),
        session=session,
    )
    inputs = tuple(
        InputPlan(
            alias=name,
            stream=name,
            position=n,
            columns=tuple(
                WireColumn(wire_name(spec, c), column(name, c), kind, False) for c, kind in spec.schema.items()
            ),
            keys={},
            filters=(),
            required=(TIME,),
            earlier=(),
        )
        for n, (name, spec) in enumerate(specs.items())
    )
    return Catalogue(join, units, inputs=inputs, engine=engine)
