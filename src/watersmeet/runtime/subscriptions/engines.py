"""What answers registered queries: engines by name.

    shared   every unit gets all tuples and answers its share of the queries by one trie of probes
    rjoin    units are nodes of a ring; tuples lie under their values, and queries travel from value to value

Invariant: engines give the same answers; the choice changes cost alone. A checkpoint keeps the engine that it was begun with.
"""

from __future__ import annotations

from typing import Any

from watersmeet.errors import OptionError
from watersmeet.plan.catalogue import Catalogue
from watersmeet.plan.limits import check_size
from watersmeet.plan.shape import Shape, coded_streams
from watersmeet.plan.subscription import Subscription
from watersmeet.units.program import Answering
from watersmeet.units.programs.rjoin import RJoinProgram
from watersmeet.units.programs.subscriptions import Queries, SharedPlanProgram
from watersmeet.units.rjoin.templates import check_shape

DEFAULT = "shared"
_ENGINES = {"shared": SharedPlanProgram, "rjoin": RJoinProgram}


def checked(engine: Any) -> str:
    """The name of an engine, or an error that says which there are."""
    if engine not in _ENGINES:
        raise OptionError(f"engine={engine!r}: there are {', '.join(map(repr, _ENGINES))}")
    return str(engine)


def engine_of(plan: Catalogue, queries: Queries) -> Answering:
    """The program that answers a catalogue's queries."""
    return _ENGINES[plan.engine](plan, queries)


def accept(plan: Catalogue, query: Subscription) -> None:
    """Raise if the catalogue's engine cannot answer a query."""
    check_size(query)
    if plan.engine == "rjoin":
        check_shape(coded_streams(plan.join.streams), Shape.of(query))
