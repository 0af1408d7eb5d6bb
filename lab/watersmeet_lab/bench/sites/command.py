"""What `watersmeet bench sites` measures: bytes on the wire and tuples per second, under simple plans, under semijoins that are given, and under the plans that the query chooses."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from watersmeet.sites.planning.carriers import CarrierKind
from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.sites.expect import expect_bytes
from watersmeet_lab.bench.sites.lines import Carrier, Lines, open_lines
from watersmeet_lab.bench.sites.trial import Outcome, run
from watersmeet_lab.bench.sites.workload import Workload

Plan = Any
TWO = Workload()
THREE = Workload(streams=3, tuples=100_000, rarity=30, tuples_per_s=5_000, files=20)
NARROW_BITS = 10_000_000
SIMPLE_TWO: Mapping[str, Plan] = {
    "a to b": {"a": "b SP-D", "b": "a SP-S"},
}
"""All of one stream is shipped. Under SP-D and SP-S of one pair the same copy serves both heads."""
SIMPLE_THREE: Mapping[str, Plan] = {
    "a and c to b": {"a": "b SP-D, c SP-S", "b": "a SP-S, c SP-S", "c": "b SP-D, a SP-S"},
    "a to b, b to c": {"a": "b SP-D, c SP-D", "b": "a SP-S, c SP-D", "c": "b SP-S, a SP-D"},
}
"""The second uses all lines evenly: no line carries more than one stream."""
SEMI, AUTO = "semijoins", "auto"
CARRIERS: Mapping[Carrier, CarrierKind] = {"s3": "object store", "kafka": "topics", "folder": "folder"}
SEMI_TWO: Plan = {"a": "b SM-S1", "b": "a SM-S1"}
SEMI_THREE: Plan = {"a": "b SM-D2, c SM-D2", "b": "a SM-S1, c SM-S1", "c": "b SM-D2, a SM-D2"}


def command(
    carrier: Annotated[str, typer.Option(help="s3 or kafka.")] = "s3",
    what: Annotated[str, typer.Option(help="bytes, rate or all.")] = "all",
    text_bytes: Annotated[int, typer.Option(help="The payload of a tuple.")] = 1000,
    json_: Annotated[Path | None, typer.Option("--json", help="Write raw results to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="A tenth of the tuples.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only these plans, such as semijoins and auto.")] = None,
    longer: Annotated[
        int,
        typer.Option(
            help="Streams are so many times as long: applications that start, and a first plan, count for less.", min=1
        ),
    ] = 1,
) -> None:
    """One Spark application for each site: bytes on the sender's line, latency, and tuples/s over 10 Mbit/s."""
    console, found = Console(), dict[str, Any]()
    share = 10 if quick else 1
    with tempfile.TemporaryDirectory(prefix="watersmeet-sites-", dir="/var/tmp") as scratch:
        if what in ("bytes", "all"):
            plans = _pick({**SIMPLE_TWO, SEMI: SEMI_TWO, AUTO: AUTO}, only)
            workload = lengthen(scale(TWO, share, text_bytes), longer)
            found["bytes"] = measure_bytes(console, Path(scratch) / "bytes", _carrier(carrier), workload, plans)
        if what in ("rate", "all"):
            plans = _pick({**SIMPLE_THREE, SEMI: SEMI_THREE, AUTO: AUTO}, only)
            workload = lengthen(scale(THREE, share, text_bytes), longer)
            found["rate"] = measure_rate(console, Path(scratch) / "rate", _carrier(carrier), workload, plans)
    if json_ is not None:
        json_.write_text(json.dumps({**found, "carrier": carrier, "machine": describe()}, indent=1))


def _carrier(name: str) -> Carrier:
    if name not in ("s3", "kafka"):
        raise typer.BadParameter(f"{name!r}: there are s3 and kafka")
    return name  # type: ignore[return-value]


def _pick(plans: Mapping[str, Plan], only: list[str] | None) -> dict[str, Plan]:
    if unknown := [name for name in only or () if name not in plans]:
        raise typer.BadParameter(f"{unknown[0]!r}: there are {', '.join(plans)}")
    return {name: plan for name, plan in plans.items() if not only or name in only}


def scale(workload: Workload, share: int, text_bytes: int) -> Workload:
    """A part of the tuples, of another size."""
    files = workload.files // min(share, 4)
    return replace(workload, tuples=workload.tuples // share, files=files, text_bytes=text_bytes)


def lengthen(workload: Workload, times: int) -> Workload:
    """The same rates for longer."""
    return replace(workload, tuples=workload.tuples * times, files=workload.files * times)


def measure_bytes(
    console: Console, root: Path, carrier: Carrier, workload: Workload, plans: Mapping[str, Plan]
) -> dict[str, Any]:
    """Two sites, files at a pace."""
    root.mkdir(parents=True)
    with open_lines(root, tuple(workload.site_of.values()), carrier, None) as lines:
        outcomes = {
            name: run(lines, workload, root, f"plan{n}", 2.0, plan=plan) for n, (name, plan) in enumerate(plans.items())
        }
        show(console, f"two sites, {lines.kind}, {carrier}", workload, outcomes, carrier)
        return _raw(lines, workload, outcomes, carrier)


def measure_rate(
    console: Console, root: Path, carrier: Carrier, workload: Workload, plans: Mapping[str, Plan]
) -> dict[str, Any]:
    """Three sites over narrow lines, as fast as they go."""
    root.mkdir(parents=True)
    with open_lines(root, tuple(workload.site_of.values()), carrier, NARROW_BITS) as lines:
        outcomes = {
            name: run(lines, workload, root, f"plan{n}", plan=plan, trigger="0 seconds")
            for n, (name, plan) in enumerate(plans.items())
        }
        show(console, f"three sites, 10 Mbit/s, {lines.kind}, {carrier}", workload, outcomes, carrier)
        return _raw(lines, workload, outcomes, carrier)


def _raw(lines: Lines, workload: Workload, outcomes: Mapping[str, Outcome], carrier: Carrier) -> dict[str, Any]:
    return {
        "lines": lines.kind,
        "workload": asdict(workload),
        "outcomes": {
            name: {**asdict(outcome), "expected": _expect(workload, outcome, carrier)}
            for name, outcome in outcomes.items()
        },
    }


def _expect(workload: Workload, outcome: Outcome, carrier: Carrier) -> float | None:
    """What the plan says it ships; None where it is not given beforehand."""
    if not isinstance(outcome.plan, Mapping):
        return None
    letters = sum(letters for letters, _, _ in outcome.letters.values())
    return expect_bytes(workload, outcome.plan, letters, CARRIERS[carrier])


def show(
    console: Console, title: str, workload: Workload, outcomes: Mapping[str, Outcome], carrier: Carrier = "s3"
) -> None:
    """Every plan, and how it compares with the best of the others and with one stream, whole."""
    table = Table(title=title, title_justify="left")
    for name in ("plan", "sent, bytes", "by the plan", "in letters", "letters", "tuples/s", "latency, s"):
        table.add_column(name, justify="left" if name == "plan" else "right")
    for name, outcome in outcomes.items():
        letters = [sum(counts[n] for counts in outcome.letters.values()) for n in (0, 2)]
        expected = _expect(workload, outcome, carrier)
        table.add_row(
            name,
            f"{outcome.total_sent:,}",
            "-" if expected is None else f"{expected:,.0f} ({outcome.total_sent / expected:.2f})",
            f"{letters[1]:,}",
            f"{letters[0]:,}",
            f"{outcome.tuples_per_s:,.0f}",
            ", ".join(f"{x:.1f}" for x in outcome.latency_s) or "-",
        )
    console.print(table)
    simple = [outcome for name, outcome in outcomes.items() if name not in (SEMI, AUTO)]
    for name in (n for n in (SEMI, AUTO) if n in outcomes):
        sent, rate = outcomes[name].total_sent, outcomes[name].tuples_per_s
        said = [f"{sent / (workload.tuples * workload.text_bytes):.3f} of the texts of one stream"]
        if simple:
            least, fastest = min(o.total_sent for o in simple), max(o.tuples_per_s for o in simple)
            said.append(f"{sent / least:.3f} of the bytes of the simple plan that sends least")
            said.append(f"{rate / fastest:.1f} times the tuples/s of the fastest")
        console.print(f"{name}: {', '.join(said)}")
