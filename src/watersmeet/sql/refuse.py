"""Refuses the SQL that watersmeet does not run, each with a remedy.

Order: the statement's kind, its clauses, its tables, then what may hide inside expressions.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from watersmeet.errors import ParseError, UnsupportedError
from watersmeet.sql.aggregates import read_aggregate
from watersmeet.sql.copies import list_nodes

_CLAUSES = {
    "with_": "a CTE (WITH) is not supported yet: name its streams in FROM directly",
    "hint": "a hint is not supported: use the options kernel=, routing= and order= instead",
    "order": "ORDER BY is not supported: a stream has no last row; sort the result where it is static",
    "sort": "SORT BY is not supported: a stream has no last row; sort the result where it is static",
    "cluster": "CLUSTER BY is not supported: repartition the result instead",
    "distribute": "DISTRIBUTE BY is not supported: repartition the result instead",
    "limit": "LIMIT is not supported: a stream has no last row; apply limit() to the result where it is static",
    "offset": "OFFSET is not supported: a stream has no first row",
    "qualify": "QUALIFY is not supported yet: filter the result",
    "laterals": "LATERAL VIEW is not supported yet: explode the source before it becomes a stream",
    "windows": "a named WINDOW clause is not supported: for a join window write WINDOW (a, b) = 10 SECONDS",
    "pivots": "PIVOT is not supported yet: apply it to the result",
    "into": "SELECT INTO is not supported: use start(sink=...) instead",
    "locks": "FOR UPDATE is not supported: streams are never locked",
    "sample": "TABLESAMPLE is not supported: sample the source before it becomes a stream",
    "kind": "SELECT AS STRUCT is not supported: use named_struct()",
}
_TABLE = {
    "pivots": _CLAUSES["pivots"],
    "sample": _CLAUSES["sample"],
    "version": "time travel is not supported: read that version as the stream's source",
    "when": "time travel is not supported: read that version as the stream's source",
    "hints": _CLAUSES["hint"],
    "laterals": _CLAUSES["laterals"],
    "joins": "parentheses around a join are not supported yet: list the tables without them",
}
_GENERATORS = {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple", "variant_explode", "collations"}  # fmt: skip
_AGGREGATES = {
    "every", "some", "any", "bool_and", "bool_or", "count_if", "collect_list", "collect_set", "percentile", "percentile_approx", "approx_percentile",
    "bit_and", "bit_or", "bit_xor", "mean", "std", "kurtosis", "skewness", "regr_count", "mode", "max_by", "min_by", "listagg", "string_agg", "array_agg",
    "first_value", "last_value", "try_sum", "try_avg", "grouping", "grouping_id", "count_min_sketch", "histogram_numeric", "bitmap_construct_agg",
}  # fmt: skip
NONDETERMINISTIC = {
    "rand", "random", "randn", "uuid", "current_timestamp", "now", "localtimestamp", "current_date", "curdate", "current_time", "unix_timestamp", "shuffle",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name", "current_user", "user", "session_user", "current_database", "current_catalog",
    "current_schema", "current_timezone", "version", "randstr", "uniform", "reflect", "java_method", "input_file_block_start", "input_file_block_length", "getdate",
    "aes_encrypt",
}  # fmt: skip
_ALWAYS = NONDETERMINISTIC - {"unix_timestamp"}
_HARMLESS = frozenset((
    exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Is, exp.Like, exp.And, exp.Or, exp.Not, exp.Case, exp.If,
))  # fmt: skip
"""What most nodes are; nothing in them is refused but what stands below."""


def refuse_statement(statement: Any) -> None:
    """Only one plain SELECT passes."""
    if isinstance(statement, exp.SetOperation):
        raise UnsupportedError(
            f"{type(statement).__name__.upper()} is not supported yet: write two queries and union the results"
        )
    if not isinstance(statement, exp.Select):
        word = (
            "parentheses around the whole query"
            if isinstance(statement, exp.Subquery)
            else type(statement).__name__.upper()
        )
        raise ParseError(f"expected a SELECT statement, found {word}")
    for clause, message in _CLAUSES.items():
        if statement.args.get(clause):
            raise UnsupportedError(message)
    if statement.args.get("from_") is None:
        raise ParseError("the query has no FROM: name the streams to join, as in FROM clicks c, orders o")
    leftover = [
        name
        for name, value in statement.args.items()
        if value and name not in ("expressions", "from_", "joins", "where", "distinct", "group", "having")
    ]
    if leftover:
        raise UnsupportedError(
            f"{leftover[0].strip('_').replace('_', ' ').upper()} is not supported yet: write a plain SELECT ... FROM ... WHERE"
        )


def refuse_grouping(statement: Any) -> None:
    """DISTINCT and GROUP BY pass in their plain forms, one at a time."""
    distinct, group = statement.args.get("distinct"), statement.args.get("group")
    if distinct is not None and distinct.args.get("on"):
        raise UnsupportedError(
            "DISTINCT ON is not supported: GROUP BY those columns, with min() or max() of the others"
        )
    if group is not None:
        form = group.find(exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)
        if form is not None or group.args.get("all") or group.args.get("totals"):
            word = "ALL" if form is None else type(form).__name__.upper()
            raise UnsupportedError(f"GROUP BY with {word} is not supported yet: list the columns to group by, bare")
    if distinct is not None and group is not None:
        raise UnsupportedError(
            "DISTINCT with GROUP BY is not supported: groups are distinct already; leave DISTINCT out"
        )


def refuse_table(table: Any) -> None:
    """FROM holds names of streams, nothing else."""
    if isinstance(table, exp.Subquery) and isinstance(table.this, exp.Table):
        raise UnsupportedError(_TABLE["joins"])
    if isinstance(table, exp.Subquery):
        raise UnsupportedError("a subquery in FROM is not supported yet: make it a stream of its own")
    if isinstance(table, exp.Lateral):
        raise UnsupportedError(_CLAUSES["laterals"])
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise UnsupportedError(
            f"{table.sql('spark')} in FROM is not supported: FROM takes the names of streams; supply the data as a stream"
        )
    for arg, message in _TABLE.items():
        if table.args.get(arg):
            raise UnsupportedError(message)
    if table.alias_column_names:
        raise UnsupportedError(
            f"column aliases of a table are not supported yet: rename in SELECT instead of {table.sql('spark')}"
        )


def kind_of_join(join: Any) -> tuple[str, str]:
    """What a join is, and how it is written; joins that there are not are refused."""
    side, kind, method = (str(join.args.get(arg) or "").upper() for arg in ("side", "kind", "method"))
    written = " ".join(word for word in (method, side, kind, "JOIN", join.this.alias_or_name) if word)
    if join.args.get("pivots"):
        raise UnsupportedError(_CLAUSES["pivots"])
    if method == "NATURAL":
        raise UnsupportedError("NATURAL JOIN is not supported: name the columns with JOIN ... USING (...)")
    if method == "ASOF" and kind in ("", "OUTER", "INNER") and side in ("", "LEFT"):
        return ("asof left" if side else "asof"), written
    if not method and kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return kind.lower(), written
    if not method and side in ("LEFT", "RIGHT", "FULL") and kind in ("", "OUTER"):
        return side.lower(), written
    if method or side or kind not in ("", "INNER", "CROSS"):
        raise UnsupportedError(
            f"{written} is not supported: there are JOIN, LEFT, RIGHT and FULL [OUTER] JOIN, LEFT SEMI, LEFT ANTI, ASOF and ASOF LEFT JOIN"
        )
    return "inner", written


def refuse_inside(node: Any, *, replayed: bool, aggregated: bool = False) -> None:
    """What may not stand inside an expression.

    `replayed`: its answer must be the same each time. `aggregated`: aggregates that can be computed online may.
    """
    for part in list_nodes(node):
        if type(part) in _HARMLESS:
            continue
        name = _name(part)
        if isinstance(part, exp.Query | exp.Subquery | exp.Exists) and not _is_array_exists(part):
            raise UnsupportedError(_subquery_message(part))
        if isinstance(part, exp.Window | exp.WithinGroup):
            raise UnsupportedError(
                f"a window function (OVER) is not supported yet: {_show(part)}; apply it to the result"
            )
        if isinstance(part, exp.Filter):
            raise UnsupportedError(
                f"FILTER is not supported: {_show(part)}; aggregate CASE WHEN ... THEN ... END instead"
            )
        if is_aggregate(part):
            _refuse_aggregate(part, aggregated)
        if isinstance(part, exp.UDTF | exp.Explode | exp.Posexplode | exp.Inline) or name in _GENERATORS:
            raise UnsupportedError(
                f"a generator is not supported yet: {_show(part)}; explode the source before it becomes a stream"
            )
        if isinstance(part, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise UnsupportedError(f"a parameter is not supported: put the value in place of {_show(part)}")
        if replayed and _is_nondeterministic(part, name):
            raise UnsupportedError(
                f"{_show(part)} in a condition, under DISTINCT or in an aggregation is not supported: results must be replayable; put the value into a column of the stream"
            )


def _subquery_message(part: Any) -> str:
    """A subquery in a condition is a semi join, a negated one an anti join."""
    above, negated = part.parent, False
    while above is not None and not isinstance(above, exp.Select | exp.Connector):
        negated ^= isinstance(above, exp.Not)
        above = above.parent
    asks = isinstance(part, exp.Exists) or isinstance(part.parent, exp.In)
    if negated and asks:
        return (
            f"NOT {'EXISTS' if isinstance(part, exp.Exists) else 'IN'} is an anti join ({_show(part)}): write it in FROM, "
            "as in FROM orders o LEFT ANTI JOIN payments p ON p.id = o.id, with a window such as WINDOW (o, p) = 10 MINUTES"
        )
    if asks:
        return f"a subquery is not supported: join its stream instead, with LEFT SEMI JOIN if one match is enough ({_show(part)})"
    return f"a subquery is not supported yet: make it a stream of its own ({_show(part)})"


def is_aggregate(part: Any) -> bool:
    """Whether a node is an aggregate function of any kind."""
    return (isinstance(part, exp.AggFunc) and not isinstance(part, exp.ArrayConcatAgg)) or _name(part) in _AGGREGATES


def has_aggregate(node: Any) -> bool:
    """Whether there is an aggregate function anywhere in a tree."""
    return any(type(part) not in _HARMLESS and is_aggregate(part) for part in list_nodes(node))


def _refuse_aggregate(part: Any, aggregated: bool) -> None:
    if not aggregated:
        raise UnsupportedError(f"an aggregate is not supported here: {_show(part)}; aggregates stand in SELECT")
    above = part.parent if isinstance(part.parent, exp.IgnoreNulls) else part
    if read_aggregate(above) is None and part.find(exp.Distinct):
        raise UnsupportedError(
            f"{_show(part)}: of aggregates only count takes distinct values, of one column; aggregate collect_set(x) of groups that end, or the result"
        )
    if read_aggregate(above) is None:
        raise UnsupportedError(
            f"the aggregate {_show(above)} is not supported yet: there are count, sum, min, max and avg of one argument, and for groups that end count(DISTINCT x), "
            "stddev and variance, first and last, min_by and max_by, collect_list and collect_set; apply others to the result"
        )


def _is_array_exists(part: Any) -> bool:
    """Spark's exists(array, lambda) is a function."""
    return isinstance(part, exp.Exists) and isinstance(part.args.get("expression"), exp.Lambda)


def _is_nondeterministic(part: Any, name: str) -> bool:
    if name == "unix_timestamp":
        return not list(part.find_all(exp.Column, exp.Literal))
    return name in _ALWAYS


def _name(part: Any) -> str:
    """A function's name in lower case, '' for other nodes."""
    if isinstance(part, exp.Anonymous):
        return str(part.this).lower()
    return str(part.sql_name()).lower() if isinstance(part, exp.Func) else ""


def _show(part: Any) -> str:
    text = str(part.sql("spark"))
    return text if len(text) <= 80 else text[:77] + "..."
