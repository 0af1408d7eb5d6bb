"""What answers registered queries: engines by name.

    shared   every unit gets all tuples and answers its share of the queries by one trie of probes
    rjoin    units are nodes of a ring; tuples lie under their values, and queries travel from value to value

What an engine does not share runs as a dataflow of its own inside one unit, under both of them. RJoin shares inner joins of several streams alone.

Invariant: engines accept the same queries and give the same answers; the choice changes cost alone, and that `rjoin` does not begin with stored tuples. A checkpoint keeps the engine that it was begun with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from watersmeet.dataflow.contract import Flows
from watersmeet.errors import OptionError, UnsupportedError
from watersmeet.query.join import Join
from watersmeet.registry.bind import why_not_rewritten, why_not_shared
from watersmeet.registry.limits import check_size
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.rjoin.flow import RJoinFlows
from watersmeet.registry.rjoin.shape import Shape, code_streams
from watersmeet.registry.rjoin.templates import check_shape
from watersmeet.registry.shared.flow import SharedPlanFlows
from watersmeet.registry.subscription import Subscription
from watersmeet.registry.versions import Queries
from watersmeet.runtime.subscriptions.own import OwnRuns

AUTO, SHARED, RJOIN = "auto", "shared", "rjoin"
LARGE = 1_000_000
"""Tuples of a micro-batch by which `auto` decides. Rounds cost the same for few tuples as for many, so smaller ones favour the shared plan even more."""
_SHARED_US = 0.14
"""CPU time of a unit for a tuple that enters it, under the shared plan."""
_RJOIN_US = 4.7
"""The same under RJoin, where the tuple lies under a key for every column that is compared."""
_ROUNDS, _ROUND_US, _PEER_US = 4, 5_000, 155
"""RJoin's rounds, what each costs a unit, and that for every unit whose rates it reads."""


def choose_engine(engine: Any, streams: int, units: int, quotas: Any = None) -> str:
    """The engine that is asked for; under 'auto' that whose busiest unit is estimated to take less CPU time for a large micro-batch.

    >>> choose_engine("rjoin", 2, 1), choose_engine("auto", 10, 64), choose_engine("auto", 1000, 96)
    ('rjoin', 'shared', 'rjoin')
    """
    if engine not in (AUTO, SHARED, RJOIN):
        raise OptionError(f"engine={engine!r}: there are {AUTO!r}, {SHARED!r}, {RJOIN!r}")
    if engine != AUTO:
        return str(engine)
    if getattr(quotas, "state", None) is not None:  # RJoin's rewritten queries share their state
        return SHARED
    return min((SHARED, RJOIN), key=lambda one: estimate_us(one, streams, units))


def estimate_us(engine: str, streams: int, units: int, tuples: int = LARGE) -> float:
    """The CPU time of the busiest unit for the tuples of a micro-batch; what queries find in them is left out.

    Under the shared plan every unit gets all tuples. Under RJoin one unit gets all those of a stream, since they lie under one key for each of their columns, that of the attribute level;
    and its share of the others by their values. Streams are taken to be equally fast, which favours RJoin. The figures are measured by `watersmeet bench subscriptions --units`.

    >>> estimate_us("rjoin", 10, 64) > 4 * estimate_us("shared", 10, 64)
    True
    """
    if engine == SHARED:
        return tuples * _SHARED_US
    return _ROUNDS * (_ROUND_US + units * _PEER_US) + tuples * min(1 / streams + 1 / units, 1) * _RJOIN_US


def engine_of(plan: RegistryPlan, queries: Queries) -> Flows:
    """The dataflows that answer a catalogue's queries."""
    flows = RJoinFlows if plan.engine == RJOIN else SharedPlanFlows
    return flows(plan, queries, OwnRuns(plan, queries.name))


def sharing_of(engine: str) -> Callable[[Join], str]:
    """Why a query is a dataflow of its own under an engine, '' if it is not."""
    return why_not_rewritten if engine == RJOIN else why_not_shared


def accept(plan: RegistryPlan, query: Subscription, backfill: bool = False) -> None:
    """Raise if the catalogue's engine cannot answer a query, or not from stored tuples first."""
    check_size(query, plan.quotas)
    if backfill and (query.template.outer is not None or query.own is not None):
        raise UnsupportedError(
            "backfill=True goes with inner joins by equalities of plain columns and with single streams, and this is another query; add it without backfill, and ask() for what is stored"
        )
    if plan.engine == RJOIN:
        if backfill:
            raise UnsupportedError(
                "backfill=True with engine='rjoin': its stored tuples are not joined again; add the query without it, ask() for what is stored, or take engine='shared'"
            )
        if query.own is None:
            check_shape(code_streams(plan.streams), Shape.of(query))
