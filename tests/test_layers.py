"""Imports point upward only, whether at the top of a module, in a function or under TYPE_CHECKING.

The tables say which layers each layer may import besides itself. sqlglot is known only to `sql`, pyspark only to
`runtime` and the programs above it; `kernels` know NumPy and Numba and nothing else.

The laboratory may import all of the product; the product imports nothing of the laboratory, and only `extensions` asks what is installed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import watersmeet

PACKAGES = {
    "watersmeet": Path(watersmeet.__file__).parent,
    "watersmeet_lab": Path(__file__).parents[1] / "lab" / "watersmeet_lab",
}
_BASE = {"errors", "query"}
_PLANNED = _BASE | {"kernels", "routing", "plan"}
_COLUMNS = _PLANNED | {"columns", "expressions"}
_FLOWING = _COLUMNS | {"storage", "dataflow"}
MAY_IMPORT = {
    "errors": set(),
    "view": {"errors"},
    "extensions": {"errors"},
    "query": {"errors"},
    "sql": _BASE,
    "kernels": {"errors", "extensions"},
    "routing": _BASE | {"kernels"},
    "plan": _BASE | {"extensions", "routing", "sites.planning", "view"},
    "sites.planning": _BASE,
    "columns": _PLANNED,
    "expressions": _PLANNED | {"columns"},
    "storage": _COLUMNS,
    "dataflow": {"errors", "query", "kernels", "storage"},
    "operators": _FLOWING,
    "sites": _FLOWING | {"operators", "sites.planning"},
    "registry": _FLOWING | {"operators"},
    "runtime": _FLOWING | {"operators", "sites", "sites.planning", "registry", "sql", "extensions", "view"},
    "api": {"sql", "query", "plan", "runtime", "errors", "view"},
    "testing": {"api", "columns", "runtime", "dataflow", "kernels", "query", "errors"},
    "__init__": {"query", "plan", "api", "runtime", "testing", "errors", "extensions"},
    "__main__": {"cli"},
}
LAYERS = {*MAY_IMPORT, "cli"}
MAY_IMPORT["cli"] = LAYERS | {""}
"""The layer "" is the package itself: `import watersmeet`."""

ONLY_IN = {"sqlglot": {"sql"}, "pyspark": {"runtime", "cli"}, "watersmeet_lab": set[str]()}
ENTRY_POINTS = (
    "importlib.metadata.entry_points",
    "importlib.metadata.EntryPoints",
    "importlib_metadata",
    "pkg_resources",
)
LAB_MAY_IMPORT = {
    "__init__": set(),
    "kernels": set(),
    "machines": set(),
    "simulate": set(),
    "trace": set(),
    "bench": {"kernels", "machines"},
    "reproduce": {"kernels", "simulate", "bench"},
    "commands": set(),
}
"""Of the laboratory itself; of the product it may import everything, but its kernels only kernels."""


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
    second, third = (*module.split("."), "", "")[1:3]
    if f"{second}.{third}" in LAYERS:
        return f"{second}.{third}"
    return second if second in LAYERS else ""


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What a module imports and must not."""
    package, _, rest = module.partition(".")
    own = (layer_of(module) if package == "watersmeet" else "") or rest.split(".")[0] or "__init__"
    if package == "watersmeet_lab":
        return lab_violations(source, module, own, is_package=is_package)
    found = []
    for name in imported(source, module, is_package=is_package):
        root = name.split(".")[0]
        if root == "watersmeet":
            if layer_of(name) not in MAY_IMPORT[own] | {own}:
                found.append(f"{module}: {own} must not import {name}")
        elif own not in ONLY_IN.get(root, {own}):
            found.append(f"{module}: only {', '.join(sorted(ONLY_IN[root])) or 'the laboratory'} may import {root}")
        elif own != "extensions" and (name == "importlib.metadata" or name.startswith(ENTRY_POINTS)):
            found.append(f"{module}: only extensions ask what is installed")
        elif own == "kernels" and root not in {"numpy", "numba", *sys.stdlib_module_names}:
            found.append(f"{module}: kernels know NumPy and Numba, not {root}")
    return found


def lab_violations(source: str, module: str, own: str, *, is_package: bool) -> list[str]:
    """What a module of the laboratory imports and must not."""
    known = {"numpy", "numba", *sys.stdlib_module_names}
    found = []
    for name in imported(source, module, is_package=is_package):
        root, layer = (*name.split("."), "")[:2]
        if root == "watersmeet_lab":
            if layer not in LAB_MAY_IMPORT[own] | {own}:
                found.append(f"{module}: {own} must not import {name}")
        elif own == "kernels" and root not in known and (root, layer) != ("watersmeet", "kernels"):
            found.append(f"{module}: kernels know NumPy, Numba and kernels, not {name}")
    return found


def modules() -> list[tuple[str, Path]]:
    return [
        (".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"), path)
        for package, folder in PACKAGES.items()
        for path in sorted(folder.rglob("*.py"))
    ]


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_imports_point_upward(module, path):
    assert violations(path.read_text(), module, is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize(("package", "table"), [("watersmeet", MAY_IMPORT), ("watersmeet_lab", LAB_MAY_IMPORT)])
def test_every_layer_is_in_the_table(package, table):
    layers = {(*name.split("."), "__init__")[1] for name, _ in modules() if name.split(".")[0] == package}
    assert layers
    assert layers <= table.keys()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("watersmeet.query.join", "from watersmeet.plan import build"),
        ("watersmeet.query.join", "import watersmeet"),
        ("watersmeet.query.join", "from watersmeet import Stream"),
        ("watersmeet.query.join", "from ..plan.build import plan"),
        ("watersmeet.query.join", "from .. import plan"),
        ("watersmeet.plan.build", "from watersmeet import kernels"),
        ("watersmeet.plan.build", "def f():\n    import watersmeet.operators.join"),
        (
            "watersmeet.plan.build",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame",
        ),
        ("watersmeet.operators.join", "import importlib\nimportlib.import_module('watersmeet.runtime.local')"),
        ("watersmeet.runtime.local", "import sqlglot.expressions as exp"),
        ("watersmeet.runtime.local", "from watersmeet.cli import app"),
        ("watersmeet.kernels.hash", "import pyarrow"),
        ("watersmeet.kernels.hash", "def f():\n    from pandas import DataFrame"),
        ("watersmeet.api", "import pyspark"),
        ("watersmeet.cli.app", "import watersmeet_lab"),
        ("watersmeet.runtime.local", "def f():\n    from watersmeet_lab.simulate import network"),
        ("watersmeet.extensions", "import importlib\nimportlib.import_module('watersmeet_lab.commands')"),
        (
            "watersmeet.runtime.local",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from watersmeet_lab.simulate.network import Link",
        ),
        ("watersmeet.cli.app", "from importlib.metadata import entry_points"),
        ("watersmeet.cli.app", "import importlib.metadata"),
        ("watersmeet_lab.kernels.mjoin", "from watersmeet.storage.segment import Segment"),
        ("watersmeet_lab.kernels.mjoin", "import pyarrow"),
        ("watersmeet_lab.simulate.network", "from watersmeet_lab.bench.data import SEED"),
        ("watersmeet_lab.bench.kernel", "from watersmeet_lab.reproduce import report"),
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
            "import math\nimport numpy as np\nfrom numba import njit\nfrom watersmeet.kernels.hash_window import expand",
        ),
        (
            "watersmeet.runtime.stream.static",
            "from pyspark.sql import DataFrame\nfrom watersmeet.storage import segment",
        ),
        ("watersmeet.extensions", "from importlib.metadata import EntryPoint, entry_points"),
        ("watersmeet.runtime.spark.workers", "from importlib.metadata import version"),
        ("watersmeet_lab.bench.trials.trial", "import watersmeet as wm\nimport pyspark"),
        ("watersmeet_lab.kernels.catalogue", "from watersmeet.kernels import catalogue\nimport numpy as np"),
        ("watersmeet_lab.reproduce.wjoin.lab", "from watersmeet_lab.kernels.catalogue import named"),
    ],
)
def test_the_check_lets_the_allowed_pass(module, source):
    assert violations(source, module) == []


def test_relative_imports_of_a_package():
    assert list(imported("from .build import plan", "watersmeet.plan", is_package=True)) == [
        "watersmeet.plan.build.plan"
    ]
    assert list(imported("from .build import plan", "watersmeet.plan.rules")) == ["watersmeet.plan.build.plan"]
