"""Edge values and expressions over them: what the evaluator is tried on, with and without Spark."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from watersmeet.query.stream import StreamSpec
from watersmeet.sql.parse import parse

INF, NAN = float("inf"), float("nan")
TIMES = [  # around both changes of the clocks in Europe and America, an old date, and a leap day
    datetime(2024, 3, 31, 0, 59, 59, 999999, UTC), datetime(2024, 3, 31, 1, 0, 0, 0, UTC), datetime(2024, 10, 27, 1, 30, tzinfo=UTC), datetime(2024, 11, 3, 6, 0, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(1970, 1, 1, tzinfo=UTC), datetime(1900, 1, 1, 12, tzinfo=UTC), datetime(2024, 2, 29, 23, 59, 59, 1, UTC), None,
]  # fmt: skip
STRINGS = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "abc",
    "é",
    "ß",
    "日本",
    "😀x",
    "a%b",
    "a_b",
    "a\nb",
    "a\\b",
    "{0}",
    "'",
    "z",
    "NaN",
    "10",
    None,
]
WHOLE = [0, 1, -1, 2, 3, -7, None]
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 1e308, -1e308, 5e-324, INF, -INF, NAN, None]
VALUES = {
    "t": (pa.int8(), "tinyint", [*WHOLE, 127, -128]),
    "h": (pa.int16(), "smallint", [*WHOLE, 32767, -32768]),
    "i": (pa.int32(), "int", [*WHOLE, 2**31 - 1, -(2**31)]),
    "j": (pa.int32(), "int", [*WHOLE, 2**31 - 1, -(2**31), 100]),
    "l": (pa.int64(), "bigint", [*WHOLE, 2**63 - 1, -(2**63), 2**53 + 1, 2**31]),
    "m": (pa.int64(), "bigint", [*WHOLE, 2**63 - 1, -(2**63), 5]),
    "f": (pa.float32(), "float", [v for v in FLOATS if v is None or v != v or abs(v) in (INF, 0.0) or 1e-30 < abs(v) < 1e30]),
    "d": (pa.float64(), "double", FLOATS),
    "e": (pa.float64(), "double", FLOATS),
    "x": (pa.decimal128(10, 2), "decimal(10,2)", [Decimal(v) for v in ("0.00", "1.50", "-1.50", "99999999.99", "-99999999.99", "0.01", "2.00")] + [None]),
    "y": (pa.decimal128(12, 4), "decimal(12,4)", [Decimal(v) for v in ("0.0000", "1.5000", "-0.0001", "99999999.9999", "2.0000")] + [None]),
    "s": (pa.string(), "string", STRINGS),
    "u": (pa.string(), "string", STRINGS),
    "b": (pa.bool_(), "boolean", [True, False, None]),
    "c": (pa.bool_(), "boolean", [True, False, None]),
    "p": (pa.timestamp("us", "UTC"), "timestamp", TIMES),
    "q": (pa.timestamp("us", "UTC"), "timestamp", TIMES),
    "n": (pa.date32(), "date", [date(1969, 12, 31), date(2024, 2, 29), date(2024, 12, 30), None]),
}  # fmt: skip
SPEC = StreamSpec("edges", {name: kind for name, (_, kind, _) in VALUES.items()}, time="p")
OTHER = StreamSpec("other", {"other_key": "int", "other_ts": "timestamp"}, time="other_ts")
NUMBERS = ("t", "h", "i", "l", "f", "d", "x")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


def edges(rows: int = 60, seed: int = 7) -> pa.Table:
    """Rows of edge values: every value of every column occurs, and many pairs meet."""
    rng = random.Random(seed)
    columns = {}
    for name, (kind, _, values) in VALUES.items():
        picked = [*values, *rng.choices(values, k=rows)][:rows]
        rng.shuffle(picked)
        columns[name] = pa.array(picked, kind)
    return pa.table({"row": pa.array(range(rows), pa.int32()), **columns})


def expr_of(text: str):
    """The Expr of a text over the columns of `edges`."""
    return parse(f"SELECT {text} AS it FROM edges CROSS JOIN other", {"edges": SPEC, "other": OTHER}).select[0].expr


def systematic() -> list[str]:
    """Every operation of the allow-list, with every pair of types that it claims."""
    made = [
        f"{left} {op} {r}"
        for left in NUMBERS
        for r in ("j", "m", "f", "e", "y", "1", "0.5", "1e0", "NULL")
        for op in ("+", "-", "*")
    ]
    made += [
        f"{left} {op} {r}"
        for left in NUMBERS
        for r in ("j", "m", "e", "y", "0", "0.1", "-1")
        for op in ("=", "<", "<=>")
    ]
    made += [
        f"{left} {op} {r}"
        for pair in (("s", "u"), ("b", "c"), ("p", "q"), ("n", "n"), ("d", "e"), ("i", "l"), ("s", "'a'"))
        for op in COMPARISONS
        for left, r in [pair]
    ]
    made += [
        f"{left} {op} {r}"
        for left in ("t", "i", "l")
        for r in ("t", "j", "m", "0", "3", "-1")
        for op in ("/", "%", "div")
    ]
    made += [
        "d / e",
        "d / 2",
        "f / 2",
        "f / f",
        "i / e",
        "d % e",
        "d % 2",
        "f % 2",
        "mod(i, j)",
        "x * 0.05",
        "x + y * 2",
        "x - 1",
        "x * i",
    ]
    made += [f"-{c}" for c in NUMBERS] + [f"abs({c})" for c in NUMBERS] + [f"-({c} - 1)" for c in ("i", "d")] + ["- -i"]
    made += [
        "b AND c",
        "b OR c",
        "NOT b",
        "b AND NULL",
        "b OR NULL",
        "NOT (b AND c)",
        "b IS TRUE",
        "b IS NOT FALSE",
        "b AND c OR NOT b",
    ]
    made += (
        [f"{c} IS NULL" for c in VALUES]
        + [f"{c} IS NOT NULL" for c in VALUES]
        + ["isnull(i)", "isnotnull(s)", "isnan(d)", "isnan(f)"]
    )
    made += [
        "i BETWEEN -1 AND 2",
        "i NOT BETWEEN j AND l",
        "d BETWEEN 0 AND e",
        "s BETWEEN 'a' AND u",
        "p BETWEEN q AND q + INTERVAL 1 DAY",
        "x BETWEEN 0 AND y",
    ]
    made += [
        "i IN (1, 2, 3)",
        "i NOT IN (1, 2)",
        "i IN (1, NULL)",
        "l IN (1, 2.5)",
        "l IN (1.5, 1e3)",
        "d IN (0, 1, 2.5)",
        "s IN ('a', '', 'é')",
        "x IN (1.5, 2)",
        "b IN (TRUE)",
    ]
    made += [
        "CASE WHEN b THEN i ELSE l END",
        "CASE WHEN b THEN i END",
        "CASE i WHEN 1 THEN 'one' WHEN j THEN s END",
        "if(b, i, d)",
        "if(c, x, y)",
        "CASE WHEN i > 0 THEN 1 WHEN b THEN 2.5 ELSE NULL END",
    ]
    made += [
        "coalesce(i, j)",
        "coalesce(i, l, 0)",
        "coalesce(d, 0)",
        "coalesce(s, '')",
        "coalesce(x, y)",
        "nvl(i, 7)",
        "ifnull(s, u)",
        "nullif(i, j)",
        "nullif(s, 'a')",
        "nullif(d, e)",
        "coalesce(p, q)",
    ]
    made += [
        "greatest(i, j)",
        "least(i, l)",
        "greatest(d, e)",
        "least(d, e, 0)",
        "greatest(s, u)",
        "least(p, q)",
        "greatest(x, y)",
    ]
    made += [f"s LIKE '{p}'" for p in ("a%", "%b", "a_b", "_", "%", "", "A%", "%%", "é", "{0}")] + ["s NOT LIKE 'a%'"]
    made += [f"s RLIKE '{p}'" for p in ("^a", "b$", "a.b", "[^a]", "(?i)A|é", "^$", "a{1,2}", "\\\\s")] + [
        "upper(s)",
        "lower(s || u)",
    ]
    made += [f"unix_{unit}({t})" for unit in ("micros", "millis", "seconds", "timestamp") for t in ("p", "q")]
    made += ["CAST(p AS BIGINT)", "unix_seconds(p) div 10", "unix_millis(p) - unix_millis(q)"]
    made += ["s || u", "concat(s, u, '!')", "concat(s, NULL)", "length(s)", "length(s || u) + 1"]
    made += [f"substring(s, {a}, {b})" for a in (-5, -2, -1, 0, 1, 2, 9) for b in (-1, 0, 1, 2, 9)] + [
        "substring(s, 2)",
        "substring(s, -2)",
        "substr(s, i, j)",
        "substring(s FROM 2 FOR 1)",
        "substring(s, j)",
    ]
    made += (
        [f"CAST({c} AS {t})" for c in ("t", "i", "l", "f", "d", "x") for t in ("TINYINT", "INT", "BIGINT")]
        + [f"CAST({c} AS DOUBLE)" for c in NUMBERS]
        + [
            "CAST(i AS STRING)",
            "CAST(b AS INT)",
            "CAST(b AS STRING)",
            "CAST(l AS FLOAT)",
            "CAST(l AS DECIMAL(10,2))",
            "l::int",
            "CAST(p AS DATE)",
            "CAST(NULL AS INT)",
            "10L * i",
            "1.5D + i",
        ]
    )
    made += [f"{f}(p)" for f in ("year", "quarter", "month", "day", "hour", "minute", "second")] + [
        f"{f}(n)" for f in ("year", "month", "day")
    ]
    made += [
        f"date_trunc('{u}', p)"
        for u in ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
    ]
    made += [
        "p + INTERVAL 1 DAY",
        "p - INTERVAL 1 HOUR 5 MINUTES",
        "INTERVAL '0.5' SECOND + p",
        "p + INTERVAL '1 02:03:04.5' DAY TO SECOND",
        "p < q - INTERVAL 90 MINUTES",
        "p - (INTERVAL 1 HOUR - INTERVAL 1 MINUTE)",
    ]
    made += ["p > TIMESTAMP '2024-03-31 00:30:00'", "n = DATE '2024-02-29'", "p >= TIMESTAMP '2024-01-01'"]
    return list(dict.fromkeys(made))


def nested(count: int = 120, seed: int = 11) -> list[str]:
    """Random compositions, three operators deep."""
    rng = random.Random(seed)

    def value(kind: str, depth: int) -> str:
        leaf = {
            "num": ["t", "i", "j", "l", "d", "e", "x", "1", "2.5", "-3", "0"],
            "str": ["s", "u", "'a'", "''"],
            "bool": ["b", "c", "TRUE"],
            "time": ["p", "q"],
        }[kind]
        if depth == 0:
            return rng.choice(leaf)
        a, b = (lambda k: value(k, depth - 1)), rng.random()
        if kind == "num":
            forms = [
                "({0} + {1})",
                "({0} - {1})",
                "-({0})",
                "coalesce({0}, {1})",
                "CASE WHEN {2} THEN {0} ELSE {1} END",
                "abs({0})",
                "length({3})",
                "({0} / {1})",
                "({0} * {1})",
                "hour({5})",
                "day({5})",
                "year({5})",
            ]
        elif kind == "str":
            forms = ["({3} || {4})", "coalesce({3}, {4})", "substring({3}, 2, 3)", "if({2}, {3}, {4})"]
        elif kind == "time":
            forms = [
                "({5} + INTERVAL 90 MINUTES)",
                "coalesce({5}, {6})",
                "if({2}, {5}, {6})",
                "({5} - INTERVAL 1 DAY)",
                "date_trunc('day', {5})",
                "date_trunc('hour', {5})",
                "CAST(CAST({5} AS DATE) AS TIMESTAMP)",
            ]
        else:
            forms = [
                "({0} < {1})",
                "({0} = {1})",
                "({3} >= {4})",
                "({2} AND {7})",
                "({2} OR {7})",
                "NOT {2}",
                "({0} IS NULL)",
                "({3} LIKE 'a%')",
                "({0} BETWEEN {1} AND 3)",
                "({5} <= {6})",
                "({3} <=> {4})",
                "(CAST({5} AS DATE) = CAST({6} AS DATE))",
                "({5} < TIMESTAMP '2024-03-31 02:30:00')",
            ]
        form = forms[int(b * len(forms))]
        return form.format(a("num"), a("num"), a("bool"), a("str"), a("str"), a("time"), a("time"), a("bool"))

    return [value(kind, 3) for kind in ("num", "bool", "str", "time") for _ in range(count // 4)]
