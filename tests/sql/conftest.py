"""Streams that the SQL tests bind against."""

import pytest

from watersmeet.query.stream import StreamSpec
from watersmeet.sql.parse import parse

SCHEMA = {"k": "bigint", "j": "bigint", "v": "double", "name": "string", "ts": "timestamp"}


@pytest.fixture(scope="session")
def streams():
    specs = {f"s{i}": StreamSpec(f"s{i}", SCHEMA, time="ts") for i in range(4)}
    nested = {
        "id": "int",
        "s": "struct<x:int,y:struct<z:string>>",
        "odd name": "int",
        "Mixed": "int",
        "arr": "array<int>",
        "window": "int",
        "at": "timestamp",
    }
    specs["nested"] = StreamSpec("nested", nested, time="at")
    return specs


@pytest.fixture
def bound(streams):
    return lambda text: parse(text, streams)


@pytest.fixture
def joined(bound):
    """Binds a WHERE (and what follows) over s0 a and s1 b."""
    return lambda where: bound(f"SELECT a.k FROM s0 a, s1 b WHERE {where}")
