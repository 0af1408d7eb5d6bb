"""Joins any number of data streams, on any predicate, over any window, on Spark, from Python.

A public name is loaded when it is first used: Spark's Python workers import modules of this package and none of these names, and
each of them would wait for the SQL parser and the local runtime, a third of its start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watersmeet.api import join, sql, subscriptions
    from watersmeet.errors import WatersmeetError
    from watersmeet.query.scaling import Scaling
    from watersmeet.query.sites import Line, Sites
    from watersmeet.query.stream import Stream
    from watersmeet.runtime import local

__all__ = ["Line", "Scaling", "Sites", "Stream", "WatersmeetError", "join", "local", "sql", "subscriptions"]

_HOMES = {
    "Line": "query.sites",
    "Scaling": "query.scaling",
    "Sites": "query.sites",
    "Stream": "query.stream",
    "WatersmeetError": "errors",
    "join": "api",
    "local": "runtime.local",
    "sql": "api",
    "subscriptions": "api",
}
import_module(f"{__name__}.sql")
del globals()["sql"]
# An import names a package in its parent when it is loaded first, and `sql` is to be the function.


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{_HOMES[name]}")
    found = home if home.__name__.endswith(f".{name}") else getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
