"""Imports point upward only (DESIGN.md section 4), whether at the top of a module, in a function or under TYPE_CHECKING.

The table says which layers each layer may import besides itself. sqlglot is known only to `sql`, pyspark only to
`runtime` and the programs above it; `kernels` know NumPy and Numba and nothing else.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import watersmeet

PACKAGE = Path(watersmeet.__file__).parent
TOP = ("cli", "bench", "reproduce")
LAYERS = {"errors", "query", "sql", "routing", "kernels", "plan", "units", "runtime", "api", *TOP}
MAY_IMPORT = {
    "errors": set(),
    "query": {"errors"},
    "sql": {"query", "errors"},
    "kernels": {"errors"},
    "routing": {"query", "errors", "kernels"},
    "plan": {"query", "errors", "routing"},
    "units": {"query", "plan", "kernels", "routing", "errors"},
    "runtime": {"sql", "query", "plan", "kernels", "routing", "units", "errors"},
    "api": {"sql", "query", "plan", "runtime", "errors"},
    "__init__": {"query", "plan", "api", "runtime", "errors"},
    "__main__": {"cli"},
    "cli": LAYERS | {""},
    "bench": LAYERS | {""},
    "reproduce": LAYERS | {""},
}
"""The layer "" is the package itself: `import watersmeet`."""

ONLY_IN = {"sqlglot": {"sql"}, "pyspark": {"runtime", *TOP}}


def imported(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """The full names of all modules that a module's source imports, relative ones resolved."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            yield from (str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant))


def layer_of(module: str) -> str:
    """The layer of one of our modules; a name taken from the package itself belongs to no layer."""
    second = (*module.split("."), "")[1]
    return second if second in LAYERS else ""


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What a module imports and must not."""
    own = "__init__" if module == "watersmeet" else module.split(".")[1]
    found = []
    for name in imported(source, module, is_package=is_package):
        root = name.split(".")[0]
        if root == "watersmeet":
            if layer_of(name) not in MAY_IMPORT[own] | {own}:
                found.append(f"{module}: {own} must not import {name}")
        elif own not in ONLY_IN.get(root, {own}):
            found.append(f"{module}: only {', '.join(sorted(ONLY_IN[root]))} may import {root}")
        elif own == "kernels" and root not in {"numpy", "numba", *sys.stdlib_module_names}:
            found.append(f"{module}: kernels know NumPy and Numba, not {root}")
    return found


def modules() -> list[tuple[str, Path]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [
        (".".join(("watersmeet", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"), path)
        for path in paths
    ]


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_imports_point_upward(module, path):
    assert violations(path.read_text(), module, is_package=path.name == "__init__.py") == []


def test_every_layer_is_in_the_table():
    layers = {(*name.split("."), "__init__")[1] for name, _ in modules()}
    assert layers <= MAY_IMPORT.keys()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("watersmeet.query.join", "from watersmeet.plan import build"),
        ("watersmeet.query.join", "import watersmeet"),
        ("watersmeet.query.join", "from watersmeet import Stream"),
        ("watersmeet.query.join", "from ..plan.build import plan"),
        ("watersmeet.query.join", "from .. import plan"),
        ("watersmeet.plan.build", "from watersmeet import kernels"),
        ("watersmeet.plan.build", "def f():\n    import watersmeet.units.join"),
        (
            "watersmeet.plan.build",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame",
        ),
        ("watersmeet.units.join", "import importlib\nimportlib.import_module('watersmeet.runtime.local')"),
        ("watersmeet.runtime.local", "import sqlglot.expressions as exp"),
        ("watersmeet.runtime.local", "from watersmeet.cli import app"),
        ("watersmeet.kernels.hash", "import pyarrow"),
        ("watersmeet.kernels.hash", "def f():\n    from pandas import DataFrame"),
        ("watersmeet.api", "import pyspark"),
    ],
)
def test_the_check_sees_a_violation(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("watersmeet.query.join", "from watersmeet.errors import QueryError\nfrom .expr import Expr"),
        (
            "watersmeet.kernels.hash",
            "import math\nimport numpy as np\nfrom numba import njit\nfrom watersmeet.kernels.expand import expand",
        ),
        ("watersmeet.runtime.spark_stream", "from pyspark.sql import DataFrame\nfrom watersmeet.units import step"),
        ("watersmeet.bench.trial", "import watersmeet as wm\nimport pyspark"),
    ],
)
def test_the_check_lets_the_allowed_pass(module, source):
    assert violations(source, module) == []


def test_relative_imports_of_a_package():
    assert list(imported("from .build import plan", "watersmeet.plan", is_package=True)) == [
        "watersmeet.plan.build.plan"
    ]
    assert list(imported("from .build import plan", "watersmeet.plan.rules")) == ["watersmeet.plan.build.plan"]
