"""Planning over Spark DataFrames: types are those that Spark's analyser finds in the session's mode, and its refusals are said in our words.

When a query is bound, all conditions, the SELECT list, DISTINCT or the groups are analysed over one empty frame that has the columns of all
aliases; only if that fails, one by one, to name the culprit. No job runs, and nothing private is called, so this is the same on Spark Connect.

Invariant: every expression that Spark will evaluate for the query has passed its analyser, in the session's mode and time zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from watersmeet.errors import OptionError, QueryError, TypeMismatchError, UnknownNameError
from watersmeet.expressions.evaluator import knows
from watersmeet.plan.build import build
from watersmeet.plan.model import Plan
from watersmeet.plan.options import Inside, Options
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.join import Join
from watersmeet.query.select import END, Grouping
from watersmeet.query.session import Session
from watersmeet.runtime.spark.aggregates import aggregate_sql
from watersmeet.runtime.spark.tables import look_up
from watersmeet.runtime.spark.types import SparkTypes, quiet_refusals, refuse_unless_travels
from watersmeet.runtime.spark.versions import check_version

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"


def session_of(spark: Any) -> Session:
    """What the Spark session says now."""
    return Session(spark.conf.get(ZONE), (spark.conf.get(ANSI, None) or "true").lower() == "true")


def check_session(join: Join, spark: Any) -> None:
    """A query means what it meant when it was made; if the session has changed since, Spark's part would mean something else."""
    bound, now = join.session, session_of(spark)
    for name, before, after in ((ZONE, bound.timezone, now.timezone), (ANSI, bound.ansi, now.ansi)):
        if before != after:
            raise OptionError(
                f"{name} was {before} when the query was made, and is {after} now: make the query again, or set it back"
            )


def count_sources(frame: Any) -> int:
    """How many sources Spark reads for a streaming DataFrame, by the plan that it prints."""
    shown = StringIO()
    with redirect_stdout(shown):
        frame.explain(True)
    parsed = re.split(r"== \w+ Logical Plan ==", shown.getvalue())[1]
    return max(1, len(re.findall(r"\bStreamingRelation", parsed)))


def plan(join: Join, frames: Mapping[str, Any], options: Options) -> Plan:
    """Plan a query over DataFrames, by alias."""
    spark = next(iter(frames.values())).sparkSession
    check_version(spark)
    types = SparkTypes(frames)
    made = build(join, types, options, inside_of(join.session))
    for expr in (column.expr for source in made.inputs for column in source.columns if not column.cast):
        refuse_unless_travels(f"{expr}", types.find(expr))
    return made


def inside_of(session: Session) -> Inside:
    """What the evaluator may do in the place of Spark in a session."""
    return "portable" if session.ansi and knows(session.timezone) else "nothing"


def frames_by_alias(join: Join, given: Mapping[str, Any]) -> dict[str, Any]:
    """The DataFrames of a query's aliases, joined with the tables that their tuples are looked up in; `given` are all by name."""
    own = {i.alias: look_up(given[i.stream], i.lookups, given, "true") for i in join.inputs}
    return own | {lookup.alias: given[lookup.table] for lookup in join.last_lookups}


_REFUSED = (AnalysisException, ParseException)
_WORDS = {
    "BINARY_OP_DIFF_TYPES": "{left} and {right} do not go together in {sqlExpr}; cast one to the other's type",
    "BINARY_OP_WRONG_TYPE": "{sqlExpr} takes {inputType}, not {actualDataType}; cast it",
    "UNEXPECTED_INPUT_TYPE": "{sqlExpr} takes {requiredType} as its {paramIndex} argument, and {inputSql} is {inputType}; cast it",
    "DATA_DIFF_TYPES": "the values of {sqlExpr} have types without a common one, {dataType}; cast them to one type",
    "INVALID_ORDERING_TYPE": "{functionName} does not compare {dataType}; take out the parts that can be compared",
    "CAST_WITHOUT_SUGGESTION": "{srcType} cannot be cast to {targetType} in {sqlExpr}; convert it in the stream's source",
    "CAST_WITH_CONF_SUGGESTION": "{srcType} cannot be cast to {targetType} in ANSI mode, in {sqlExpr}; convert it in the stream's source",
    "CAST_WITH_FUNC_SUGGESTION": "{srcType} cannot be cast to {targetType} in {sqlExpr}; use {functionNames}",
    "SET_OPERATION_ON_MAP_TYPE": "rows with a {dataType} cannot be told apart; select its entries",
}
"""What is wrong, by Spark's kind of type mismatch; the slots are Spark's parameters."""
_QUOTED = re.compile(r'"([^"]*)"')
_TYPE = re.compile(r"[A-Z_ ]+([(<].*)?")


def check(join: Join, frames: Mapping[str, Any]) -> None:
    """Refuse what Spark's analyser refuses of a query over DataFrames, by alias, and results that units cannot hold."""
    schemas = {alias: frame.schema for alias, frame in frames.items()}
    for ref in (ref for output in join.select for ref in output.expr.columns if ref.alias in join.aliases):
        refuse_unless_travels(f"{ref}", schemas[ref.alias][ref.column].dataType)
    empty, at = _empty(join, frames)
    with quiet_refusals():
        _check(join, empty, at)


def _check(join: Join, empty: Any, at: Mapping[ColumnRef, str]) -> None:
    conditions = list(_conditions(join))
    pieces = [("condition", c) for c in conditions] + [("SELECT", o.expr) for o in join.select]
    fields = _analyse(empty, pieces, at)
    for expr, field in zip(conditions, fields, strict=False):
        if not isinstance(field.dataType, BooleanType) and field.dataType.typeName() != "void":
            raise TypeMismatchError(
                f"the condition {expr} is {field.dataType.simpleString()}, not true or false: compare it with something"
            )
    if join.distinct:
        for output, field in zip(join.select, fields[len(conditions) :], strict=True):
            refuse_unless_travels(f"{output.expr}", field.dataType)
    _check_finish(join, empty, at)


def _conditions(join: Join) -> Iterable[Expr]:
    yield from join.filters
    yield from (e for lookup in join.lookups for e in lookup.on)
    yield from join.last_expressions
    yield from (p.condition for p in join.predicates)


def _empty(join: Join, frames: Mapping[str, Any]) -> tuple[Any, dict[ColumnRef, str]]:
    """A frame without rows that has all columns of the query's expressions, and what they are called in it."""
    exprs = (*_conditions(join), *(o.expr for o in join.select))
    refs = list(dict.fromkeys(ref for expr in exprs for ref in expr.columns))
    schemas = {alias: frame.schema for alias, frame in frames.items()}
    names = {
        ref: f"{ref}" if sum(str(r) == str(ref) for r in refs) == 1 else f"{ref} {n}" for n, ref in enumerate(refs)
    }
    kinds = [StructField(names[ref], schemas[ref.alias][ref.column].dataType) for ref in refs]
    spark = next(iter(frames.values())).sparkSession
    empty = spark.createDataFrame([], StructType(kinds or [StructField("_", BooleanType())]))
    return empty, {ref: "`" + name.replace("`", "``") + "`" for ref, name in names.items()}


def _analyse(empty: Any, pieces: list[tuple[str, Expr]], at: Mapping[ColumnRef, str]) -> list[Any]:
    """The fields that Spark makes of expressions."""
    texts = [f"({expr.spark(lambda ref: at[ref])}) AS c{n}" for n, (_, expr) in enumerate(pieces)]
    try:
        return list(empty.selectExpr(*texts).schema)
    except _REFUSED as error:
        for (what, expr), text in zip(pieces, texts, strict=True):
            _try(lambda text=text: empty.selectExpr(text).schema, f"{what} {expr}")
        raise refusal("the query", error) from None


def _check_finish(join: Join, empty: Any, at: Mapping[ColumnRef, str]) -> None:
    rows = empty.selectExpr(*(f"({o.expr.spark(lambda ref: at[ref])}) AS p{n}" for n, o in enumerate(join.select)))
    if join.distinct:
        _try(lambda: rows.distinct().schema, "SELECT DISTINCT")
    if isinstance(join.finish, Grouping):
        _check_groups(join.finish, rows)


def _check_groups(grouping: Grouping, rows: Any) -> None:
    keys = [f"p{n}" for n in range(grouping.keys)]
    aggregates = [
        (a, F.expr(aggregate_sql(a, lambda position: f"p{position}")).alias(f"a{n}"))
        for n, a in enumerate(grouping.aggregates)
    ]
    names = {**{f"g{n}": key for n, key in enumerate(keys)}, **{f"a{n}": f"a{n}" for n in range(len(aggregates))}}
    if grouping.window is not None:
        names[END] = keys[grouping.window.key]
    outputs = [o.expr.spark(lambda ref: names[ref.column]) for o in grouping.select]
    having = "true" if grouping.having is None else grouping.having.spark(lambda ref: names[ref.column])
    try:
        groups = rows.groupBy(*keys).agg(*(a for _, a in aggregates))
        groups.where(having).selectExpr(*outputs).schema  # noqa: B018 - the analysis is the point
    except _REFUSED as error:
        _try(lambda: rows.groupBy(*keys).count().schema, "GROUP BY")
        for shown, aggregate in aggregates:
            _try(lambda aggregate=aggregate: rows.groupBy().agg(aggregate).schema, f"{shown}")
        _try(lambda: groups.where(having).schema, f"HAVING {grouping.having}")
        raise refusal("SELECT", error) from None


def _try(analyse: Any, what: str) -> None:
    try:
        analyse()
    except _REFUSED as error:
        raise refusal(what, error) from None


def refusal(what: str, error: Any) -> QueryError:
    """Spark's refusal of a piece of a query, in our words."""
    name = str(error.getCondition() or "")
    words = _WORDS.get(name.rpartition(".")[2])
    given = {key: _plain(value) for key, value in (error.getMessageParameters() or {}).items()}
    if words or name.startswith("DATATYPE_MISMATCH"):
        return TypeMismatchError(f"{what}: {words.format_map(given) if words else _first_sentence(error)}")
    if name == "UNRESOLVED_ROUTINE":
        routine = given.get("routineName", "")
        return UnknownNameError(f"{what}: Spark has no function {routine!r}; check its spelling, or register it first")
    return QueryError(f"{what}: Spark refuses it: {_first_sentence(error)}")


def _plain(value: Any) -> str:
    """A parameter of Spark's message without its quotes; types are quoted capitals, and shown as usual.

    >>> _plain('("BIGINT" or "TIMESTAMP")'), _plain('"(a.K = b.k)"'), _plain("`coalesce`")
    ('(bigint or timestamp)', '(a.K = b.k)', 'coalesce')
    """
    return _QUOTED.sub(lambda found: found[1].lower() if _TYPE.fullmatch(found[1]) else found[1], str(value)).replace(
        "`", ""
    )


def _first_sentence(error: Any) -> str:
    """Spark's message without its name, its state and its plan."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    text = (lines or [str(error.getCondition())])[0]
    return text.partition("] ")[2].partition(" SQLSTATE")[0] or text
