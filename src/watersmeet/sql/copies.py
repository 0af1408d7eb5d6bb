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


def copy_tree(node: Any, put: Put | None = None) -> Any:
    """A copy of a tree; below a node that another stands for, nothing is copied.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("a + b * 2")
    >>> copy_tree(tree, lambda n: exp.column("c") if isinstance(n, exp.Literal) else None).sql(), tree.sql()
    ('a + b * c', 'a + b * 2')
    """
    if put is not None and (other := put(node)) is not None:
        return other
    kind: Any = type(node)
    made = kind.__new__(kind)  # its constructor would look at every part again to tell it its parent
    made.args = args = {}
    made.parent = made.arg_key = made.index = made.comments = made._hash = None
    made._type = node._type
    made._meta = None if node._meta is None else dict(node._meta)
    for name, value in node.args.items():
        if isinstance(value, exp.Expr):
            args[name] = _hang(copy_tree(value, put), made, name, None)
        elif type(value) is list:
            args[name] = [
                _hang(copy_tree(item, put), made, name, n) if isinstance(item, exp.Expr) else item
                for n, item in enumerate(value)
            ]
        else:
            args[name] = value
    return made


def _hang(part: Any, parent: Any, name: str, index: int | None) -> Any:
    """A part that knows where it stands."""
    part.parent, part.arg_key, part.index = parent, name, index
    return part


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
