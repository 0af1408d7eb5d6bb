"""Every value of every type comes out as it went in, on every runtime: hostile values, alone and inside others, compared by Spark's own SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.streams import feed
from watersmeet.columns.retype import retype_table
from watersmeet.errors import UnsupportedError
from watersmeet.runtime.spark.types import type_name
from watersmeet.runtime.spark.versions import INSTALLED, arrow_schema

pytestmark = pytest.mark.spark

ZONE = "America/New_York"
TIMES = (
    "timestamp_micros(-188395027200000000)", "timestamp_micros(569000000000000000)", "timestamp_micros(9223372036854775807)",
    "timestamp_micros(-9223372036854775807 - 1)", "timestamp'1500-02-28 12:00:00.000001'", "timestamp'2026-11-01 01:30:00'",
)  # fmt: skip
"""Years -4000, 20000, the last and the first there are, one before 1582, and an hour that comes twice in ZONE."""
WALLS = tuple(
    f"timestamp_ntz'{t}'"
    for t in ("-4000-01-01", "+20000-01-01 23:59:59.999999", "1500-02-28", "+294247-01-10 04:00:54.775807")
)
NUMBERS = ("double('NaN')", "-0.0D", "double('Infinity')", "double('-Infinity')", "4.9E-324D")
SINGLES = ("float('NaN')", "float('-0.0')", "float('Infinity')", "float('-Infinity')", "float('1.4E-45')")
DAYS = tuple(f"date_from_unix_date({n})" for n in (-719162, -141430, -2500000, 5000000, -2147483648, 2147483647))
FLAT = {
    "number": NUMBERS,
    "single": SINGLES,
    "text": ("''", "concat('a', char(0), 'b')", "'😀é'", "CAST(X'FF00C3' AS string)"),
    "decimal": ("99999999999999999999.999999999999999999BD", "-0.000000000000000001BD", "CAST(0 AS decimal(38,18))"),
    "day": DAYS,
    "time": TIMES,
    "wall": WALLS,
    "bytes": ("X''", "X'00FF'"),
    "truth": ("true", "false"),
    "tiny": ("-128Y", "127Y"),
    "small": ("-32768S", "32767S"),
    "int": ("-2147483647 - 1", "2147483647"),
    "big": ("-9223372036854775807L - 1", "9223372036854775807L", "9007199254740993L"),
    "span": tuple(f"INTERVAL '{s}' DAY TO SECOND" for s in ("-106751991 04:00:54.775808", "106751991 04:00:54.775807")),
    "hours": ("INTERVAL '3' HOUR",),
    "nothing": ("NULL",),
    **({"clock": ("TIME'23:59:59.999999'", "TIME'00:00:00'")} if INSTALLED >= (4, 1) else {}),
}  # fmt: skip
"""SQL of values by the name of a column. A text need not be UTF-8 to Spark."""


def _list(items: Sequence[str]) -> str:
    return f"array({', '.join(items)}, NULL)"


def _map(items: Sequence[str]) -> str:
    return f"map({', '.join(f'{x}, {x}' for x in items)})"


STRUCTS = {
    "struct": tuple(f"named_struct('d', {d}, 't', {t}, 's', '')" for d, t in zip(NUMBERS, TIMES, strict=False)),
    "odd": ("named_struct('a b', 1, 'x:y', double('NaN'), '`q`', 'z', 'größe', array(-0.0D))",),
    "cased": ("named_struct('a', double('NaN'), 'A', 2)",),
    "empty": ("named_struct()",),
    "deep": (f"named_struct('a', named_struct('b', array(named_struct('c', float('NaN'), 't', {_list(WALLS)}))))",),
}
LISTS = {
    **{f"{name}s": (_list(items), f"filter({_list(items)}, x -> false)") for name, items in (FLAT | STRUCTS).items()},
    "lists": (f"array({_list(NUMBERS)}, NULL, array())",),
}
MAPS = {
    "plain": ("map('a', double('NaN'), 'b', NULL)", "map_filter(map('a', 1D), (k, v) -> false)"),
    **{f"by_{name}": (_map(FLAT[name]),) for name in ("number", "single", "day", "time", "wall", "text", "bytes")},
    "by_struct": (f"map(named_struct('a', 1), {_list(NUMBERS)})",),
}
MAP_LISTS = {"maps": (f"array(map('k', {_list(TIMES)}), NULL)",)}
VARIANTS = {"variant": ("""parse_json('{"a": [1, null, 1.5e300, "é"]}')""", "parse_json('null')")}
POINT = "X'0101000000000000000000F03F0000000000000040'"
PLACES = {"place": (f"st_geogfromwkb({POINT})",), "spot": (f"st_geomfromwkb({POINT})",)} if INSTALLED >= (4, 1) else {}
SHOWN = (
    (FLAT | STRUCTS | LISTS, ("{0}", "CAST({0} AS string)")),
    (MAPS, ("map_entries({0})", "CAST({0} AS string)")),
    (MAP_LISTS, ("transform({0}, m -> map_entries(m))",)),
    (VARIANTS, ("to_json({0})",)),
    (PLACES, ("st_asbinary({0})", "st_srid({0})")),
)
"""What Spark compares values as: the text tells 0.0 from -0.0."""
VALUES = {name: items for group, _ in SHOWN for name, items in group.items()}
ROWS = 2 + max(map(len, VALUES.values()))
"""All values, and NULLs."""
ON = f"a.k = b.k AND a.k < {ROWS - 1}"
"""The last row has no partner, for a reason of its own."""


def text_of(names: Iterable[str]) -> str:
    columns = ", ".join(f"a.{n}, b.{n} AS {n}_2" for n in names)
    return f"SELECT a.k, {columns} FROM s a LEFT JOIN t b ON {ON} WITHIN 1 SECOND"


@pytest.fixture
def zoned(spark: Any) -> Iterator[Any]:
    """The session in ZONE, with all types."""
    settings = {
        "spark.sql.session.timeZone": ZONE,
        "spark.sql.timeType.enabled": "true",
        "spark.sql.geospatial.enabled": "true",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rows_of(keys: DataFrame) -> DataFrame:
    """Rows with values of all types, by their keys."""
    cases = {name: " ".join(f"WHEN {n} THEN {x}" for n, x in enumerate(items)) for name, items in VALUES.items()}
    return keys.select("k", "ts", *(F.expr(f"CASE k {whens} END").alias(name) for name, whens in cases.items()))


def write_keys(spark: Any, folder: Path) -> str:
    keys = spark.range(ROWS).selectExpr("id AS k", "timestamp_seconds(1767225600 + id) AS ts")
    keys.coalesce(1).write.parquet(str(folder / "keys"))
    return str(folder / "keys")


def expected_rows(keys: DataFrame) -> DataFrame:
    """What Spark's own join of static frames makes of the query, made once: Spark fails to plan a variant that is extracted after a self-join."""
    a, b = rows_of(keys).alias("a"), rows_of(keys).alias("b")
    pairs = ((F.col(f"a.{n}").alias(n), F.col(f"b.{n}").alias(f"{n}_2")) for n in VALUES)
    joined = a.join(b, F.expr(ON), "left").select("a.k", *(column for pair in pairs for column in pair))
    return joined.localCheckpoint()


def with_nulls(rows: DataFrame) -> DataFrame:
    """The rows in types whose parts may be NULL."""
    return rows.select(*(F.col(f.name).cast(type_name(f.dataType)).alias(f.name) for f in rows.schema))


def find_wrong(rows: DataFrame, expected: DataFrame) -> dict[int, list[str]]:
    """By key the columns that differ."""
    assert [f.dataType.simpleString() for f in rows.schema] == [f.dataType.simpleString() for f in expected.schema]
    tests = []
    for name in rows.columns[1:]:
        shown = next(shown for group, shown in SHOWN if name.removesuffix("_2") in group)
        same = " AND ".join(f"({text.format(f'r.{name}')} <=> {text.format(f'e.{name}')})" for text in shown)
        tests.append(f"CASE WHEN NOT ({same}) THEN '{name}' END")
    joined = rows.alias("r").join(expected.alias("e"), F.expr("r.k = e.k"))
    found = joined.selectExpr("r.k", f"filter(array({', '.join(tests)}), x -> x IS NOT NULL) AS wrong").collect()
    return {row.k: row.wrong for row in found}


@pytest.mark.parametrize(
    "runtime", ["static", "rounds", *(pytest.param(r, marks=pytest.mark.thorough) for r in ("stream", "shuffled"))]
)
def test_hostile_values_of_every_type_come_out_as_they_went_in(zoned: Any, tmp_path: Path, runtime: Any) -> None:
    path = write_keys(zoned, tmp_path)
    keys, found = zoned.read.parquet(path), dict[int, list[str]]()
    expected = expected_rows(keys)
    if runtime == "static":
        streams = {name: wm.Stream(rows_of(keys), time="ts") for name in "st"}
        found = find_wrong(wm.sql(text_of(VALUES), **streams).dataframe(), expected)
    else:
        new = zoned.readStream.schema(keys.schema).parquet(path)
        query = wm.sql(text_of(VALUES), **{name: wm.Stream(rows_of(new), time="ts") for name in "st"})
        feed(query, tmp_path / "ck", lambda rows, _: found.update(find_wrong(rows, expected)), runtime)
    assert found == {k: [] for k in range(ROWS)}


def test_hostile_values_come_out_of_the_local_runtime_as_they_went_in(zoned: Any, tmp_path: Path) -> None:
    """Without variants and places: to Arrow these are structs. Spark itself hands NULL structs to Arrow only if their fields may be NULL."""
    keys, others = zoned.read.parquet(write_keys(zoned, tmp_path)), VARIANTS | PLACES
    expected = with_nulls(expected_rows(keys).drop(*others, *(f"{n}_2" for n in others)))
    given = with_nulls(rows_of(keys).drop(*others)).toArrow()
    names = [n for n in VALUES if n not in others]
    out = wm.local.run(text_of(names), {"s": given, "t": given}, timezone=ZONE)
    back = zoned.createDataFrame(retype_table(out, arrow_schema(expected.schema)), expected.schema)
    assert find_wrong(back, expected) == {k: [] for k in range(ROWS)}


STUCK = {
    "INTERVAL '1-2' YEAR TO MONTH": "is interval year to month, which Spark does not hand to Python workers: make whole numbers of it",
    "array(make_interval(1, 2))": "is array<interval>, which .* make whole numbers of it, such as months, or text, in the stream's source",
    "map('k', named_struct('a', 1, 'a', 2))": "rename one of the fields 'a' in the stream's source",
}


@pytest.mark.parametrize("value", STUCK)
def test_what_units_cannot_hold_is_refused_when_a_query_is_bound_on_it(spark: Any, value: str) -> None:
    """It may stand in a filter or in an expression that Spark evaluates over one stream, and in late rows it is a text."""
    rows = spark.range(3).selectExpr("id AS k", "if(id = 2, NULL, timestamp_seconds(id)) AS ts", f"{value} AS v")
    streams = {name: wm.Stream(rows, time="ts") for name in "st"}
    with pytest.raises(UnsupportedError, match=rf"^a\.v .*{STUCK[value]}"):
        wm.sql("SELECT a.k, a.v FROM s a JOIN t b ON a.k = b.k WITHIN 1 SECOND", **streams)
    query = wm.sql("SELECT a.k FROM s a JOIN t b ON a.k = b.k WITHIN 1 SECOND WHERE a.v IS NOT NULL", **streams)
    assert sorted(r.k for r in query.dataframe(late=True).collect() if r.k is not None) == [0, 1]
    assert [r.reason for r in query.late().collect()] == ["no time"] * 2
    with pytest.raises(UnsupportedError, match=r"^a\.v is"):
        wm.sql(
            "SELECT a.k FROM s a JOIN t b ON a.k = b.k AND (a.v IS NULL OR b.k > a.k) WITHIN 1 SECOND", **streams
        ).explain()
