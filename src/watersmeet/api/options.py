"""Keywords of `wm.sql` and `wm.join`: which are streams, which are options, and which are misspelt.

Invariant: a keyword that is neither is an error that names what was probably meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from watersmeet.errors import OptionError, StreamError
from watersmeet.plan.build import Options
from watersmeet.plan.drivers import Policy
from watersmeet.plan.options import OPTIONS, suggestion
from watersmeet.plan.rules.ship import Shipping
from watersmeet.query.sites import Sites
from watersmeet.query.stream import Stream


class Choices(TypedDict, total=False):
    """The options by name, for type checkers; `plan.build.Options` says what they mean."""

    kernel: str
    routing: str
    order: Literal["auto"] | Sequence[str]
    driver: Policy
    units: Literal["auto"] | int
    shipping: Shipping
    bandwidth: Literal["auto"] | float
    runtime: Literal["auto", "stream", "rounds"]
    sites: Sites | Mapping[str, str] | None


def split(named: Mapping[str, Any]) -> tuple[dict[str, Stream], Options]:
    """The streams and the options among keywords."""
    streams = {name: value for name, value in named.items() if isinstance(value, Stream)}
    rest = {name: value for name, value in named.items() if name not in streams}
    for name, value in rest.items():
        if name not in OPTIONS:
            meant = suggestion(name, OPTIONS)
            if meant and isinstance(value, str | int | float):
                raise OptionError(f"no option {name}={value!r}{meant}")
            raise StreamError(
                f"{name}={type(value).__name__}: wrap it as wm.Stream({name}, time=...), or name one of the options {', '.join(sorted(OPTIONS))}"
            )
    return streams, Options(**rest)
