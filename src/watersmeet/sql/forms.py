"""Texts that differ in their constants are parsed once: the rest of the way is a replacement in expressions.

    SELECT o.id FROM orders o WHERE o.user = 725 AND o.total > 12.50 AND o.kind = 'gift'       text
    SELECT o.id FROM orders o WHERE o.user = ?   AND o.total > ?     AND o.kind = ?             form: ? is a whole number, two and two digits, a text

A form is parsed with two sets of marks in place of its constants. If the one query becomes the other when marks are exchanged inside its expressions, constants of the
same kind can be put there as well. Otherwise (a constant is part of a window, a band, a duration) every text of the form is parsed.

Invariant: `read` returns what `parse` would. Constants are of one kind if Spark gives them one type: whole numbers of up to nine digits, decimals with the same digits before and after the
point, texts. Only what stands right of a comparison, or in BETWEEN or a list, is taken for a constant: elsewhere a number may decide a type. 0 and 1 stay as they are, since they may be told apart from other numbers.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.query.expr import Expr
from watersmeet.query.join import Join
from watersmeet.query.session import Session
from watersmeet.query.stream import StreamSpec
from watersmeet.sql.parse import parse

_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\]|'')*')|(?P<name>\"[^\"]*\"|`[^`]*`)|(?P<comment>--|/\*)|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<odd>\d[\w.]*)|(?P<space>\s+)|(?P<sign>.)",
    re.DOTALL,
)
_FIXED_AFTER = {"WINDOW", "DWINDOW", "WITHIN", "PATH", "TUMBLING", "RANGE", "ROWS", "INTERVAL"}
"""The next number after these is part of a window or a duration."""
_WHOLE = re.compile(r"[1-9]\d{0,8}")
_DECIMAL = re.compile(r"[1-9]\d*\.\d+")
_TEXT = re.compile(r"'[A-Za-z0-9_@:/ -]+'")
_MOST_CONSTANTS, _MOST_FORMS, _MOST_TEXT = 40, 2_000, 4_000
Cut = tuple[str, list[str]]
"""A form, which texts that differ in their constants have in common, and constants."""


@dataclass
class Form:
    """A form, as far as it is known."""

    query: Join | None = None
    """With marks; None before the second text of the form, and where texts are to be parsed."""
    marks: tuple[str, ...] = ()
    is_open: bool = True
    """Whether it has not been tried yet."""
    plain: set[int] = field(default_factory=set)
    """Parts of the query, by identity, that have no mark in them."""


@dataclass
class FormReader:
    """Parses queries over the same streams, in one session."""

    streams: Mapping[str, StreamSpec]
    session: Session
    lone: bool = False
    _forms: OrderedDict[str, Form] = field(default_factory=OrderedDict)

    def read(self, sql: str) -> Join:
        """The query of a text, as `parse` finds it."""
        return self.read_cut(sql, cut_form(sql))

    def read_cut(self, sql: str, cut: Cut | None) -> Join:
        """The same of a text that has been cut."""
        if cut is None:
            return self._parse(sql)
        key, constants = cut
        form = self._forms.get(key)
        if form is None:
            query = self._parse(sql)
            self._remember(key)
            return query
        self._forms.move_to_end(key)
        if form.is_open:
            self._try(key, form, constants)
        if form.query is None:
            return self._parse(sql)
        found: Join = _exchange(form.query, dict(zip(form.marks, map(_bare, constants), strict=True)), form.plain)
        return replace(found, text=sql)

    def _parse(self, sql: str) -> Join:
        return parse(sql, self.streams, self.session, lone=self.lone)

    def _remember(self, key: str) -> None:
        self._forms[key] = Form()
        if len(self._forms) > _MOST_FORMS:
            self._forms.popitem(last=False)

    def _try(self, key: str, form: Form, constants: Sequence[str]) -> None:
        """Parse a form with two sets of marks."""
        form.is_open = False
        one, two = (_mark(constants, first) for first in (1, len(constants) + 1))
        if one is None or two is None or any(mark in key for mark in (*map(_bare, one), *map(_bare, two))):
            return
        try:
            first, second = (self._parse(_fill(key, marks)) for marks in (one, two))
        except WatersmeetError:
            return
        turned = _exchange(first, dict(zip(map(_bare, one), map(_bare, two), strict=True)), set())
        if replace(turned, text="") == replace(second, text=""):
            form.query, form.marks = first, tuple(map(_bare, one))


def cut_form(sql: str) -> Cut | None:
    """A text's form, and its constants; None if it has none, or is not worth it.

    >>> cut_form("SELECT o.id FROM o WHERE o.a > 5 AND o.b = 'x' WINDOW = 7 SECONDS")
    ('SELECT o.id FROM o WHERE o.a > \\x00n\\x00 AND o.b = \\x00t\\x00 WINDOW = 7 SECONDS', ['5', "'x'"])
    """
    if not isinstance(sql, str) or len(sql) > _MOST_TEXT or "\0" in sql:
        return None
    parts, constants, place = list[str](), list[str](), _Place()
    for found in _TOKEN.finditer(sql):
        kind, text = found.lastgroup or "", found[0]
        if kind == "space":
            parts.append(text)
            continue
        if kind == "comment":
            return None
        mark = _kind_of(text) if kind in ("number", "text") and place.is_compared else ""
        if mark:
            constants.append(text)
        parts.append(f"\0{mark}\0" if mark else text)
        place.pass_by(kind, text.upper() if kind == "word" else text)
    return ("".join(parts), constants) if 0 < len(constants) <= _MOST_CONSTANTS else None


@dataclass
class _Place:
    """Where in a text the next token stands: whether a constant there is compared, and is not part of a window."""

    before: str = ""
    is_fixed: bool = False
    """Whether the next number is that of a window or a duration."""
    is_between: bool = False
    is_listed: bool = False

    @property
    def is_compared(self) -> bool:
        if self.is_fixed:
            return False
        return self.before in ("=", "<", ">", "BETWEEN", "AND of BETWEEN") or (
            self.is_listed and self.before in ("(", ",")
        )

    def pass_by(self, kind: str, text: str) -> None:
        self.is_listed = (self.is_listed or (text == "(" and self.before == "IN")) and text != ")"
        if kind == "word":
            self.is_fixed = self.is_fixed or text in _FIXED_AFTER
            text = "AND of BETWEEN" if text == "AND" and self.is_between else text
            self.is_between = text == "BETWEEN"
        elif kind in ("number", "odd"):
            self.is_fixed = False
        self.before = text


def _kind_of(text: str) -> str:
    """The kind of a constant; '' if it stays as it is."""
    if _WHOLE.fullmatch(text):
        return "" if text == "1" else "n"
    if _DECIMAL.fullmatch(text):
        whole, _, rest = text.partition(".")
        return f"d{len(whole)}.{len(rest)}"
    return "t" if _TEXT.fullmatch(text) else ""


def _mark(constants: Iterable[str], first: int) -> list[str] | None:
    """Marks of the constants' kinds, all different."""
    out = []
    for number, text in enumerate(constants, first):
        if text.startswith("'"):
            out.append(f"'wm-mark-{number:03d}'")
        elif "." not in text:
            out.append(str(817_263_000 + number))
        else:
            whole, _, rest = text.partition(".")
            digits = str(7_919 * (97 + number))[-len(whole) - len(rest) :].rjust(len(whole) + len(rest), "3")
            digits = digits if digits[0] != "0" else f"9{digits[1:]}"
            out.append(f"{digits[: len(whole)]}.{digits[len(whole) :]}")
    return out if len(set(out)) == len(out) else None


def _bare(constant: str) -> str:
    """A constant as it stands in expressions, less the quotes."""
    return constant.strip("'")


def _fill(key: str, constants: Iterable[str]) -> str:
    rest: Iterator[str] = iter(constants)
    return re.sub(r"\0[^\0]+\0", lambda _: next(rest), key)


def _exchange(part: Any, by: Mapping[str, str], plain: set[int]) -> Any:
    """A part of a query with other constants in its expressions; `plain` takes up parts that have none."""
    if id(part) in plain:
        return part
    out = part
    if isinstance(part, Expr):
        out = _exchange_text(part, by)
    elif type(part) is tuple:
        made = tuple(_exchange(item, by, plain) for item in part)
        out = part if all(x is y for x, y in zip(made, part, strict=True)) else made
    elif is_dataclass(part) and not isinstance(part, type):
        changed = {f.name: _exchange(getattr(part, f.name), by, plain) for f in fields(part) if f.init}
        changed = {name: value for name, value in changed.items() if value is not getattr(part, name)}
        out = replace(part, **changed) if changed else part
    if out is part and not isinstance(part, str | int | None):
        plain.add(id(part))
    return out


def _exchange_text(expr: Expr, by: Mapping[str, str]) -> Expr:
    if not any(mark in expr.spark_template for mark in by):
        return expr
    pattern = re.compile(r"(?<![\d.])(?:" + "|".join(map(re.escape, by)) + r")(?![\d.])")
    text, spark, evaluated = (
        pattern.sub(lambda found: by[found[0]], old) for old in (expr.text, expr.spark_template, expr.duckdb_template)
    )
    return replace(expr, text=text, spark_template=spark, duckdb_template=evaluated)
