"""Which Sparks are accepted, and that one module alone knows how they differ."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StructType, TimestampNTZType, TimestampType

import watersmeet
from tests.matrix import VERSIONS, main
from watersmeet.errors import OptionError, StreamError
from watersmeet.runtime.spark import versions as spark_versions
from watersmeet.runtime.spark.versions import (
    TESTED,
    arrow_schema,
    check_connect,
    check_version,
)

ROOT = Path(__file__).parents[3]
SOURCES = sorted([*Path(watersmeet.__file__).parent.rglob("*.py"), *(ROOT / "lab" / "watersmeet_lab").rglob("*.py")])


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "5.0.0.dev1"])
@pytest.mark.parametrize("of", ["library", "session"])
def test_a_spark_that_nobody_has_tested_is_refused(version: str, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if of == "library":
        monkeypatch.setattr(spark_versions.pyspark, "__version__", version)
    session = SimpleNamespace(version=version if of == "session" else "4.1.4")
    with pytest.raises(OptionError, match=rf"this is Spark {version}: watersmeet runs on Spark 4\.0 to 4\.3; install"):
        check_version(session)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.1", "4.3.0", "4.3.1-SNAPSHOT"])
def test_a_tested_spark_is_accepted(version: str) -> None:
    check_version(SimpleNamespace(version=version))


def test_what_is_accepted_is_what_is_installed_and_what_the_matrix_runs() -> None:
    assert [".".join(map(str, version)) for version in TESTED] == list(VERSIONS)
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (oldest, newest), above = (TESTED[0], TESTED[-1]), TESTED[-1][1] + 1
    assert f"pyspark>={oldest[0]}.{oldest[1]},<{newest[0]}.{above}" in project["optional-dependencies"]["spark"]


def test_a_matrix_of_other_versions_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["4.1", "3.5"]) == 2
    assert "no Spark 3.5 in the matrix; there are 4.0, 4.1, 4.2, 4.3" in capsys.readouterr().err


class ConnectFrame:
    """Looks like a frame of a Spark Connect session."""


ConnectFrame.__module__ = "pyspark.sql.connect.dataframe"


@pytest.mark.parametrize("version", TESTED)
def test_frames_of_connect_need_a_spark_whose_connect_can(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_versions, "INSTALLED", version)
    check_connect(object(), "start()")
    if version >= (4, 1):
        check_connect(ConnectFrame(), "start()")
    else:
        with pytest.raises(StreamError, match=r"start\(\) runs on Spark Connect from Spark 4\.1 on.* classic"):
            check_connect(ConnectFrame(), "start()")


def test_timestamps_are_utc_in_arrow() -> None:
    inner = StructType().add("u", TimestampType())
    fields = StructType().add("t", TimestampType()).add("s", inner).add("n", TimestampNTZType()).add("i", IntegerType())
    schema = arrow_schema(fields)
    utc = pa.timestamp("us", tz="UTC")
    assert [schema.field(name).type for name in "tsni"] == [
        utc,
        pa.struct([("u", utc)]),
        pa.timestamp("us"),
        pa.int32(),
    ]


def suspicions(source: str) -> list[str]:
    """Where a module compares versions of Spark, tries an import or looks at a session's kind."""
    found = [f"line {n}: {line.strip()}" for n, line in enumerate(source.splitlines(), 1) if _TELLS.search(line)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try) and re.search(r"\b(import|from) pyspark", "\n".join(map(ast.unparse, node.body))):
            found.append(f"line {node.lineno}: try an import")
    return found


_TELLS = re.compile(r"pyspark\.__version__|(spark|session|sparkContext)\.version\b|pyspark\.sql\.connect|is_remote")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_one_module_knows_the_versions(path: Path) -> None:
    if path.name != "versions.py":
        assert suspicions(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pyspark\nnew = pyspark.__version__ > '4.1'",
        "old = spark.version.startswith('4.0')",
        "try:\n    import pyspark.errors\nexcept (ImportError, KeyError):\n    pass",
        "from pyspark.sql.connect import DataFrame",
    ],
)
def test_the_check_sees_a_comparison(source: str) -> None:
    assert suspicions(source)
