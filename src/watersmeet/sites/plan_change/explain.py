"""A plan across sites as it runs, as text: what was expected of every line, what was counted, and why the plan was chosen.

Invariant: what is said of a line that this site does not know is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.query.duration import show_bytes
from watersmeet.sites.plan_change.choice import Outlook, expect_bytes
from watersmeet.sites.planning.letters import Facts

TITLE = 11
_SHOWN = 3
"""Frequent values of a key that are named by their share."""


def explain_choice(outlook: Outlook, decider: str) -> list[str]:
    """The present plan at a site."""
    placed = outlook.plan.sites
    assert placed is not None
    facts = outlook.facts()
    lines = ["sites      " + ", ".join(f"{s.alias} at {s.site} [{s.window}]" for s in placed.query.streams)]
    chosen = (
        "given"
        if placed.search is None
        else f"chosen by {decider}, change {outlook.epoch}"
        if outlook.epoch
        else "the first one, by what is assumed"
    )
    if outlook.is_held:
        chosen = "by what is assumed; nothing is sent under it: streams are measured first"
    lines.append(f"{'plan':<{TITLE}}{placed.plan} ({chosen})")
    lines += [_title("change", n) + why for n, why in enumerate(outlook.choice.changes[-1:])]
    lines += [_title("letters", n) + line for n, line in enumerate(_explain_lines(outlook, facts))]
    if facts is not None:
        lines += [_title("items", n) + line for n, line in enumerate(_explain_items(outlook, facts))]
        lines += [_title("streams", n) + line for n, line in enumerate(_explain_streams(facts))]
    return lines


def _title(name: str, n: int) -> str:
    return f"{'' if n else name:<{TITLE}}"


def _explain_lines(outlook: Outlook, facts: Facts | None) -> Iterator[str]:
    """Expected and counted bytes of every line."""
    placed, expects, counts = outlook.plan.sites, dict(outlook.expects), outlook.counts()
    assert placed is not None
    if not expects and facts is not None:
        expects = expect_bytes(outlook.search(facts, corrected=False).price(placed.plan), facts)
    pairs = [(x, y) for x in outlook.plan.site_names for y in outlook.plan.site_names if x != y]
    for x, y in pairs:
        letters, size = counts.get(x, {}).get("letters", {}).get(y, (None, None))
        said = [f"expected {show_bytes(expects[f'{x}>{y}'])}/s"] if f"{x}>{y}" in expects else []
        said += (
            [f"counted {show_bytes(size)}/s in {letters:.2g} letters/s"]
            if size is not None and letters is not None
            else []
        )
        line = outlook.line(x, y)
        yield f"{x} > {y}: {', '.join([*said, f'{line.latency_s * 1e3:.3g} ms, {show_bytes(line.bytes_per_s)}/s'])}"


def _explain_items(outlook: Outlook, facts: Facts) -> Iterator[str]:
    """Expected and counted bytes of every kind of item."""
    placed, counts = outlook.plan.sites, outlook.counts()
    assert placed is not None
    for item in outlook.search(facts, corrected=False).price(placed.plan).items:
        counted = counts.get(item.sender, {}).get("kinds", {}).get(item.receiver, {}).get(item.kind)
        said = "" if counted is None else f", counted {show_bytes(counted)}/s"
        yield f"{item.sender} > {item.receiver}: {item.name}: expected {show_bytes(item.bytes)}/s{said}"


def _explain_streams(facts: Facts) -> Iterator[str]:
    for alias, stream in facts.streams.items():
        keys = []
        for number, values in facts.values.items():
            if alias in values.share:
                most = sorted(values.share[alias][values.count == 1.0].tolist(), reverse=True)[:_SHOWN]
                often = (
                    f", the most frequent with {', '.join(f'{share:.0%}' for share in most)} of the tuples"
                    if most
                    else ""
                )
                distinct = float(values.count[values.share[alias] > 0].sum())
                keys.append(f"about {distinct:,.0f} values of K{number}{often}")
        yield f"{alias}: {stream.rate:,.3g} tuples/s of {stream.each:,.0f} bytes; {'; '.join(keys)}"
