"""Hypothesis strategies for `Case`: query and data drawn together.

The data favours what breaks joins: equal times, differences exactly at a window's edge or one microsecond off it,
duplicates, NULL, NaN, -0.0, integers that a double cannot tell apart, empty streams, one key for nearly all rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from tests import oracle
from tests.cases import (
    BASE_US,
    SECOND,
    Agg,
    All,
    Case,
    Col,
    Data,
    Expression,
    Interval,
    Op,
    Pair,
    Path,
    Range,
    Window,
    op,
)

NAN, BIG = math.nan, 2**53
ROWS_AT_MOST = {2: 25, 3: 14, 4: 8}

# ---------------------------------------------------------------- data

KEYS = (0, 0, 0, 0, 0, 1, 2, None, BIG, BIG + 1)
SMALL = (0, 0, 0, 0, 1, 1, 2, -1, None)
FLOATS = (0.0, 0.0, -0.0, -0.0, 1.0, NAN, NAN, None, float(BIG))
VALUES = (0.0, 1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 0.1 + 0.2, -0.0, -1.0, None, NAN, math.inf)
NAMES = ("x", "x", "x", "X", "x ", "", "é", None)


YEAR = 31_556_952 * SECOND
FIRST_ERA, LAST_ERA = -(2**63) + 20 * SECOND - BASE_US, 2**63 - 20 * SECOND - BASE_US
"""As early and as late as 64 bits allow."""
ERAS = (
    *[(0,)] * 6, (0, 0, 0, 7976 * YEAR), (7975 * YEAR,), (0, -6024 * YEAR), (247_976 * YEAR, 0, -6024 * YEAR),
    (LAST_ERA,), (FIRST_ERA,), (FIRST_ERA, 0, LAST_ERA),
)  # fmt: skip
"""How far from 2024 the rows of a case lie; 10000, 9999, -4000 and 250000 are among the years."""


def times(*, null: bool = False, eras: tuple[int, ...] = (0,)) -> st.SearchStrategy[int | None]:
    """Whole seconds, mostly; one microsecond off, sometimes."""
    off = st.sampled_from((0, 0, 0, 0, 0, 1, -1))
    near = st.builds(lambda s, off, era: s * SECOND + off + era, st.integers(0, 7), off, st.sampled_from(eras))
    return st.one_of(near, near, near, st.none()) if null else near


@st.composite
def data(draw: Any, most: int, *, null_ts: bool = False, unique_ts: bool = False, eras: tuple[int, ...] = (0,)) -> Data:
    """A plain table's rows; `id` numbers them, or leaves room for duplicates."""
    row = st.tuples(*map(st.sampled_from, (KEYS, SMALL, FLOATS, VALUES, NAMES)), times(null=null_ts, eras=eras))
    least = draw(st.sampled_from((0, most // 2, most // 2, most, most)))
    if unique_ts:
        least = min(least, 6)
    unique = {"unique_by": lambda r: object() if r[-1] is None else r[-1]} if unique_ts else {}
    rows = draw(st.lists(row, min_size=least, max_size=most, **unique))
    if draw(st.booleans()):
        rows = [row for row in rows for _ in range(draw(st.sampled_from((1, 1, 1, 2))))] if not unique_ts else rows
        return Data(tuple((0, *row) for row in rows[:most]))
    return Data(tuple((i, *row) for i, row in enumerate(rows)))


@st.composite
def shuffled(draw: Any, case: Case) -> Case:
    """The same rows in another order of arrival."""
    return replace(
        case, data=tuple((name, replace(d, rows=tuple(draw(st.permutations(d.rows))))) for name, d in case.data)
    )


@st.composite
def with_lateness(draw: Any, case: Case, *, idle: bool = False, ahead: bool = False) -> Case:
    """The same rows with a declared lateness that may be too small for their disorder; `ahead`: and a bound on how far ahead they may be."""
    spans = st.sampled_from((0, 1, SECOND, 2 * SECOND, 5 * SECOND))
    silent = st.none() | st.sampled_from((0, SECOND, 4 * SECOND)) if idle else st.none()
    bounds = st.none() | st.sampled_from((0, SECOND, 3 * SECOND)) if ahead else st.none()
    return replace(
        case,
        data=tuple(
            (name, replace(d, lateness_us=draw(spans), idle_us=draw(silent), max_ahead_us=draw(bounds)))
            for name, d in case.data
        ),
    )


# ---------------------------------------------------------------- conditions


def keys(x: str, y: str) -> st.SearchStrategy[list[Op]]:
    """One or more equalities between two aliases."""
    same = [[op("=", Col(x, c), Col(y, c))] for c in ("k", "n", "f", "name")]
    mixed = [[op("=", Col(x, "k"), Col(y, "f"))], [op("=", Col(x, "f"), Col(y, "k"))]]
    composite = [same[0] + same[1], same[2] + same[3], same[1] + mixed[0]]
    computed = [
        [op("=", op("+", Col(x, "n"), 1), Col(y, "n"))],
        [op("=", op("%", Col(x, "n"), 2), op("%", Col(y, "n"), 2))],
        [op("=", op("lower", Col(x, "name")), op("lower", Col(y, "name")))],
        [op("=", op("coalesce", Col(x, "n"), 0), op("coalesce", Col(y, "n"), 0))],
    ]
    return st.sampled_from(same + same + mixed + composite + computed)


def theta(x: str, y: str) -> st.SearchStrategy[Op]:
    """A condition across two aliases without an equality of keys."""
    v, w, n, m = Col(x, "v"), Col(y, "v"), Col(x, "n"), Col(y, "n")
    comparisons = [op(c, left, right) for c in ("<", "<=", ">", ">=", "<>") for left, right in ((v, w), (n, m))]
    shifted = [
        op("<", v, op("+", w, 1)),
        op(">=", op("*", n, 2), m),
        op("<=", n, w),
        op("<", Col(x, "name"), Col(y, "name")),
    ]
    bands = [op("<=", op("abs", op("-", left, right)), c) for left, right in ((v, w), (n, m)) for c in (0, 1)]
    bands += [
        op("<=", op("abs", op("-", v, w)), 0.1),
        op("<", op("abs", op("-", v, w)), 1),
        op("between", op("-", v, w), -1, 0.1),
    ]
    bands += [
        op("between", v, op("-", w, 1), op("+", w, 0.1)),
        op("between", n, op("-", m, 1), op("+", m, 1)),
        op(">=", op("-", v, w), -1),
    ]
    arithmetic = [
        op(">", op("+", v, w), 3),
        op("<=", op("*", n, m), 1),
        op("=", op("-", n, m), 0),
        op("=", op("+", n, m), Col(x, "k")),
    ]
    logic = [
        op("or", op("<", v, w), op("=", n, m)),
        op("not", op("=", n, m)),
        op("and", op("<=", v, w), op("<>", n, m)),
        op("or", op("is null", v), op("=", v, w)),
        op("or", op("<", Col(x, "ts"), Col(y, "ts")), op("=", n, m)),
    ]
    return st.sampled_from(comparisons + shifted + bands + bands + arithmetic + logic)


def across_three(x: str, y: str, z: str) -> st.SearchStrategy[Op]:
    n, m, o = Col(x, "n"), Col(y, "n"), Col(z, "n")
    v, w, u = Col(x, "v"), Col(y, "v"), Col(z, "v")
    return st.sampled_from(
        [
            op("<=", op("+", n, m), o),
            op("=", n, op("+", m, o)),
            op(">", op("+", v, w), u),
            op("or", op("=", n, m), op("<", m, o)),
            op("between", v, w, u),
        ]
    )


def filters(x: str) -> st.SearchStrategy[Op]:
    """A condition on one alias, or on none."""
    v, n, name = Col(x, "v"), Col(x, "n"), Col(x, "name")
    return st.sampled_from(
        [op(">", v, 0), op("<=", v, 2), op("=", n, 1), op("=", Col(x, "k"), n), op("is not null", name), op("is null", v), op("=", name, "x"),
         op("<>", name, ""), op("not", op("=", n, 0)), op("or", op(">", n, 0), op("is null", n)), op("=", 1, 1)]
    )  # fmt: skip


@st.composite
def links(draw: Any, names: tuple[str, ...], equality: bool | None) -> list[Op]:
    """Conditions that connect all aliases: a chain or a star of keys, one key for all, or no key at all."""
    shape = draw(st.sampled_from(("chain", "star", "shared", "redundant", "theta")))
    if equality is not None:
        shape = "theta" if not equality else "chain" if shape == "theta" else shape
    edges = [(names[0] if shape == "star" else names[i], names[i + 1]) for i in range(len(names) - 1)]
    if shape == "shared":
        column = draw(st.sampled_from(("k", "name", "f", "n")))
        return [op("=", Col(x, column), Col(y, column)) for x, y in edges]
    if shape == "redundant":
        edges = list(combinations(names, 2))
    if shape == "theta":
        return [draw(theta(x, y)) for x, y in edges]
    mixed = equality is None and draw(st.integers(0, 3)) == 3
    return [p for x, y in edges for p in ([draw(theta(x, y))] if mixed and draw(st.booleans()) else draw(keys(x, y)))]


@st.composite
def residuals(draw: Any, names: tuple[str, ...]) -> list[Expression]:
    found: list[Expression] = []
    if draw(st.booleans()):
        x, y = draw(st.permutations(names))[:2]
        found.append(draw(theta(x, y)))
    if len(names) > 2 and draw(st.integers(0, 3)) == 3:
        found.append(draw(across_three(*draw(st.permutations(names))[:3])))
    if draw(st.integers(0, 2)) == 2:
        found.append(draw(filters(draw(st.sampled_from(names)))))
    return found


# ---------------------------------------------------------------- windows

SPANS = st.sampled_from((2 * SECOND, SECOND, SECOND, 2 * SECOND, 3 * SECOND, 5 * SECOND, 1_500_000, 1))
FORMS = ("all", "pairs", "partial", "directed", "range", "interval", "mixed", "path", "none")


@st.composite
def interval(draw: Any, x: str, y: str) -> Interval:
    ends = sorted((draw(st.integers(-3, 3)) * SECOND, draw(st.integers(-3, 3)) * SECOND))
    lo, hi = draw(
        st.sampled_from(
            ((ends[0], ends[1]), (ends[0], ends[1]), (0, None), (None, 0), (ends[0], None), (None, ends[1]))
        )
    )
    strict = draw(st.booleans()) and not (lo is not None and lo == hi)
    return Interval(x, y, lo, hi, strict)


@st.composite
def paths(draw: Any, names: tuple[str, ...]) -> list[Window]:
    """One path through some or all aliases, mostly; two, or one beside another window, sometimes."""
    order = tuple(draw(st.permutations(names)))
    stops = order if draw(st.integers(0, 3)) else order[: draw(st.integers(2, len(order)))]
    hops = tuple(draw(SPANS) for _ in stops[1:])
    found: list[Window] = [Path(stops, hops if draw(st.booleans()) else hops[:1] * len(hops))]
    more = draw(st.sampled_from(("", "", "", "path", "WINDOW", "DWINDOW", "BETWEEN", "WITHIN")))
    x, y = draw(st.permutations(names))[:2]
    if more == "path":
        again = tuple(draw(st.permutations(names)))
        found.append(Path(again, tuple(draw(SPANS) for _ in again[1:])))
    elif more == "WITHIN":
        found.append(All(more, draw(SPANS)))
    elif more:
        found.append(draw(interval(x, y)) if more == "BETWEEN" else Pair(more, x, y, draw(SPANS)))
    return found


@st.composite
def windows(draw: Any, names: tuple[str, ...], forms: tuple[str, ...] = FORMS) -> list[Window]:
    """Any surface form; the intervals alone can contradict one another."""
    form = draw(st.sampled_from(forms))
    pairs = [tuple(draw(st.permutations(pair))) for pair in combinations(names, 2)]
    if form == "all":
        return [All(draw(st.sampled_from(("WINDOW", "WITHIN"))), draw(SPANS))]
    if form == "range":
        return [Range(x, draw(SPANS)) for x in names if draw(st.integers(0, 3)) < 3]
    if form == "none":
        return []
    if form == "path":
        return draw(paths(names))
    some = pairs if form == "pairs" else [pair for pair in pairs if draw(st.booleans())] or pairs[:1]
    kinds = {
        "pairs": ("WINDOW",),
        "partial": ("WINDOW",),
        "directed": ("DWINDOW",),
        "interval": ("BETWEEN",),
        "mixed": ("WINDOW", "DWINDOW", "BETWEEN"),
    }[form]
    found: list[Window] = []
    for x, y in some:
        kind = draw(st.sampled_from(kinds))
        found.append(draw(interval(x, y)) if kind == "BETWEEN" else Pair(kind, x, y, draw(SPANS)))
    return found


# ---------------------------------------------------------------- cases


@st.composite
def selected(draw: Any, names: tuple[str, ...]) -> tuple[Expression, ...]:
    """The ids, and an expression or two."""
    x, y = draw(st.permutations(names))[:2]
    extra = [
        op("+", Col(x, "n"), 1),
        op("-", Col(x, "v"), Col(y, "v")),
        op("coalesce", Col(y, "name"), "none"),
        Col(x, "f"),
        Col(y, "ts"),
        op("lower", Col(x, "name")),
    ]
    return (*(Col(x, "id") for x in names), *draw(st.lists(st.sampled_from(extra), max_size=2)))


@st.composite
def cases(
    draw: Any,
    *,
    equality: bool | None = None,
    rows: bool = False,
    null_ts: bool = False,
    forms: tuple[str, ...] = FORMS,
    satisfiable: bool = True,
    aliases: int | None = None,
    far: bool = True,
) -> Case:
    """A query with its data; `equality` demands or forbids keys, `rows` puts [ROWS n] or [TUMBLING n ROWS] on some alias, `far` lets times be of any year."""
    eras = draw(st.sampled_from(ERAS)) if far else (0,)
    names = ("a", "b", "c", "d")[: aliases or draw(st.sampled_from((2, 2, 3, 3, 4)))]
    places = draw(st.sampled_from((range(4), range(4), (0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0), (1, 0, 0, 2))))
    placed = tuple((alias, f"s{i}") for alias, i in zip(names, places, strict=False))
    used = dict.fromkeys(stream for _, stream in placed)
    found = draw(windows(names, forms))
    if satisfiable and not _satisfiable(names, found):
        found = [w for w in found if not isinstance(w, Interval)]
    counted = tuple((x, draw(st.integers(1, 4))) for x in names if draw(st.booleans())) if rows else ()
    if rows and not counted:
        counted = ((names[0], 2),)
    found = [w for w in found if not (isinstance(w, Range) and w.alias in dict(counted))]
    blocks = frozenset(x for x, _ in counted if draw(st.booleans()))
    ordered = {dict(placed)[x] for x, _ in counted}
    return Case(
        aliases=placed,
        predicates=(*draw(links(names, equality)), *draw(residuals(names))),
        windows=tuple(found),
        select=draw(selected(names)),
        data=tuple(
            (s, draw(data(ROWS_AT_MOST[len(names)], null_ts=null_ts, unique_ts=s in ordered, eras=eras))) for s in used
        ),
        rows=counted,
        tumbling=blocks,
        style=draw(st.sampled_from(("comma", "join", "first"))),
    )


@st.composite
def repeated(draw: Any, names: tuple[str, ...], least: int) -> tuple[Expression, ...]:
    """Columns and expressions of few values: many results have the same."""
    x, y = draw(st.permutations(names))[:2]
    few = [
        *(Col(x, c) for c in ("k", "n", "f", "name")),
        Col(y, "f"),
        op("%", Col(y, "n"), 2),
        op("coalesce", Col(y, "name"), "none"),
        op("*", Col(x, "n"), Col(y, "n")),
        Col(y, "ts"),
    ]
    return tuple(draw(st.lists(st.sampled_from(few), min_size=least, max_size=3, unique=True)))


@st.composite
def aggregates(draw: Any, names: tuple[str, ...]) -> tuple[Agg, ...]:
    """One or more, of columns and of expressions of one or two aliases."""
    x, y = draw(st.permutations(names))[:2]
    numbers = [
        Col(x, "k"),
        Col(y, "v"),
        Col(x, "n"),
        op("*", Col(x, "n"), Col(y, "n")),
        op("+", Col(x, "v"), Col(y, "n")),
    ]
    anything = [*numbers, Col(x, "name"), Col(y, "ts"), Col(y, "f"), op("lower", Col(x, "name"))]
    of_numbers = st.builds(Agg, st.sampled_from(("sum", "avg")), st.sampled_from(numbers))
    of_anything = st.builds(Agg, st.sampled_from(("count", "min", "max")), st.sampled_from(anything))
    return tuple(draw(st.lists(st.one_of(of_numbers, of_anything, st.just(Agg("count"))), min_size=1, max_size=4)))


@st.composite
def distinct_cases(draw: Any, **options: Any) -> Case:
    """SELECT DISTINCT of columns that repeat."""
    case = draw(cases(**options))
    return replace(case, select=draw(repeated(case.names, 1)), distinct=True)


@st.composite
def grouped_cases(draw: Any, **options: Any) -> Case:
    """GROUP BY, or aggregates of everything."""
    case = draw(cases(**options))
    return replace(case, select=draw(repeated(case.names, 0)), aggregates=draw(aggregates(case.names)))


def _satisfiable(names: tuple[str, ...], found: list[Window]) -> bool:
    try:
        oracle.widest(Case(tuple((x, x) for x in names), (), tuple(found), (), ()).query())
    except oracle.Unsatisfiable:
        return False
    return True


BATCHES = st.sampled_from((1, 2, 3, 7, 1000))
