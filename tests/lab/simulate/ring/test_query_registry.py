"""Queries of a ring: numbers, shared templates, and what is removed."""

from __future__ import annotations

import pytest

from tests.lab.simulate.ring.test_unit import CHAIN, unit_of
from watersmeet.errors import OptionError
from watersmeet_lab.simulate.ring.query_registry import QueryRegistry


def test_a_removed_query_cannot_be_removed_again():
    registry = QueryRegistry(unit_of().catalogue)
    query, new = registry.add(CHAIN, 1)
    assert (query, new) == (0, [0])
    assert registry.add(CHAIN, 2) == (1, [])
    registry.remove(0, 5)
    with pytest.raises(OptionError, match="query 0 is not in force"):
        registry.remove(0, 6)
    assert registry.add(CHAIN, 7) == (2, [])
    registry.remove(1, 8)
    registry.remove(2, 8)
    assert registry.add(CHAIN, 9) == (3, [1])  # nobody held the template any more
