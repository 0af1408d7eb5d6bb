"""Streams as users give them to every call: in a mapping, as keywords, or both; and the options among the keywords.

    sql(text, {"clicks": clicks}, orders=orders, units=4)   ->   {clicks, orders} and {units: 4}

Invariant: a keyword is a stream if its value is a source of rows, else an option. Whatever is unclear is an error: a stream that is given
twice, one that is called like an option, a keyword that is neither. In a mapping a stream may have any name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.errors import OptionError, StreamError, WindowError
from watersmeet.plan.options import OPTIONS, suggest
from watersmeet.query.duration import parse_us
from watersmeet.query.stream import Stream
from watersmeet.query.table import Table


@dataclass(frozen=True)
class Call:
    """A call that takes streams: how errors write it, and which keywords are not streams."""

    name: str
    leading: str = ""
    """What stands before the mapping of streams."""
    plain: bool = False
    """Whether an Arrow table may be given without `wm.Stream`."""
    parameters: tuple[str, ...] = ()
    """Its keywords besides streams and options."""
    options: tuple[str, ...] = OPTIONS
    frames: tuple[str, ...] = ()
    """Parameters that take a DataFrame."""
    tables: bool = True
    """Whether it takes a `wm.Table`, too."""

    @property
    def keywords(self) -> tuple[str, ...]:
        return tuple(sorted({*self.parameters, *self.options}))

    def example(self, name: str = "clicks") -> str:
        """How streams are given in a mapping.

        >>> Call("sql", "text").example()
        "sql(text, {'clicks': wm.Stream(...)})"
        """
        source = "table" if self.plain else "wm.Stream(...)"
        return f"{self.name}({f'{self.leading}, ' if self.leading else ''}{{{name!r}: {source}}})"

    def split(
        self,
        streams: Mapping[str, Any] | None,
        named: Mapping[str, Any],
        parameters: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The streams and the options of a call; `parameters` are the values of those that have a name of their own.

        >>> table = pa.table({"k": [1]})
        >>> found, options = Call("run", "text", plain=True).split({"a": table}, {"b": table, "units": 4})
        >>> list(found), options
        (['a', 'b'], {'units': 4})
        """
        mapped = self._check_mapping(streams)
        for name, value in ({} if parameters is None else parameters).items():
            if is_source(value) and not (name in self.frames and not isinstance(value, Stream | Table)):
                raise self._clash(name)
        for name, value in named.items():
            self._check(name, value)
        keyed = {name: value for name, value in named.items() if name not in self.options}
        twice = [name for name in keyed if name in mapped]
        if twice:
            raise StreamError(f"stream {twice[0]} is given twice, in the mapping and as {twice[0]}=: give it once")
        found = {**mapped, **keyed}
        if not found:
            raise StreamError(f"{self.name}() needs streams: {self.example()}, or as keywords, clicks=...")
        self._check_wrapped(found)
        return found, {name: value for name, value in named.items() if name in self.options}

    def _check_mapping(self, streams: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if streams is None:
            return {}
        if not isinstance(streams, Mapping):
            raise StreamError(f"a {type(streams).__name__} without a name: name every stream, as in {self.example()}")
        unnamed = [name for name in streams if not isinstance(name, str)]
        if unnamed:
            raise StreamError(f"a stream is called {unnamed[0]!r}: names are texts, as in {self.example()}")
        return streams

    def _check(self, name: str, value: Any) -> None:
        """A keyword is a stream with a name of its own, or an option."""
        if name in self.options:
            if is_source(value):
                raise self._clash(name)
        elif not is_source(value):
            meant = suggest(name, self.keywords)
            if meant and isinstance(value, str | int | float):
                raise OptionError(f"no option {name}={value!r}{meant}")
            raise StreamError(
                f"{name}={type(value).__name__}: {self._suggest_wrapping(name)}, or name one of the options {', '.join(self.keywords)}"
            )

    def _check_wrapped(self, streams: Mapping[str, Any]) -> None:
        for name, value in streams.items():
            if isinstance(value, Table) and not self.tables:
                raise StreamError(
                    f"{name}=wm.Table: {self.name}() takes streams only; join the table with Spark before, and give the result as wm.Stream(df, time=...)"
                )
            if not self.plain and not isinstance(value, Stream | Table):
                raise StreamError(f"{name}={type(value).__name__}: {self._suggest_wrapping(name)}")

    def _suggest_wrapping(self, name: str) -> str:
        """What a stream is to be given as."""
        if self.plain:
            return f"give a pyarrow table, or wm.Stream({name}, time=...)"
        return f"wrap it as wm.Stream({name}, time=...)"

    def _clash(self, name: str) -> StreamError:
        return StreamError(
            f"{name}= is an option of {self.name}(), and a stream was given: "
            f"a stream of that name goes into the mapping, {self.example(name)}"
        )


def is_source(value: Any) -> bool:
    """Whether a value is something that rows come from: a `wm.Stream` or `wm.Table`, a Spark DataFrame, an Arrow table.

    >>> is_source(pa.table({"k": [1]})), is_source({"a": "paris"})
    (True, False)
    """
    return isinstance(value, Stream | Table | pa.Table | pa.RecordBatch) or is_frame(value)


def is_frame(value: Any) -> bool:
    """Whether a value is a Spark DataFrame, of whichever kind of session."""
    return hasattr(value, "isStreaming") and hasattr(value, "dtypes")


def trigger_of(given: Any) -> dict[str, Any]:
    """A trigger as Spark takes it: a duration, 'available now', or Spark's own keywords as a dict.

    >>> trigger_of("10s"), trigger_of("availableNow"), trigger_of({"processingTime": "1 second"})
    ({'processingTime': '10000 milliseconds'}, {'availableNow': True}, {'processingTime': '1000 milliseconds'})
    """
    said = OptionError(
        f"trigger={given!r}: give a duration such as '10 seconds', 'availableNow', or one of these as a dict, such as {{'processingTime': '10 seconds'}}"
    )
    span = given
    if isinstance(given, Mapping):
        if dict(given) == {"availableNow": True}:
            return {"availableNow": True}
        if list(given) != ["processingTime"]:
            raise said
        span = given["processingTime"]
    elif isinstance(given, str) and re.sub(r"[\s_-]", "", given).lower() == "availablenow":
        return {"availableNow": True}
    try:
        ms = 0 if given is None else parse_us(span) // 1000
    except (WindowError, AttributeError, TypeError) as error:
        raise said from error
    if ms < 0:
        raise said
    return {"processingTime": f"{ms} milliseconds"}
