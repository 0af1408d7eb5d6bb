"""Late materialisation: what the join needs travels first, the rest only for tuples that match.

An alias' payload is what only the SELECT (or a condition that Spark evaluates afterwards) asks for. Under
`shipping="semijoin"` its tuples travel with their time, keys and operands, and with a reference to where the payload
lies: (`_in`, `_row`), a segment and a row in it. Results visit the holders of the payloads in later rounds.

What that costs is for `plan.shipping` to say; `auto` ships whole tuples until the rounds runtime has measured the streams.

Invariant: the narrow plan stores and joins exactly the tuples of the whole one; only the columns that leave differ.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from watersmeet.errors import OptionError
from watersmeet.plan.model import TIME, InputPlan, Plan, WireColumn
from watersmeet.plan.options import Given
from watersmeet.query.expr import ColumnRef, column

IN, ROW = "_in", "_row"
"""The wire columns of a reference."""
REFERENCE_BYTES = 16
_FIXED_BYTES = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}
_VARIABLE = ("string", "binary", "array", "map", "struct", "char", "varchar", "variant")
_VARIABLE_BYTES = 32
"""What a value of no fixed width is taken to be before it has been seen."""


def ship(plan: Plan, given: Given) -> Plan:
    """Decide what travels first; under `auto` the runtime decides, if there is anything to decide."""
    shipping = given.options.shipping
    if plan.sites is not None:
        return plan
    if plan.parts:  # the stages of a tree pass whole tuples on
        return plan
    if shipping != "semijoin":
        return replace(plan, shipping="auto") if shipping == "auto" and offers(plan) else plan
    if plan.sequenced:
        raise OptionError("shipping='semijoin': a ROWS window is numbered over whole tuples; use shipping='full'")
    if len(plan.stages) > 1:
        raise OptionError(
            "shipping='semijoin': the stages of a pipeline pass whole tuples on; use shipping='full', or routing='hypercube'"
        )
    if not offers(plan):
        raise OptionError(
            "shipping='semijoin': no stream has columns worth fetching later: those that the join does not need are no wider than a reference; use shipping='full'"
        )
    return defer_payloads(plan, offers(plan))


def offers(plan: Plan) -> tuple[str, ...]:
    """The aliases whose payload may follow later."""
    if plan.sequenced or len(plan.stages) > 1:
        return ()
    return tuple(i.alias for i in plan.inputs if payload_of(plan, i))


def defer_payloads(plan: Plan, aliases: Collection[str]) -> Plan:
    """The plan under which just these aliases' payloads follow later."""
    inputs = tuple(replace(i, payload=payload_of(plan, i) if i.alias in aliases else ()) for i in plan.inputs)
    return replace(plan, inputs=inputs, shipping="semijoin" if aliases else "full")


def narrow(plan: Plan) -> Plan:
    """The plan of the units that join: without payloads, with references."""
    inputs = []
    for source in plan.inputs:
        columns = [c for c in source.columns if c.name not in source.payload]
        if source.payload:
            columns += [WireColumn(name, column(source.alias, name), "bigint", False) for name in (IN, ROW)]
        inputs.append(replace(source, columns=tuple(columns)))
    fetched = {ref for i in plan.inputs for ref in payload_refs(plan, i)}
    references = [ColumnRef(i.alias, name) for i in plan.inputs if i.payload for name in (IN, ROW)]
    output = (*(ref for ref in plan.output if ref not in fetched), *references)
    return replace(plan, inputs=tuple(inputs), output=output)


def payload_refs(plan: Plan, source: InputPlan) -> tuple[ColumnRef, ...]:
    """The columns of results that an alias' payload holds."""
    return tuple(r for r in plan.output if r.alias == source.alias and source.column(r) in source.payload)


def widths(plan: Plan, source: InputPlan) -> tuple[int, int]:
    """Estimated bytes of an alias' tuple, before any has been seen: without its payload, and the payload."""
    payload = payload_of(plan, source)
    late = sum(_width(c.type) for c in source.columns if c.name in payload)
    return sum(_width(c.type) for c in source.columns) - late, late


def payload_of(plan: Plan, source: InputPlan) -> tuple[str, ...]:
    """The wire columns of an alias that only results need, if they are wider than a reference."""
    inside = {ref for e in plan.inside for ref in e.columns if ref.alias == source.alias}
    needed = {TIME, *source.required, *source.keys.values(), *(source.column(ref) for ref in inside)}
    late = [c for c in source.columns if c.name not in needed]
    return tuple(c.name for c in late) if sum(_width(c.type) for c in late) > REFERENCE_BYTES else ()


def _width(type_: str) -> int:
    if type_.startswith(_VARIABLE):
        return _VARIABLE_BYTES
    return 16 if type_.startswith("decimal") else _FIXED_BYTES.get(type_, 8)
