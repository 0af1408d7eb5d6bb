"""Joins any number of data streams, on any predicate, over any window, on Spark, from Python.

A public name is loaded when it is first used: Spark's Python workers import modules of this package and none of these names, and
each of them would wait for the SQL parser and the local runtime, a third of its start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watersmeet import testing
    from watersmeet.api import JoinBuilder, Query, join, sql, subscriptions
    from watersmeet.errors import (
        BrokenQueryError,
        CheckpointError,
        DataError,
        OptionError,
        ParseError,
        QueryError,
        QuotaError,
        StreamError,
        TypeMismatchError,
        UnknownNameError,
        UnsupportedError,
        WatersmeetError,
        WindowError,
        WorkerError,
    )
    from watersmeet.plan.explain.explanation import Explanation
    from watersmeet.plan.model import Plan
    from watersmeet.query.quotas import Quotas
    from watersmeet.query.scaling import Scaling
    from watersmeet.query.sites import Line, Sites
    from watersmeet.query.stream import RemoteStream, Stream
    from watersmeet.query.table import Table
    from watersmeet.runtime import local
    from watersmeet.runtime.checkpoints.table import state
    from watersmeet.runtime.counts import Counts
    from watersmeet.runtime.observing import observe
    from watersmeet.runtime.progress import Progress
    from watersmeet.runtime.rounds.handle import Handle
    from watersmeet.runtime.subscriptions.handle import Subscriptions

    __version__: str

__all__ = [
    "BrokenQueryError",
    "CheckpointError",
    "Counts",
    "DataError",
    "Explanation",
    "Handle",
    "JoinBuilder",
    "Line",
    "OptionError",
    "ParseError",
    "Plan",
    "Progress",
    "Query",
    "QueryError",
    "QuotaError",
    "Quotas",
    "RemoteStream",
    "Scaling",
    "Sites",
    "Stream",
    "StreamError",
    "Subscriptions",
    "Table",
    "TypeMismatchError",
    "UnknownNameError",
    "UnsupportedError",
    "WatersmeetError",
    "WindowError",
    "WorkerError",
    "join",
    "local",
    "observe",
    "sql",
    "state",
    "subscriptions",
    "testing",
]

_HOMES = {
    "Counts": "runtime.counts",
    "Explanation": "plan.explain.explanation",
    "Handle": "runtime.rounds.handle",
    "JoinBuilder": "api",
    "Line": "query.sites",
    "Plan": "plan.model",
    "Progress": "runtime.progress",
    "Query": "api",
    "Quotas": "query.quotas",
    "RemoteStream": "query.stream",
    "Scaling": "query.scaling",
    "Sites": "query.sites",
    "Stream": "query.stream",
    "Subscriptions": "runtime.subscriptions.handle",
    "Table": "query.table",
    "join": "api",
    "local": "runtime.local",
    "observe": "runtime.observing",
    "sql": "api",
    "state": "runtime.checkpoints.table",
    "subscriptions": "api",
    "testing": "testing",
}
_HOMES |= {name: "errors" for name in __all__ if name.endswith("Error")}
_ON_SPARK = {"Handle", "Subscriptions"}
import_module(f"{__name__}.sql")
del globals()["sql"]
# An import names a package in its parent when it is loaded first, and this name is to be the function.


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("watersmeet")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _ON_SPARK:
        from watersmeet.extensions import require_spark

        require_spark(f"wm.{name}")
    home = import_module(f"{__name__}.{_HOMES[name]}")
    found = home if home.__name__.endswith(f".{name}") else getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
