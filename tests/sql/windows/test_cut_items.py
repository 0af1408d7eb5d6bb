"""Window items: where they may stand, how spans are written, what they mean."""

import pytest

from watersmeet.errors import ParseError, UnknownNameError, WindowError
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import UNBOUNDED
from watersmeet.sql.parse import parse
from watersmeet.sql.windows.cut_items import cut_items

SECOND = 1_000_000
FROM2 = "SELECT a.k FROM s0 a, s1 b"


@pytest.mark.parametrize(
    ("span", "us"),
    [
        ("10 MINUTES", 600 * SECOND),
        ("1 HOUR 30 MINUTES", 5400 * SECOND),
        ("INTERVAL 10 MINUTES", 600 * SECOND),
        ("INTERVAL '10' MINUTES", 600 * SECOND),
        ("'10 minutes'", 600 * SECOND),
        ("0.5 SECONDS", 500_000),
        ("10s", 10 * SECOND),
        ("5d", 5 * 86_400 * SECOND),
        ("250 ms", 250_000),
        ("250ms", 250_000),
        ("1 week", 7 * 86_400 * SECOND),
    ],
)
def test_spans(joined, span, us):
    for item in (f"WINDOW = {span}", f"WITHIN {span}", f"window (a, b) = {span}"):
        assert joined(f"a.k = b.k {item}").windows.hi("a", "b") == us


@pytest.mark.parametrize(
    "span", ["0 SECONDS", "-1 SECOND", "5", "banana", "", "5 MONTHS", "INTERVAL", "99999999999 WEEKS", "0.1 us"]
)
@pytest.mark.parametrize("head", ["WINDOW = ", "WINDOW (a, b) = ", "DWINDOW (a,b) = "])
def test_bad_spans_name_the_window_and_the_text(joined, head, span):
    with pytest.raises(WindowError, match="window") as error:
        joined(f"a.k = b.k {head}{span}")
    assert span in str(error.value)


@pytest.mark.parametrize("rows", ["0", "-1", "1.5", "x", "", "10 20"])
def test_rows_takes_a_positive_whole_number(bound, rows):
    with pytest.raises(WindowError, match="ROWS takes a positive whole number"):
        bound(f"SELECT a.k FROM s0 a [ROWS {rows}], s1 b WHERE a.k = b.k")


@pytest.mark.parametrize(
    "text",
    [
        f"{FROM2} WHERE a.k = b.k WINDOW = 5 s AND a.v > 1",
        f"{FROM2} WHERE a.k = b.k AND a.v > 1 WINDOW = 5 s",
        f"{FROM2} WHERE a.k = b.k AND WINDOW = 5 s AND a.v > 1",
        f"{FROM2} WHERE a.k = b.k AND a.v > 1 AND WINDOW = 5 s",
        f"{FROM2} WHERE WINDOW (a,b) = 5 s AND a.k = b.k AND a.v > 1",
        f"{FROM2} WINDOW (a,b) = 5 s WHERE a.k = b.k AND a.v > 1",
        f"{FROM2} WINDOW (a,b) = 5 s AND a.v > 1 WHERE a.k = b.k",
        f"{FROM2} WITHIN 5 s AND WINDOW = 6 s WHERE a.k = b.k AND a.v > 1;",
        f"{FROM2} WHERE a.k = b.k WITHIN 5 s WINDOW (b, a) = 7 s AND a.v > 1",
        f"{FROM2} WHERE a.k = b.k AND WITHIN 5 s AND WINDOW = 8 s AND a.v > 1",
        "SELECT a.k FROM s0 a JOIN s1 b ON a.k = b.k WINDOW = 5 s WHERE a.v > 1",
        "SELECT a.k FROM s0 a JOIN s1 b ON WINDOW = 5 s AND a.k = b.k WHERE a.v > 1",
        "SELECT a.k FROM s0 a JOIN s1 b ON a.k = b.k AND WITHIN 5 s AND a.v > 1",
        "select a.k from s0 a, s1 b where a.k = b.k within 5 s and a.v > 1 -- the end",
        "SELECT a.k FROM s0 a, s1 b /* here */ WHERE a.k = b.k -- key\n WINDOW = 5 s -- window\n AND a.v > 1",
    ],
)
def test_an_item_may_stand_before_inside_or_after_the_conditions(bound, text):
    join = bound(text)
    assert [str(p) for p in join.predicates] == ["a.k = b.k"]
    assert [str(f) for f in join.filters] == ["a.v > 1"]
    assert join.windows.show("a", "b") == "|b - a| <= 5 s"


def test_an_item_without_and_closes_the_conditions_before_it(joined):
    join = joined("a.k = b.k OR a.j = b.j WINDOW = 5 s AND a.v > 1")
    assert [str(p) for p in join.predicates] == ["a.k = b.k OR a.j = b.j"]
    assert [str(f) for f in join.filters] == ["a.v > 1"]


@pytest.mark.parametrize(
    "where",
    [
        "a.k = b.k OR WINDOW = 5 s",
        "WINDOW = 5 s OR a.k = b.k",
        "a.k = b.k OR a.v > 1 AND WINDOW = 5 s",
        "NOT WINDOW = 5 s",
        "a.k = b.k WINDOW = 5 s AND a.v > 1 OR a.v < 0",
    ],
)
def test_an_item_under_or_is_refused(joined, where):
    with pytest.raises(WindowError, match="cannot stand"):
        joined(where)


def test_an_item_inside_parentheses_is_refused(joined):
    with pytest.raises(WindowError, match="inside parentheses"):
        joined("(a.k = b.k AND WINDOW = 5 s)")


def test_and_after_an_item_needs_an_operand(joined):
    with pytest.raises(ParseError, match="nothing to its right"):
        joined("a.k = b.k WINDOW = 5 s AND")


@pytest.mark.parametrize(
    ("item", "lo", "hi"),
    [
        ("WINDOW = 5 s", -5, 5),
        ("WITHIN 5 s", -5, 5),
        ("WINDOW (b, a) = 5 s", -5, 5),
        ("DWINDOW (a, b) = 5 s", 0, 5),
        ("DWINDOW (b, a) = 5 s", -5, 0),
        ("WINDOW (A, B) = 5 s", -5, 5),
    ],
)
def test_what_items_mean(joined, item, lo, hi):
    windows = joined(f"a.k = b.k {item}").windows
    assert (windows.lo("a", "b"), windows.hi("a", "b")) == (lo * SECOND, hi * SECOND)


@pytest.mark.parametrize(
    "table",
    [
        "s0 a [RANGE 5 s]",
        "s0 AS a [RANGE 5 s]",
        "s0 [RANGE 5 s] AS a",
        "s0 [RANGE 5 s] a",
        "s0 `a` [range interval '5' seconds]",
    ],
)
def test_range_reaches_every_other_alias(bound, table):
    windows = bound(f"SELECT a.k FROM {table}, s1 b JOIN s2 c ON b.k = c.k WHERE a.k = b.k").windows
    assert windows.hi("a", "b") == windows.hi("a", "c") == 5 * SECOND
    assert windows.hi("b", "a") == windows.hi("b", "c") == UNBOUNDED


def test_brackets_on_joined_tables_and_defaults(bound):
    join = bound("SELECT s0.k FROM s0 [ROWS 7] JOIN s1 AS b [ROWS 3] ON s0.k = b.k JOIN s2 c [RANGE 1 s] ON c.k = b.k")
    assert [(i.alias, i.rows) for i in join.inputs] == [("s0", 7), ("b", 3), ("c", None)]
    assert join.windows.hi("c", "b") == SECOND


@pytest.mark.parametrize(
    "item",
    ["WINDOW (a) = 5 s", "WINDOW (a, b, c) = 5 s", "DWINDOW = 5 s", "WINDOW (a, a) = 5 s", "DWINDOW (b, B) = 5 s"],
)
def test_an_item_names_two_aliases(joined, item):
    with pytest.raises(WindowError, match="window"):
        joined(f"a.k = b.k {item}")


def test_unknown_alias_in_an_item(joined):
    with pytest.raises(UnknownNameError, match=r"no alias 'x'.*a, b"):
        joined("a.k = b.k WINDOW (a, x) = 5 s")


@pytest.mark.parametrize(
    "where",
    [
        "n.window = 5",
        "window = 5",
        "`window` = 5",
        "(window = 5)",
        "window = a.k",
        "5 = window",
        "window BETWEEN 1 AND 5",
    ],
)
def test_a_column_named_window_still_works(bound, where):
    join = bound(f"SELECT n.id FROM nested n, s0 a WHERE n.id = a.k AND {where}")
    assert join.windows.hi("n", "a") == UNBOUNDED
    assert any("window" in str(p) for p in (*join.filters, *join.predicates))


def test_where_a_column_is_named_window_a_span_still_is_an_item(bound):
    assert bound("SELECT n.id FROM nested n, s0 a WHERE n.id = a.k AND window = 5 s").windows.hi("n", "a") == 5 * SECOND


def test_the_function_window_still_works(bound):
    join = bound(
        "SELECT window(a.ts, '5 min') AS w FROM s0 a, s1 b WHERE a.k = b.k AND window(a.ts, '5 min').start = b.ts"
    )
    assert join.select[0].expr.spark_template == "WINDOW({0}, '5 min')"


def test_text_without_items_is_untouched():
    text = "SELECT  *\nFROM a,b -- c\nWHERE x"
    assert cut_items(text).sql == text


def test_unclosed_bracket(bound):
    with pytest.raises(ParseError, match="closing"):
        bound("SELECT a.k FROM s0 a [RANGE 5 s, s1 b WHERE a.k = b.k")


# ---------------------------------------------------------------- PATH

FROM3 = "SELECT a.k FROM s0 a, s1 b, s2 c WHERE a.k = b.k AND b.k = c.k"


@pytest.mark.parametrize(
    ("item", "hops"),
    [
        ("PATH (a, b, c) = 5 s", (5, 5)),
        ("path (A, B, C) = interval '5' seconds", (5, 5)),
        ("PATH (a, b, c) = (5 s)", (5, 5)),
        ("PATH (a, b, c) = (5 s, 1 MINUTE)", (5, 60)),
        ("AND PATH (a, b, c) = (INTERVAL 5 SECONDS, '1 minute 5 seconds') AND a.v > 1", (5, 65)),
        ("PATH (c, b, a) = (60 s, 5 s) WITHIN 1 DAY", (5, 60)),
    ],
)
def test_a_path_has_two_directions(bound, item, hops):
    windows = bound(f"{FROM3} {item}").windows
    ab, bc = (hop * SECOND for hop in hops)
    found = {tuple(g.hi(x, y) for x, y in ("ab", "ba", "bc", "cb", "ac", "ca")) for g in windows.alternatives}
    assert found == {(ab, 0, bc, 0, ab + bc, 0), (0, ab, 0, bc, 0, ab + bc)}
    assert [windows.hi(x, y) for x, y in ("ab", "ba", "bc", "cb", "ac", "ca")] == [ab, ab, bc, bc, ab + bc, ab + bc]


def test_a_path_of_one_hop_is_a_window(joined):
    windows = joined("a.k = b.k PATH (a, b) = 5 s").windows
    assert windows.show("a", "b") == "|b - a| <= 5 s"
    assert windows.alternatives == ()


def test_other_items_hold_in_both_directions(bound):
    windows = bound(f"{FROM3} PATH (a, b, c) = 5 s AND WINDOW (a, c) = 7 s").windows
    assert [way.hi("a", "c") for way in windows.alternatives] == [7 * SECOND, 0]
    assert [way.hi("c", "a") for way in windows.alternatives] == [0, 7 * SECOND]


@pytest.mark.parametrize("other", ["AND b.ts > a.ts", "DWINDOW (a, c) = 1 HOUR AND b.ts <> a.ts AND a.ts < c.ts"])
def test_a_direction_that_nothing_can_take_is_left_out(bound, other):
    windows = bound(f"{FROM3} PATH (a, b, c) = 5 s {other}").windows
    assert windows.alternatives == ()
    assert windows.lo("a", "b") >= 0


def test_two_paths_have_four_alternatives_less_those_that_others_hold(bound):
    windows = bound(f"{FROM3} PATH (a, b, c) = 5 s AND PATH (b, a, c) = 3 s").windows
    assert 1 < len(windows.alternatives) <= 4
    assert not any(g.within(h) for g in windows.alternatives for h in windows.alternatives if g is not h)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("PATH (a, b, a) = 5 s", r"PATH \(a, b, a\).*visits 'a' twice.*second alias"),
        ("PATH (a) = 5 s", r"names 1 alias.*PATH \(a, b, c\) = 10 SECONDS"),
        ("PATH = 5 s", "names no aliases"),
        ("PATH (a, b, c) = (5 s, 6 s, 7 s)", "3 bounds for 2 hops"),
        ("PATH (a, b, c) = 5", "not a span of time"),
        ("PATH (a, b, c) = (5 s, 0 s)", "zero"),
        ("PATH (a, b, c) = ()", "not a span of time"),
        ("AND (b.v > 1 OR PATH (a, b, c) = 5 s)", "inside parentheses"),
        ("AND b.v > 1 OR PATH (a, b, c) = 5 s", "cannot stand under OR"),
        ("PATH (a, b, c) = 5 s AND a.ts < b.ts AND b.ts > c.ts", "unsatisfiable window.*PATH"),
        (" AND ".join(["PATH (a, b, c) = 5 s"] * 4), "4 PATHs in one query: 3 are supported.*DWINDOW"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused(bound, item, message):
    with pytest.raises(WindowError, match=message):
        bound(f"{FROM3} {item}")


def test_unknown_alias_in_a_path(bound):
    with pytest.raises(UnknownNameError, match=r"no alias 'x'.*a, b, c"):
        bound(f"{FROM3} PATH (a, x, c) = 5 s")


def test_the_bounds_of_a_path_must_be_closed(bound):
    with pytest.raises(ParseError, match=r"no closing \)"):
        bound(f"{FROM3} PATH (a, b, c) = (5 s, 6 s WHERE a.k = b.k")


@pytest.mark.parametrize("where", ["p.path = 'x'", "path = '5 s'", "`path` = 'x'", "path LIKE '/a%'", "'x' = path"])
def test_a_column_named_path_still_works(where):
    schema = {"k": "bigint", "path": "string", "ts": "timestamp"}
    specs = {
        "pages": StreamSpec("pages", schema, time="ts"),
        "s": StreamSpec("s", {"k": "bigint", "ts": "timestamp"}, time="ts"),
    }
    join = parse(f"SELECT p.path FROM pages p, s WHERE p.k = s.k AND {where}", specs)
    assert any("path" in str(f) for f in join.filters)
