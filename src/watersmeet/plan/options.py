"""What a user may force, as keywords: `kernel="gca(mw)"`, `routing="contrand(2, 3)"`, `shipping="semijoin"`; and what rules get of it.

Invariant: forcing changes the cost, never the result. What cannot be read is an error that says what can.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from watersmeet.errors import OptionError
from watersmeet.extensions import require
from watersmeet.plan.model import Kernel, Plan, Policy
from watersmeet.plan.types import Types
from watersmeet.query.expr import Expr
from watersmeet.query.sites import Sites

DEFAULT_UNITS = 8
Runtime = Literal["auto", "stream", "rounds"]
Shipping = Literal["auto", "full", "semijoin"]
OnError = Literal["raise", "set aside"]
"""What becomes of a row for which an expression has no value: the batch fails, or goes on without the row."""
_KERNELS = get_args(Kernel)
POLICIES: tuple[Policy, ...] = get_args(Policy)
_ADDED = ("ripple", "xjoin")
"""Kernels that another distribution brings."""
_ROUTINGS = ("auto", "hash", "hypercube", "random", "range", "contrand", "matrix", "pipeline")
_CONTRAND = re.compile(r"contrand\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")

Inside = Literal["everything", "portable", "nothing"]
"""What the evaluator in the unit may take: everything in a runtime without Spark, nothing with ANSI mode off."""


class ForcedKernel(NamedTuple):
    """What `kernel=` says."""

    name: str
    gca: bool = False

    @classmethod
    def of(cls, text: object) -> ForcedKernel:
        """
        >>> ForcedKernel.of("mw"), ForcedKernel.of("gca( lca )")
        (ForcedKernel(name='mw', gca=False), ForcedKernel(name='lca', gca=True))
        """
        around = re.fullmatch(r"gca\(\s*(\w+)\s*\)", text.strip()) if isinstance(text, str) else None
        name = text if around is None else around[1]
        if name not in _KERNELS and (name != "auto" or around is not None):
            raise OptionError(
                f"kernel={text!r}: this release has {_quote_all(('auto', *_KERNELS))}, and 'gca(...)' around any of them but 'auto', such as 'gca(mw)'"
            )
        if name in _ADDED:
            require("watersmeet.kernels", str(name), f"kernel={text!r}")
        return cls(str(name), around is not None)


class ForcedRouting(NamedTuple):
    """What `routing=` says: a name, and for contrand the numbers of subgroups."""

    name: str
    groups: tuple[int, int] | None = None

    @classmethod
    def of(cls, text: object) -> ForcedRouting:
        """
        >>> ForcedRouting.of("contrand(2, 3)")
        ForcedRouting(name='contrand', groups=(2, 3))
        """
        if isinstance(text, str):
            found = _CONTRAND.fullmatch(text.strip())
            if found:
                return cls("contrand", (int(found[1]), int(found[2])))
            if text in _ROUTINGS:
                return cls(text)
        raise OptionError(
            f"routing={text!r}: this release has {_quote_all(_ROUTINGS)} and 'contrand(d, e)' with numbers of subgroups"
        )


@dataclass(frozen=True)
class Options:
    """What a user may force: that changes the cost, never the result; and what becomes of rows that break an expression."""

    kernel: str = "auto"
    routing: str = "auto"
    order: Literal["auto"] | Sequence[str] = "auto"
    driver: Policy = "auto"
    units: Literal["auto"] | int = "auto"
    shipping: Shipping = "auto"
    bandwidth: Literal["auto"] | float = "auto"
    """Bytes per second between units, which `shipping="auto"` estimates with."""
    runtime: Runtime = "auto"
    sites: Sites | Mapping[str, str] | None = None
    """Where streams arrive, how sites join, and the lines between them."""
    on_error: OnError = "raise"
    """Whether a row that breaks an expression (a division by zero, an overflow, a bad cast) ends the query, or goes to the late output."""

    def __post_init__(self) -> None:
        ForcedKernel.of(self.kernel)
        ForcedRouting.of(self.routing)
        _check_one_of("driver", self.driver, POLICIES)
        _check_one_of("shipping", self.shipping, get_args(Shipping))
        _check_one_of("runtime", self.runtime, get_args(Runtime))
        _check_one_of("on_error", self.on_error, get_args(OnError))
        if self.shipping == "semijoin" and self.runtime == "stream":
            raise OptionError("shipping='semijoin' needs a second round: use runtime='rounds' and start()")
        if self.bandwidth != "auto" and not (_is_number(self.bandwidth, int | float) and self.bandwidth > 0):
            raise OptionError(f"bandwidth={self.bandwidth!r}: give bytes per second, such as 125e6, or 'auto'")
        if isinstance(self.sites, Mapping):
            object.__setattr__(self, "sites", Sites(self.sites))
        if self.sites is not None and not isinstance(self.sites, Sites):
            raise OptionError(
                f"sites={self.sites!r}: give a site for every alias, {{'a': 'paris', ...}}, or wm.Sites(..., latency='20 ms', bandwidth=12.5e6)"
            )
        if self.units != "auto" and not (_is_number(self.units, int) and 1 <= self.units <= 4096):
            raise OptionError(f"units={self.units!r}: give a whole number from 1 to 4096, or 'auto' ({DEFAULT_UNITS})")

    @property
    def at(self) -> Sites | None:
        """Where streams arrive, if the user gives it."""
        assert self.sites is None or isinstance(self.sites, Sites)
        return self.sites


class Choices(TypedDict, total=False):
    """The options by name, for type checkers; `Options` says what they mean."""

    kernel: str
    routing: str
    order: Literal["auto"] | Sequence[str]
    driver: Policy
    units: Literal["auto"] | int
    shipping: Shipping
    bandwidth: Literal["auto"] | float
    runtime: Runtime
    sites: Sites | Mapping[str, str] | None
    on_error: OnError


@dataclass(frozen=True)
class Given:
    """What a plan is made of besides the query: the same for all rules."""

    types: Types
    options: Options
    inside: Inside

    def keeps_inside(self, expr: Expr) -> bool:
        """Whether units may evaluate an expression."""
        return self.inside == "everything" or (self.inside == "portable" and expr.portable)

    def order(self, plan: Plan) -> tuple[str, ...] | None:
        """The order that is forced, or none."""
        if self.options.order == "auto":
            return None
        order = tuple(self.options.order)
        if sorted(order) != sorted(plan.aliases):
            raise OptionError(f"order={list(order)!r}: name every alias once: {', '.join(plan.aliases)}")
        return order


OPTIONS = tuple(sorted(f.name for f in fields(Options)))


def change(options: Options, choices: Mapping[str, Any]) -> Options:
    """The options with some of them set anew.

    >>> change(Options(units=4), {"kernel": "hw"}).units
    4
    >>> change(Options(), {"unit": 4})
    Traceback (most recent call last):
    watersmeet.errors.OptionError: no option unit (did you mean units?); there are bandwidth, driver, kernel, on_error, order, routing, runtime, shipping, sites, units
    """
    for name in choices:
        if name not in OPTIONS:
            raise OptionError(f"no option {name}{suggest(name, OPTIONS)}; there are {', '.join(OPTIONS)}")
    return replace(options, **choices)


def suggest(name: str, known: Iterable[str]) -> str:
    """What was probably meant, in parentheses.

    >>> suggest("unit", ["units", "kernel"]), suggest("xyz", ["units"])
    (' (did you mean units?)', '')
    """
    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def _check_one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(f"{name}={value!r}: this release has {_quote_all(allowed)}")


def _quote_all(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
