"""Expressions by family, as data: what every runtime is compared with Spark on, in several time zones, with ANSI mode on and off.

Names without an alias: the columns of stream `one` and of stream `two` differ, so each is known by its name alone.

          whole numbers   floats   decimals           text   truth   timestamp   date   timestamp_ntz
    one   t h i l         f d      x (10,2)           s      b       p           n      z
    two   j m             e        y (12,4)           u      c       q           o      w

None of them raises over `pairs`; what raises is tried over the edge values (tests/sql/evaluator/edge_values.py).
"""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from watersmeet.columns.spark_types import spark_name
from watersmeet.query.stream import StreamSpec
from watersmeet.sql.parse import parse

ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia")
"""Two that change by an hour on different days, one that changes by half an hour, one with a half hour, one that lost a day."""

_TIME_FIELDS = ("year", "quarter", "month", "day", "dayofmonth", "hour", "minute", "second", "dayofweek", "weekday", "dayofyear", "weekofyear")  # fmt: skip
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
_LITERALS = ("2024-03-10 02:30:00", "2024-03-31 02:30:00", "2024-11-03 01:30:00", "2024-10-27 02:30:00", "2024-10-06 02:15:00", "2024-04-07 01:45:00", "2011-12-30 12:00:00")  # fmt: skip

FIELDS = (
    *(f"{f}(p)" for f in _TIME_FIELDS),
    *(f"{f}(n)" for f in _TIME_FIELDS if f not in ("hour", "minute", "second")),
    *(f"{f}(z)" for f in ("year", "month", "day", "hour", "minute", "second", "dayofweek")),
    "extract(HOUR FROM p)", "extract(YEAR FROM n)", "date_part('day', q)", "hour(p) + hour(q)", "hour(p) * 60 + minute(p)", "last_day(n)",
    "unix_timestamp(p)", "unix_date(n)", "unix_micros(p)", "unix_millis(p)", "unix_seconds(p)", "unix_seconds(p) div 10 = unix_seconds(q) div 10", "date_format(p, 'yyyy-MM-dd HH:mm')", "from_unixtime(l)", "timestamp_seconds(l)",
)  # fmt: skip
TRUNCATED = (
    *(f"date_trunc('{u}', p)" for u in _UNITS),
    *(f"date_trunc('{u}', q)" for u in ("day", "hour", "week")),
    "date_trunc('DAY', z)", "date_trunc('hour', n)", "trunc(n, 'month')", "trunc(p, 'year')",
    "date_trunc('day', p) = date_trunc('day', q)", "date_trunc('hour', p) < q",
)  # fmt: skip
SHIFTED = (
    "p + INTERVAL 1 DAY", "p - INTERVAL 1 DAY", "p + INTERVAL 24 HOURS", "p - INTERVAL 90 MINUTES", "INTERVAL 2 DAYS + p", "p + INTERVAL 1 WEEK",
    "p + INTERVAL '1 02:03:04.5' DAY TO SECOND", "p - INTERVAL 1 DAY 3 HOURS", "p + (INTERVAL 1 HOUR - INTERVAL 1 MINUTE)", "p + INTERVAL 25 HOURS",
    "q + INTERVAL '0.5' SECOND", "p + INTERVAL 1 MONTH", "p - INTERVAL 1 YEAR", "z + INTERVAL 1 DAY", "z - INTERVAL 30 MINUTES", "n + INTERVAL 3 DAYS",
    "date_add(n, 3)", "date_sub(n, 1)", "add_months(n, 1)", "n + 1", "n - 1", "datediff(n, o)", "months_between(p, q)", "n - o", "p - q", "q - p", "z - w", "p - z",
    "timestampdiff(HOUR, p, q)", "timestampadd(DAY, 1, p)", "date_diff(n, o) + 1",
)  # fmt: skip
TIME_CONDITIONS = (
    *(f"p {op} q" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
    *(f"p < TIMESTAMP '{t}'" for t in _LITERALS), *(f"q >= TIMESTAMP '{t}'" for t in _LITERALS[:3]),
    *(f"z <= TIMESTAMP_NTZ '{t}'" for t in _LITERALS[:3]),
    "p < q - INTERVAL 90 MINUTES", "q <= p + INTERVAL 1 DAY", "q BETWEEN p AND p + INTERVAL 24 HOURS", "q - p <= INTERVAL 1 HOUR", "p - q > INTERVAL 1 DAY",
    "q - p BETWEEN INTERVAL -1 DAY AND INTERVAL 1 DAY", "p = z", "z < p", "z <=> w", "n = o", "n < o", "n <= p", "p > n", "z >= n", "p = o", "n - o <= INTERVAL 2 DAYS", "abs(datediff(n, o)) <= 3", "n - o BETWEEN INTERVAL -1 DAY AND INTERVAL 36 HOURS", "n < DATE '2024-03-31'", "p < DATE '2024-03-31'",
    "n = '2024-03-31'", "p > '2024-03-31 02:30:00'", "p IN (TIMESTAMP '2024-11-03 01:30:00', q)", "n IN (o, DATE '2024-03-10')", "p BETWEEN n AND q",
    "hour(p) < hour(q)", "CAST(p AS DATE) = o", "CAST(p AS DATE) = CAST(q AS DATE)", "year(p) = year(o)", "day(p) BETWEEN 1 AND 15 OR hour(q) > 12",
    "p < TIMESTAMP '2024-03-09 23:00:00' OR q > TIMESTAMP '2024-10-27 00:00:00'", "p IS NULL OR q IS NULL", "NOT (p < q)", "p IS NOT NULL AND hour(p) = 1",
    "greatest(p, q) = p", "coalesce(p, q) < TIMESTAMP '2024-06-01'", "nullif(n, o) IS NULL", "CASE WHEN hour(p) < 12 THEN p < q ELSE p >= q END",
)  # fmt: skip
TIME_CASTS = (
    "CAST(p AS DATE)", "CAST(q AS DATE)", "CAST(n AS TIMESTAMP)", "CAST(z AS TIMESTAMP)", "CAST(p AS TIMESTAMP_NTZ)", "CAST(z AS DATE)", "CAST(n AS TIMESTAMP_NTZ)", "to_date(p)", "DATE(p)", "p::date",
    "CAST(p AS STRING)", "CAST(n AS STRING)", "CAST(z AS STRING)", "CAST(p AS BIGINT)", "CAST(l AS TIMESTAMP)", "CAST(i AS TIMESTAMP)", "CAST('2024-03-31 02:30:00' AS TIMESTAMP)", "CAST('2024-11-03' AS DATE)",
    "to_timestamp('2024-03-10 02:30:00')", "to_timestamp('2024-03-31T01:00:00Z')", "TIMESTAMP '2024-03-31 01:00:00+02:00'", "TIMESTAMP '2024-03-31'", "to_utc_timestamp(p, 'Asia/Tokyo')", "from_utc_timestamp(p, 'Asia/Tokyo')",
    "coalesce(n, p)", "coalesce(z, p)", "if(b, n, z)", "CASE WHEN b THEN p ELSE o END", "greatest(p, q)", "least(n, o)", "least(p, q)", "make_date(2024, 3, abs(j) % 28 + 1)",
)  # fmt: skip
TIMES = (*FIELDS, *TRUNCATED, *SHIFTED, *TIME_CONDITIONS, *TIME_CASTS)

NUMBERS = (
    *(f"{a} {op} {b}" for a, b in (("t", "j"), ("i", "m"), ("l", "e"), ("f", "j"), ("x", "y"), ("x", "m"), ("h", "y")) for op in ("+", "-", "*", "<", "=", "<=>")),
    "d = e", "d < e", "f = e", "f <= j", "l = e", "x > e", "i / 7", "l % 5", "i div 3", "d / 3", "x / 3", "x / 7.5", "x * 0.05", "x + y * 2", "-x", "abs(d)", "abs(x - y)", "mod(i, 7)", "pmod(i, 7)", "-t",
    "round(d, 2)", "round(x, 1)", "floor(x)", "ceil(x)", "sqrt(abs(j))", "pow(j, 2)", "sign(x)", "bround(x, 0)", "greatest(i, j)", "least(x, y)", "greatest(d, e)", "isnan(d)", "nanvl(d, 0)",
    "i BETWEEN j AND m", "x BETWEEN 0 AND y", "i IN (1, 2, j)", "x IN (1.5, 2)", "l IN (1, 2.5)", "l IN (1.5, 1e3)", "coalesce(l, 2.5, 1e3)", "coalesce(i, j)", "coalesce(x, 0)", "nvl(d, 0)", "nullif(d, e)", "nullif(i, j)", "if(b, i, e)", "if(c, x, y)",
    "CASE WHEN i > j THEN i ELSE m END", "CASE i WHEN 1 THEN 'one' WHEN j THEN 'two' END", "abs(i - j) <= 3", "i - j BETWEEN -2 AND 2", "x - y < 1.5", "d - e > 0", "try_divide(i, j)", "2.5 * i", "1e0 * x", "10L + t",
    "i & 3", "i | j", "i ^ 1", "shiftleft(i, 2)", "hash(i)", "10 % 3 + i", "x = 1.5", "t = 3", "e > 0.5", "i + 0.1", "i * x", "i <> m AND x <> y",
)  # fmt: skip
NUMBER_CASTS = (
    *(f"CAST({c} AS {t})" for c in ("t", "i", "x") for t in ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DECIMAL(12,3)", "BOOLEAN")),
    "CAST(d AS STRING)", "CAST(f AS STRING)", "CAST(f AS DOUBLE)", "CAST(x AS DECIMAL(10,1))", "CAST(b AS INT)", "CAST(b AS STRING)", "CAST(b AS DOUBLE)", "CAST('12' AS INT)", "CAST(' 7 ' AS BIGINT)", "CAST('1.5' AS DECIMAL(4,2))",
    "CAST('true' AS BOOLEAN)", "CAST(CAST(i AS STRING) AS INT) = i", "try_cast(s AS INT)", "CAST(x AS STRING) || '!'", "i = '1'", "CAST(j AS STRING) = u", "x = '1.50'", "string(i)", "int(x)", "b = (i > 0)", "i::smallint",
)  # fmt: skip
TEXTS = (
    *(f"s {op} u" for op in ("=", "<", ">=", "<=>", "||")), "s LIKE 'a%'", "s LIKE '%b'", "s LIKE 'a_b'", "s NOT LIKE 'é%'", "s LIKE u", "s LIKE '%\\\\_%'", "s ILIKE 'A%'", "s RLIKE '^a'", "length(s)", "length(s || u)", "char_length(u)",
    "substring(s, 2)", "substring(s, -2, 2)", "substr(s, 1, j % 4)", "left(s, 2)", "right(s, 1)", "lower(s)", "upper(u)", "trim(s)", "ltrim(s)", "rtrim(u)", "concat(s, '-', u)", "concat_ws('-', s, u)", "replace(s, 'a', 'b')", "reverse(s)",
    "lpad(s, 4, '*')", "instr(s, 'b')", "locate('b', s)", "split(s, ',')[0]", "initcap(s)", "ascii(s)", "md5(s)", "sha2(s, 256)", "coalesce(s, u, '')", "nvl2(s, u, 'none')", "s IN ('a', u)", "s BETWEEN 'a' AND u", "nullif(s, u)", "if(s = u, s, 'x')",
    "CASE s WHEN 'a' THEN 1 WHEN u THEN 2 ELSE 0 END", "startswith(s, 'a')", "contains(s, 'b')", "translate(s, 'ab', 'ba')", "repeat(s, 2)", "s || CAST(i AS STRING)", "s IS NULL", "isnotnull(u)", "greatest(s, u)", "least(s, u)", "regexp_replace(s, 'a+', 'x')", "levenshtein(s, u)",
)  # fmt: skip
TRUTHS = (
    "b AND c", "b OR c", "NOT b", "b = c", "b <=> c", "b <> c", "b IS TRUE", "c IS NOT FALSE", "b AND NULL", "b OR NULL", "NOT (b AND c) OR b IS NULL", "coalesce(b, c)", "if(b, c, NULL)", "b < c", "b IN (TRUE, c)", "nullif(b, c)",
    "i > j AND x < y OR b", "(i = j) = (x = y)", "(i > j) <> b", "CASE WHEN b THEN i > j WHEN c THEN x > y ELSE s = u END", "i < j OR hour(p) = 1 AND s <> u", "isnull(b) OR i = j", "i IS NOT NULL AND s IS NOT NULL",
)  # fmt: skip
FAMILIES = {"times": TIMES, "numbers": NUMBERS, "casts": NUMBER_CASTS, "texts": TEXTS, "truths": TRUTHS}
ALL = tuple(dict.fromkeys(text for family in FAMILIES.values() for text in family))

_NAN = float("nan")
_INSTANTS = [  # an hour around the changes of all zones, every half hour, and around the day that Apia left out
    start + timedelta(minutes=30 * n)
    for start in (datetime(2024, 3, 10, 6, tzinfo=UTC), datetime(2024, 3, 31, 0, tzinfo=UTC), datetime(2024, 11, 3, 4, 30, tzinfo=UTC), datetime(2024, 10, 27, 0, tzinfo=UTC), datetime(2024, 10, 5, 15, tzinfo=UTC), datetime(2024, 4, 6, 14, tzinfo=UTC), datetime(2011, 12, 30, 9, 30, tzinfo=UTC))
    for n in range(4)
]  # fmt: skip
_TIMES = [
    *_INSTANTS,
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(1900, 1, 1, 12, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 0, 0, 1, UTC),
    None,
]
_DAYS = [
    date(2024, 3, 10),
    date(2024, 3, 31),
    date(2024, 11, 3),
    date(2024, 10, 6),
    date(2011, 12, 31),
    date(1970, 1, 1),
    date(2024, 2, 29),
    None,
]
_LOCALS = [datetime(2024, 3, 10, 2, 30), datetime(2024, 3, 31, 2, 30), datetime(2024, 11, 3, 1, 30), datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 6, 2, 15), datetime(2024, 4, 7, 1, 45), datetime(2011, 12, 30, 12), None]  # fmt: skip
_TEXTS = ["", " a ", "a", "A", "ab", "abc", "a_b", "é", "日本", "😀x", "10", "z", None]
COLUMNS = {
    "t": (pa.int8(), [0, 1, -1, 3, 10, None]), "h": (pa.int16(), [0, 2, -7, 100, None]), "i": (pa.int32(), [0, 1, -1, 2, 5, 77, None]), "l": (pa.int64(), [0, 1, -1, 2**40, 5, None]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, -2.25, 0.1, _NAN, None]), "d": (pa.float64(), [0.0, -0.0, 1.5, -2.25, 0.1, 1e300, _NAN, float("inf"), None]),
    "x": (pa.decimal128(10, 2), [Decimal(v) for v in ("0.00", "1.50", "-1.50", "2.00", "99.99")] + [None]), "s": (pa.string(), _TEXTS), "b": (pa.bool_(), [True, False, None]),
    "p": (pa.timestamp("us", "UTC"), _TIMES), "n": (pa.date32(), _DAYS), "z": (pa.timestamp("us"), _LOCALS),
    "j": (pa.int32(), [0, 1, -1, 2, 3, 28, None]), "m": (pa.int64(), [0, 1, 5, -3, 2**33, None]), "e": (pa.float64(), [0.0, -0.0, 1.5, 0.1, _NAN, 3.0, None]),
    "y": (pa.decimal128(12, 4), [Decimal(v) for v in ("0.0000", "1.5000", "-0.0001", "2.0000", "7.1250")] + [None]), "u": (pa.string(), _TEXTS), "c": (pa.bool_(), [True, False, None]),
    "q": (pa.timestamp("us", "UTC"), _TIMES), "o": (pa.date32(), _DAYS), "w": (pa.timestamp("us"), _LOCALS),
}  # fmt: skip
ONE, TWO = tuple("thilfdxsbpnz"), tuple("jmeyucqow")
SPECS = {
    name: StreamSpec(name, {**{c: spark_name(COLUMNS[c][0]) for c in columns}, time: "timestamp"}, time=time)
    for name, columns, time in (("one", ONE, "ts"), ("two", TWO, "us"))
}


def pairs(count: int = 64, seed: int = 5) -> pa.Table:
    """Rows of all columns of both streams: every value occurs, and every second q is near its p."""
    rng = random.Random(seed)
    made = {"row": pa.array(range(count), pa.int32())}
    for name, (kind, values) in COLUMNS.items():
        picked = [*values, *rng.choices(values, k=count)][:count]
        rng.shuffle(picked)
        made[name] = pa.array(picked, kind)
    near = [
        p if n % 4 == 0 or p is None else p + timedelta(hours=23 + n % 3) for n, p in enumerate(made["p"].to_pylist())
    ]
    made["q"] = pa.array([v if n % 2 == 0 else q for n, (v, q) in enumerate(zip(near, made["q"].to_pylist(), strict=True))], made["q"].type)  # fmt: skip
    return pa.table(made)


@lru_cache(None)
def expr_of(text: str):
    """The Expr of a text over the two streams."""
    return parse(f"SELECT {text} AS it FROM one CROSS JOIN two", SPECS).select[0].expr
