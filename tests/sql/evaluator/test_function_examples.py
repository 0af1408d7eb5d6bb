"""The examples in the documentation of Spark's functions keep value and type in our templates.

Minutes of Spark: only `make test-all` runs it.
"""

import re

import pytest

from tests.sql.evaluator.expressions import expr_of as expr_in
from watersmeet.errors import WatersmeetError

pytestmark = pytest.mark.slow


def test_examples_of_all_functions_mean_what_was_written(spark):
    """Each example in Spark's own documentation is refused, or our template has its value and type."""
    wrong = []
    for text in examples(spark):
        try:
            template = expr_in(text).spark(lambda ref: ref.column)
        except WatersmeetError:
            continue
        before, after = (value_and_type(spark, sql) for sql in (text, template))
        if before is not None and after is not None and before != after:
            wrong.append((text, template, before, after))
    assert wrong == []


def examples(spark):
    """What stands in `> SELECT ...;` of every function that depends on nothing but its arguments."""
    moving = re.compile(
        r"(?i)current|now\(|rand|uuid|local|shuffle|unix_timestamp\(\)|aes_encrypt|monotonic|uniform|\bOVER\b|\bFROM (VALUES|range|\()|LATERAL| AS S,"
    )
    for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        told = "\n".join(line for (line,) in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name.split('.')[-1]}`").collect())
        yield from (text for text in re.findall(r"> SELECT (.*?);\s*$", told, re.MULTILINE) if not moving.search(text))


def value_and_type(spark, sql):
    """None if the analyser refuses it, or PySpark does not know its type: then a query is refused when it is bound."""
    try:
        frame = spark.sql(f"SELECT {sql} AS it")
        kind = frame.schema[0].dataType
    except Exception:
        return None
    try:
        return kind, str(frame.collect())
    except Exception as error:
        return kind, type(error).__name__
