"""Copies of sqlglot trees in one pass, with other nodes in the place of some; and their nodes.

sqlglot's own copy is a deep copy of everything, meta data among it, and its walk goes through four generators for each node. Registered queries are copied by the thousand: names are resolved in a copy, and slots are put into another.

Invariant: the tree that is copied stays as it is. Comments are left out: nothing that we write has any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

Put = Callable[[Any], Any]
"""A node that stands for another one, or None if that is copied like the others."""


def copy_tree(node: Any, put: Put = lambda node: None) -> Any:
    """A copy of a tree; below a node that another stands for, nothing is copied.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("a + b * 2")
    >>> copy_tree(tree, lambda n: exp.column("c") if isinstance(n, exp.Literal) else None).sql(), tree.sql()
    ('a + b * c', 'a + b * 2')
    """
    other = put(node)
    if other is not None:
        return other
    made = type(node)(**{name: _copy_value(value, put) for name, value in node.args.items()})
    made._type = node._type
    if node._meta is not None:
        made._meta = dict(node._meta)
    return made


def list_nodes(node: Any) -> list[Any]:
    """A tree's nodes, level by level.

    >>> from sqlglot import parse_one
    >>> [type(n).__name__ for n in list_nodes(parse_one("a + 2"))]
    ['Add', 'Column', 'Literal', 'Identifier']
    """
    found = [node]
    for part in found:
        for value in part.args.values():
            if isinstance(value, exp.Expr):
                found.append(value)
            elif type(value) is list:
                found += [item for item in value if isinstance(item, exp.Expr)]
    return found


def list_columns(node: Any) -> list[Any]:
    """The columns in a tree."""
    return [part for part in list_nodes(node) if isinstance(part, exp.Column)]


def _copy_value(value: Any, put: Put) -> Any:
    if isinstance(value, exp.Expr):
        return copy_tree(value, put)
    if type(value) is list:
        return [_copy_value(item, put) for item in value]
    return value
