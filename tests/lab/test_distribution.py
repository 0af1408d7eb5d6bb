"""The laboratory is a distribution of its own: what it announces is there, and it belongs to one version of the product."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from watersmeet_lab.kernels import tuplewise
from watersmeet_lab.simulate import local

ROOT = Path(__file__).parents[2]
LAB: dict[str, Any] = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"]
ANNOUNCED = [(group, *entry) for group, entries in LAB["entry-points"].items() for entry in entries.items()]


@pytest.mark.parametrize(("group", "name", "value"), ANNOUNCED)
def test_what_is_announced_is_installed_and_loads(group, name, value):
    [found] = entry_points(group=group, name=name)
    assert found.value == value
    assert EntryPoint(name, value, group).load() is not None


def test_both_distributions_have_one_version():
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert LAB["version"] == product["version"]
    assert f"watersmeet[spark]=={product['version']}" in LAB["dependencies"]
    assert product["optional-dependencies"]["lab"] == [f"watersmeet-lab=={LAB['version']}"]
    assert LAB["requires-python"] == product["requires-python"]


def test_the_product_takes_its_names_from_here():
    assert [getattr(wm.local, n) for n in ("Link", "Network", "Protocol")] == [
        local.Link,
        local.Network,
        local.Protocol,
    ]
    from watersmeet.kernels.catalogue import find_kernel

    assert find_kernel("ripple") is tuplewise.ripple
