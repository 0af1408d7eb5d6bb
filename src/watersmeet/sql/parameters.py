"""Parameters of a query's text: `:name` becomes a constant, written so that nothing in it can be read as SQL.

    o.total > :limit AND o.user IN (:users)      {"limit": 500, "users": [3, 5]}      o.total > 500 AND o.user IN (3, 5)

A name stands directly after its colon. Texts and comments are left as they are: what is replaced are tokens.

Invariant: every parameter that the text names is given, and every one that is given is named; a value is one constant of its type, whatever it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from sqlglot import exp

from watersmeet.errors import OptionError, QueryError
from watersmeet.sql.expressions import SPARK
from watersmeet.sql.tokens import tokenize


def fill_in(text: str, params: Mapping[str, Any]) -> str:
    """The text with its parameters as constants.

    >>> fill_in("a.v > :low AND a.name = :name -- :low", {"low": -5, "name": "it's"})
    "a.v >  -5 AND a.name = 'it\\\\'s' -- :low"
    """
    if not isinstance(params, Mapping):
        raise OptionError(f"params={params!r}: give a mapping of names to values")
    out, done, used = "", 0, set[str]()
    tokens = tokenize(text)
    for colon, name in pairwise(tokens):
        before = text[max(colon.start - 1, 0)]
        is_path = before.isalnum() or before in "_`)]"  # v:field looks into a variant
        if colon.token_type.name != "COLON" or name.start != colon.end + 1 or is_path:
            continue
        if name.text not in params:
            raise QueryError(f"the query has a parameter :{name.text}, and params has no {name.text!r}: give its value")
        out, done = out + text[done : colon.start] + write_constant(name.text, params[name.text]), name.end + 1
        used.add(name.text)
    for unused in params.keys() - used:
        raise QueryError(f"params has {unused!r}, and the query has no parameter :{unused}: leave it out")
    return out + text[done:]


def write_constant(name: str, value: Any) -> str:
    """A value as a constant of Spark's SQL; a list as constants between commas.

    >>> write_constant("x", [1, 2.5, None, date(2024, 5, 1)])
    "1, 2.5e0, NULL, DATE '2024-05-01'"
    """
    if isinstance(value, list | tuple | set | frozenset):
        if not value:
            raise QueryError(f"parameter {name!r} is an empty list: give one value at least")
        return ", ".join(write_constant(name, one) for one in value)
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, str):
        return str(exp.Literal.string(value).sql(dialect=SPARK))
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, int | float | Decimal) and math.isfinite(value):
        return _write_number(value)
    raise OptionError(
        f"parameter {name!r} is {value!r}: give a number, a text, a date, a time, a truth value, None, or a list of these"
    )


def _write_number(value: float | Decimal) -> str:
    """A float is a double and no decimal; a minus stands apart, lest two of them begin a comment."""
    text = format(value, "f") if isinstance(value, Decimal) else repr(value)
    if isinstance(value, float) and "e" not in text:
        text += "e0"
    return f" {text}" if text.startswith("-") else text
