"""How large a registered query may be, and how much it may take. What can be told of a query is checked where it is added, the same for all engines.

Quotas are a registry's own limits (`query.quotas`): sizes are checked here; answers and state are counted while batches run (`shared.meter`).

Invariant: a query within the limits can be compiled by every engine; what an engine cannot compile, it says itself (`engines.accept`).
"""

from __future__ import annotations

from typing import Any

from watersmeet.errors import OptionError, UnsupportedError
from watersmeet.query.quotas import DEFAULT_QUOTAS, Quotas
from watersmeet.registry.subscription import Subscription

MOST_ID_BYTES = 1_000
"""Every answer has the id of its query."""
MOST_TEXT = 20_000
"""Characters of a query."""


def check_quotas(quotas: Any, engine: str) -> Quotas:
    """The quotas of a registry, or an error that says what is wrong with them."""
    if quotas is None:
        return DEFAULT_QUOTAS
    if not isinstance(quotas, Quotas):
        raise OptionError(f"quotas={quotas!r}: give wm.Quotas(answers=..., state=...)")
    if quotas.state is not None and engine == "rjoin":
        raise OptionError("Quotas(state=...) with engine='rjoin': rewritten queries share their state; leave it out")
    return quotas


def check_id(id: Any) -> str:
    """The id of a query, or an error that says what is wrong with it.

    >>> check_id("user 42")
    'user 42'
    """
    if not isinstance(id, str) or not id:
        raise OptionError(f"id={id!r}: the id of a query is a text that is not empty")
    shown = id if len(id) <= 40 else f"{id[:40]}..."
    size = len(_encode(id, f"id={shown!r}"))
    if size > MOST_ID_BYTES:
        raise OptionError(f"id={shown!r}: it has {size:,} bytes, and an id has {MOST_ID_BYTES:,} at most; shorten it")
    return id


def check_text(sql: Any) -> None:
    """Refuse a text that is too long to be looked at."""
    if isinstance(sql, str):
        _encode(sql, "the query's text")
        _refuse_more(
            len(sql), MOST_TEXT, "characters", "shorten it, or compute long expressions in the stream's source"
        )


def check_size(query: Subscription, quotas: Quotas) -> None:
    """Refuse a query that is larger than the quotas."""
    conditions = len(query.template.edges) + len(query.constants) + len(query.residuals)
    _refuse_more(len(query.template.streams), quotas.streams, "streams in FROM", "run it with wm.sql")
    _refuse_more(len(query.outputs), quotas.columns, "columns in SELECT", "select fewer, or in two queries")
    _refuse_more(conditions, quotas.conditions, "conditions", "compute some of them in the stream's source")


def _refuse_more(found: int, most: int, what: str, remedy: str) -> None:
    if found > most:
        raise UnsupportedError(f"the query has {found:,} {what}, and a subscription has {most:,} at most: {remedy}")


def _encode(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise OptionError(
            f"{what} has half a character at position {error.start} (a lone surrogate): give valid Unicode"
        ) from error
