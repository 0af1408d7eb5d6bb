"""What answers registered queries: engines by name.

    shared   every unit gets all tuples and answers its share of the queries by one trie of probes
    rjoin    units are nodes of a ring; tuples lie under their values, and queries travel from value to value

Invariant: engines give the same answers; the choice changes cost alone. A checkpoint keeps the engine that it was begun with.
"""

from __future__ import annotations

from typing import Any

from watersmeet.dataflow.contract import Flows
from watersmeet.errors import OptionError, UnsupportedError
from watersmeet.registry.limits import check_size
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.rjoin.flow import RJoinFlows
from watersmeet.registry.rjoin.shape import Shape, code_streams
from watersmeet.registry.rjoin.templates import check_shape
from watersmeet.registry.shared.flow import SharedPlanFlows
from watersmeet.registry.subscription import Subscription
from watersmeet.registry.versions import Queries
from watersmeet.runtime.subscriptions.own import OwnRuns

DEFAULT = "shared"
_ENGINES = ("shared", "rjoin")


def check_engine(engine: Any) -> str:
    """The name of an engine, or an error that says which there are."""
    if engine not in _ENGINES:
        raise OptionError(f"engine={engine!r}: there are {', '.join(map(repr, _ENGINES))}")
    return str(engine)


def engine_of(plan: RegistryPlan, queries: Queries) -> Flows:
    """The dataflows that answer a catalogue's queries."""
    return (
        RJoinFlows(plan, queries)
        if plan.engine == "rjoin"
        else SharedPlanFlows(plan, queries, OwnRuns(plan, queries.name))
    )


def accept(plan: RegistryPlan, query: Subscription, backfill: bool = False) -> None:
    """Raise if the catalogue's engine cannot answer a query, or not from stored tuples first."""
    check_size(query, plan.quotas)
    if backfill and (query.template.outer is not None or query.own is not None):
        raise UnsupportedError(
            "backfill=True goes with inner joins by equalities of plain columns and with single streams, and this is another query; add it without backfill, and ask() for what is stored"
        )
    if plan.engine == "rjoin":
        if backfill:
            raise UnsupportedError(
                "backfill=True with engine='rjoin': its stored tuples are not joined again; add the query without it, ask() for what is stored, or take engine='shared'"
            )
        if len(query.template.streams) == 1:
            raise UnsupportedError(
                f"engine='rjoin' rewrites joins, and the query reads only {query.template.streams[0]!r}: register it with engine='shared'"
            )
        if query.template.outer is not None or query.own is not None:
            raise UnsupportedError(
                "engine='rjoin' rewrites inner joins by equalities of plain columns, and this is another query: register it with engine='shared'"
            )
        check_shape(code_streams(plan.streams), Shape.of(query))
