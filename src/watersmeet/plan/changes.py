"""What differs between the description that a state was stored under and a query's own, piece by piece.

    windows       b - a: -10 s to 10 s was -20 s to 20 s
    filters       b.x > 3 is new
    routing       hash over 3 units (K0:3) was hash over 4 units (K0:4)

What becomes of a part that differs is for `runtime.checkpoints.verdicts` to say, which knows the state.

Invariant: nothing differs if and only if the fingerprints are the same; every piece that differs is named with what it was and what it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from watersmeet.plan.fingerprint import INPUTS, find_differences, name_part, parts_of
from watersmeet.query.duration import show_us
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.biclique import Biclique

Description = Mapping[str, Any]
Pieces = dict[str, dict[str, str]]
"""By the name of a part, what it consists of: texts by name."""
Verdict = Literal["impossible", "refilled", "dropped", "kept"]
VERDICTS: tuple[Verdict, ...] = ("impossible", "refilled", "dropped", "kept")
"""The worst first."""
_ORDERED = "they are written in another order"


@dataclass(frozen=True)
class Change:
    """A part of a description, and what becomes of it."""

    part: str
    verdict: Verdict
    why: str = ""

    def __str__(self) -> str:
        return f"{self.part}: {self.why}" if self.why else self.part


def find_differences_of(stored: Description, now: Description) -> dict[str, str]:
    """By every part of two descriptions how they differ, in words; nothing where they do not."""
    before, after = take_apart(stored), take_apart(now)
    out = {
        part: "; ".join(_differences(before.get(part, {}), after.get(part, {})))
        for part in dict.fromkeys([*after, *before])
    }
    for part in find_differences(parts_of(stored), parts_of(now)):
        if not out.get(part):  # words leave something out
            was, own = _quote(stored, now, part), _quote(now, stored, part)
            out[part] = "" if was == own else _ORDERED if part == "filters" else f"{own} was {was}"
    return out


def _quote(description: Description, other: Description, part: str) -> str:
    """A part as it is stored; of aliases those that the other one has, too."""
    known = {i[0] for i in other.get("inputs", [])}
    found: dict[str, Any] = {key: value for key, value in description.items() if name_part(key) == part}
    if part in INPUTS:
        place = INPUTS.index(part)
        found |= {i[0]: i[place] for i in description.get("inputs", []) if i[0] in known}
    return json.dumps(found, sort_keys=True)


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys([*new, *old]):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        if was is None:
            yield f"{_show(name, now)} is new"
        elif now is None:
            yield f"{_show(name, was)} is gone"
        else:
            yield f"{name}: {now} was {was}" if name else f"{now} was {was}"


def _show(name: str, text: str | None) -> str:
    """A piece by itself.

    >>> _show("c.v", "double, stored as c2"), _show("a.x > 3", ""), _show("", "true")
    ('c.v (double, stored as c2)', 'a.x > 3', 'true')
    """
    return name if text is None or text in ("", name) else f"{name} ({text})" if name else text


def take_apart(description: Description) -> Pieces:
    """The pieces of a description, by the part that users know them under.

    >>> take_apart({"lateness": {"clicks": [10_000_000, None]}, "windows": [[0, 5_000_000], [0, 0]], "inputs": [["a", "s", [], [], None], ["b", "t", [], [], None]]})["windows"]
    {'b - a': '0 s to 5 s'}
    """
    out: Pieces = {}
    inputs = description.get("inputs", [])
    for place, (alias, stream, columns, filters, rows) in enumerate(inputs):
        out.setdefault("streams and aliases", {})[f"{place + 1}. {alias}"] = str(stream)
        for wire, expr, kind in columns:
            out.setdefault("columns and their types", {})[_of(alias, expr)] = f"{kind}, stored as {wire}"
        out.setdefault("filters", {}).update({_of(alias, text): "" for text in _tell_apart(filters)})
        if rows is not None:
            out.setdefault("[ROWS n]", {})[alias] = str(rows)
    for key, value in description.items():
        if key != "inputs":
            out.setdefault(name_part(key), {}).update(_PIECES.get(key, _whole)(value, [i[0] for i in inputs]))
    return out


def _of(alias: str, text: str) -> str:
    """An expression of an alias, which most name already."""
    return text if f"{alias}." in text else f"{alias} {text}"


def _windows(bounds: Any, aliases: list[str]) -> dict[str, str]:
    names = aliases or [str(n) for n in range(len(bounds))]
    return {
        f"{names[y]} - {names[x]}": f"{_show_bound(-bounds[y][x])} to {_show_bound(bounds[x][y])}"
        for x in range(len(bounds))
        for y in range(x + 1, len(bounds))
    }


def _alternatives(graphs: Any, aliases: list[str]) -> dict[str, str]:
    """The ways that a PATH leaves."""
    ways = [_windows(bounds, aliases).items() for bounds in graphs]
    return {f"way {n}": ", ".join(f"{pair} {text}" for pair, text in way) for n, way in enumerate(ways, start=1)}


def _show_bound(us: int) -> str:
    return "no bound" if abs(us) >= UNBOUNDED else show_us(us)


def _lateness(spans: Any, _: list[str]) -> dict[str, str]:
    return {
        stream: show_us(late) + ("" if idle is None else f", idle {show_us(idle)}")
        for stream, (late, idle) in spans.items()
    }


def _keys(classes: Any, _: list[str]) -> dict[str, str]:
    return {" = ".join(members.values()): kind for kind, members in classes}


def _texts(conditions: Any, _: list[str]) -> dict[str, str]:
    return dict.fromkeys(_tell_apart(conditions), "")


def _routing(placement: Any, _: list[str]) -> dict[str, str]:
    """One join, or several that follow each other.

    >>> _routing(["hash", [4, 2], [[0], [1, 2]]], [])
    {'': 'hash over 8 units (K0:4 x K1+K2:2)'}
    >>> _routing([[["a", "b"], {"sides": [[[0, 1]], [[2]]], "by": None}]], [])
    {'a with b': 'biclique, random, 2 units for a and 1 unit for b'}
    """
    if placement and isinstance(placement[0], str):
        return {"": _show_grid(placement)}
    return {" with ".join(sides): _show_placement(sides, routing) for sides, routing in placement}


def _show_placement(sides: list[str], routing: Any) -> str:
    if not isinstance(routing, Mapping):
        return _show_grid(routing)
    found = Biclique.from_json(routing)
    held = " and ".join(
        f"{_count_units(len(units))} for {side}" for side, units in zip(sides, found.members, strict=True)
    )
    return f"biclique, {found.kind}, {held}"


def _show_grid(routing: Any) -> str:
    """A grid in words; any other routing as it is stored."""
    try:
        kind, shares, dimensions = routing
        grid = [f"{'+'.join(f'K{c:d}' for c in d)}:{s:d}" for d, s in zip(dimensions, shares, strict=True)]
    except (TypeError, ValueError):
        return json.dumps(routing, sort_keys=True)
    return f"{kind} over {_count_units(math.prod(shares))}" + (f" ({' x '.join(grid)})" if grid else "")


def _count_units(count: int) -> str:
    return f"{count} unit{'' if count == 1 else 's'}"


def _joins(tree: Any, _: list[str]) -> dict[str, str]:
    """The joins of a tree, inputs first.

    >>> _joins(["left", ["r", "s"], ["r.k = s.k"], [[["r", "s", 4_000_000]]], None], [])
    {'r LEFT JOIN s': 'ON r.k = s.k, s - r <= 4 s'}
    """
    if isinstance(tree, str):
        return {}
    kind, inputs, conditions, ways, nearest = tree
    windows = ", or ".join(", ".join(f"{young} - {old} <= {_show_bound(us)}" for old, young, us in way) for way in ways)
    on = [*conditions, windows, "" if nearest is None else "the nearest of {}.ts {} {}.ts".format(*nearest)]
    own = {f" {kind.upper()} JOIN ".join(map(_show_tree, inputs)): f"ON {', '.join(filter(None, on))}"}
    return {name: text for found in (*(_joins(i, []) for i in inputs), own) for name, text in found.items()}


def _show_tree(tree: Any) -> str:
    return tree if isinstance(tree, str) else f"({f' {tree[0].upper()} JOIN '.join(map(_show_tree, tree[1]))})"


def _tables(lookups: Any, _: list[str]) -> dict[str, str]:
    """Who is joined with which table.

    >>> _tables([["o", ["u", "users", "left", ["u.id = o.user"]]]], [])
    {'o LEFT JOIN u': 'users ON u.id = o.user'}
    """
    return {
        f"{alias} {kind.upper()} JOIN {own}": f"{table} ON {' AND '.join(on)}"
        for alias, (own, table, kind, on) in lookups
    }


def _finish(finish: Any, _: list[str]) -> dict[str, str]:
    """What DISTINCT or GROUP BY keeps.

    >>> told = {"kind": "group", "columns": [["o.k", "bigint"], ["count(*)", "bigint"]], "partials": [["count", None, "bigint"]], "keys": 1, "units": 2}
    >>> _finish(told, [])
    {'': 'GROUP BY o.k (bigint) with count(*) (bigint), at 2 units'}
    """
    columns = [f"{expr} ({kind})" for expr, kind in finish["columns"]]
    keys, rest = columns[: finish["keys"]], columns[finish["keys"] :]
    over = f", over window({finish['window'][0]}.ts)" if "window" in finish else ""
    spans = [show_us(us) for us in finish["window"][1:]] if over else []
    title = "DISTINCT" if finish["kind"] == "distinct" else "GROUP BY"
    values = f" with {', '.join(rest)}" if rest else ""
    sizes = f" of {spans[0]} every {spans[1]} from {spans[2]} on" if spans else ""
    return {"": f"{title} {', '.join(keys)}{values}{over}{sizes}, at {_count_units(finish['units'])}"}


def _spans(spans: Any, _: list[str]) -> dict[str, str]:
    return {stream: show_us(us) for stream, us in spans.items()}


def _tell_apart(texts: Iterable[str]) -> Iterator[str]:
    """Conditions by texts that differ, also where one is written more than once: the state of such a query is another one's.

    >>> list(_tell_apart(["a.v <= b.v", "a.v <= b.v"]))
    ['a.v <= b.v', 'a.v <= b.v, again']
    """
    seen: set[str] = set()
    for text in texts:
        while text in seen:
            text = f"{text}, again"
        seen.add(text)
        yield text


def _whole(value: Any, _: list[str]) -> dict[str, str]:
    return {"": json.dumps(value, sort_keys=True)}


_PIECES = {"windows": _windows, "lateness": _lateness, "classes": _keys, "conditions": _texts, "routing": _routing}
_PIECES |= {"joins": _joins, "tables": _tables, "finish": _finish, "max_ahead": _spans, "alternatives": _alternatives}
