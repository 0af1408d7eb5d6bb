"""The plan of a registry of queries: which streams there are and how many units; what is joined, the registry says.

The aliases are the streams themselves, each with all its columns. Results are rows (query, time, answer).

Invariant: the plan is a pure function of the streams' schemas, times, disorder, the number of units and the session; queries come and
go without touching it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from watersmeet.plan.fingerprint import fingerprint
from watersmeet.plan.model import TIME, InputPlan, WireColumn
from watersmeet.query.expr import column
from watersmeet.query.quotas import DEFAULT_QUOTAS, Quotas
from watersmeet.query.session import IN_UTC, UTC, Session
from watersmeet.query.stream import StreamSpec

QUERY, VERSION, YOUNGEST, ANSWER = "query", "version", "ts", "answer"
ANSWER_FIELDS = [(QUERY, "string"), (VERSION, "bigint"), (YOUNGEST, "timestamp"), (ANSWER, "string")]
"""The columns of answers: the query's id, the version of the registry that added it, the youngest member's event time, and the SELECT as a JSON object."""
BATCH = "_batch"
"""The stored column that says in which batch a tuple arrived."""


def wire_name(spec: StreamSpec, name: str) -> str:
    """The wire column of a stream's column."""
    return TIME if name == spec.time else f"c_{name}"


@dataclass(frozen=True)
class RegistryPlan:
    """Where the tuples of a registry's streams go, and whose state they become.

    >>> plan = RegistryPlan({"s": StreamSpec("s", {"k": "int", "at": "timestamp"}, time="at")}, 2)
    >>> [(w.name, w.type) for w in plan.inputs[0].columns], plan.units
    ([('c_k', 'int'), ('_ts', 'timestamp')], 2)
    """

    streams: Mapping[str, StreamSpec] = field(hash=False)
    units: int
    engine: str = "shared"
    """What answers the queries: 'shared' or 'rjoin'."""
    session: Session = IN_UTC
    quotas: Quotas = DEFAULT_QUOTAS

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(self.streams)

    @property
    def sets_aside(self) -> bool:
        """Nothing is computed of tuples before they come to units: a query that breaks is struck out."""
        return False

    @cached_property
    def inputs(self) -> tuple[InputPlan, ...]:
        """What is read of every stream: all its columns."""
        return tuple(
            InputPlan(
                alias=name,
                stream=name,
                position=n,
                columns=tuple(
                    WireColumn(wire_name(spec, c), column(name, c), t, False) for c, t in spec.schema.items()
                ),
                keys={},
                filters=(),
                required=(TIME,),
                earlier=(),
                max_ahead_us=spec.max_ahead_us,
            )
            for n, (name, spec) in enumerate(self.streams.items())
        )

    @cached_property
    def by_alias(self) -> Mapping[str, InputPlan]:
        """The inputs by alias."""
        return {i.alias: i for i in self.inputs}

    @property
    def timezone(self) -> str:
        """The session's time zone, which expressions are evaluated in."""
        return self.session.timezone

    @property
    def title(self) -> str:
        """The registry as checkpoints name it."""
        return f"subscriptions over {', '.join(self.streams)} (time zone {self.timezone})"

    def description(self) -> dict[str, Any]:
        """What stored state depends on, as JSON."""
        ahead = {s.name: s.max_ahead_us for s in self.streams.values() if s.max_ahead_us is not None}
        return {
            "subscriptions": {
                s.name: [dict(s.schema), s.time, s.lateness_us, s.idle_us] for s in self.streams.values()
            },
            "units": self.units,
            **({"max_ahead": ahead} if ahead else {}),
            **({} if self.engine == "shared" else {"engine": self.engine}),
            **({} if self.timezone == UTC else {"timezone": self.timezone}),
        }

    def fingerprint(self) -> str:
        """Changes when, and only when, stored state is of no use any more."""
        return fingerprint(self.description())
