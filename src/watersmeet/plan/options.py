"""Options by name: some set anew, and what a misspelt name was meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.plan.build import Options

OPTIONS = tuple(sorted(f.name for f in fields(Options)))


def changed(options: Options, choices: Mapping[str, Any]) -> Options:
    """The options with some of them set anew.

    >>> changed(Options(units=4), {"kernel": "hw"}).units
    4
    >>> changed(Options(), {"unit": 4})
    Traceback (most recent call last):
    watersmeet.errors.OptionError: no option unit (did you mean units?); there are bandwidth, driver, kernel, order, routing, runtime, shipping, sites, units
    """
    for name in choices:
        if name not in OPTIONS:
            raise OptionError(f"no option {name}{suggestion(name, OPTIONS)}; there are {', '.join(OPTIONS)}")
    return replace(options, **choices)


def suggestion(name: str, known: Iterable[str]) -> str:
    """What was probably meant, in parentheses.

    >>> suggestion("unit", ["units", "kernel"]), suggestion("xyz", ["units"])
    (' (did you mean units?)', '')
    """
    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
