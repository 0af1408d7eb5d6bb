"""Section 3.4.2 and appendix B, figures 13 and 14: online aggregation over the join, in two phases.

The query is asked with its GROUP BY. After every batch a unit aggregates its results to a local view (`operators.join`) and ships
that to the merger; the alternative ships a row of the same columns for every result. The merged views must be DuckDB's groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from watersmeet.operators.finish.views import compute_values, merge_views
from watersmeet_lab.reproduce.bistream.answer import WrongAnswerError, groups
from watersmeet_lab.reproduce.bistream.claims.work import rate
from watersmeet_lab.reproduce.bistream.cluster import Cluster, Outcome
from watersmeet_lab.reproduce.bistream.lab import Lab
from watersmeet_lab.reproduce.bistream.models import content_sensitive
from watersmeet_lab.reproduce.bistream.queries import QUERIES
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, verdict

NEGLIGIBLE = 0.1
FEW = 3
"""Batches of a run in large batches: at the paper's rates (9K to 450K tuples/s) each is a fraction of a second to some seconds."""


@dataclass(frozen=True)
class Aggregation:
    """A run without and with aggregation."""

    plain: Outcome
    grouped: Outcome

    @property
    def slower(self) -> float:
        """By which share aggregation lowers the throughput."""
        return 1 - rate(self.grouped) / rate(self.plain)

    @property
    def extra_ms(self) -> float:
        """What a view takes, per unit and batch."""
        steps = self.plain.over_time("service_s").size
        return 1000 * (self.grouped.total("service_s") - self.plain.total("service_s")) / steps

    @property
    def results(self) -> int:
        return int(self.plain.total("results"))

    @property
    def views(self) -> int:
        """Rows of all local views."""
        return int(self.grouped.total("results"))

    @property
    def views_bytes(self) -> int:
        return sum(t.nbytes for _, _, t in self.grouped.tables)

    @property
    def results_bytes(self) -> float:
        """What a row like a view's for every result would take."""
        return self.views_bytes / max(self.views, 1) * self.results


def check_aggregation(lab: Lab) -> list[Claim]:
    """Figures 13 and 14, in the batches of the other claims and in a few large ones: the savings depend on it."""
    found: list[dict[str, Aggregation]] = [{}, {}]
    for q in lab.queries:
        for model in ("JB16", content_sensitive(QUERIES[q], 16, 4)):
            large = lab.repeat(lab.run(lab.feed(q), model, FEW, ", large batches"))
            for by, plain in zip(found, (lab.run_repeatedly(q, model), large), strict=True):
                lab.say(f"{q}, {model}, grouped")
                by[f"{q} {model}"] = aggregate(plain, lab.size.repeats)
    return [_overhead(*found), _bandwidth(lab, *found)]


def aggregate(plain: Outcome, repeats: int = 1) -> Aggregation:
    """The same run with aggregation, its groups checked; the least seconds of some repetitions."""
    feed = replace(plain.feed, grouped=True)
    best: Outcome | None = None
    for _ in range(repeats):
        cluster = Cluster(feed, plain.model)
        outcome = cluster.run(len(plain.batches))
        check(cluster, outcome)
        for batch, other in zip(outcome.batches, (best or outcome).batches, strict=True):
            batch.service_s = np.minimum(batch.service_s, other.service_s)
        best = outcome
    assert best is not None
    return Aggregation(plain, best)


def check(cluster: Cluster, outcome: Outcome) -> None:
    """Raise if the merged views are not DuckDB's groups."""
    made = compute_values(cluster.plan, merge_views(cluster.plan, [t for _, _, t in outcome.tables]))
    got = sorted(zip(*(c.to_pylist() for c in made.columns), strict=True))
    want = groups(outcome.feed)
    if len(got) != len(want) or not all(
        _close(a, b) for g, w in zip(got, want, strict=True) for a, b in zip(g, w, strict=True)
    ):
        raise WrongAnswerError(
            f"{outcome.model.name} on {outcome.feed.query.name}: merged local views are not DuckDB's groups; please report this"
        )


def _close(a: Any, b: Any) -> bool:
    return math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) else bool(a == b)


def _overhead(usual: dict[str, Aggregation], large: dict[str, Aggregation]) -> Claim:
    shares = [{name: a.slower for name, a in by.items()} for by in (usual, large)]
    extra = sorted(a.extra_ms for a in usual.values())
    return Claim(
        "Aggregation costs next to nothing: units aggregate their results as they make them",
        "B, figure 13",
        "negligible impact on throughput, JB16 and JB16-CR4",
        f"one view per unit and batch; merged views equal DuckDB's groups in {len(usual) + len(large)} runs",
        verdict([s <= NEGLIGIBLE for found in shares for s in found.values()]),
        times=f"throughput is lower by {each(shares[0], '{:.0%}')}; in {FEW} large batches by {each(shares[1], '{:.0%}')}"
        f" (up to {NEGLIGIBLE:.0%} counts as negligible): a view takes {extra[0]:.1f} to {extra[-1]:.1f} ms of a unit and batch",
        raw={"extra_ms": extra, "slower": shares[0], "slower_in_large_batches": shares[1]},
    )


def _bandwidth(lab: Lab, usual: dict[str, Aggregation], large: dict[str, Aggregation]) -> Claim:
    chosen = {q: f"{q} {content_sensitive(QUERIES[q], 16, 4)}" for q in lab.queries}
    ratios = [{q: by[name].results_bytes / by[name].views_bytes for q, name in chosen.items()} for by in (usual, large)]
    series = {
        "per result": [usual[name].results_bytes / 1000 for name in chosen.values()],
        "views per batch": [usual[name].views_bytes / 1000 for name in chosen.values()],
        "views per large batch": [large[name].views_bytes / 1000 for name in chosen.values()],
    }
    title = "Figure 14: units to merger, whole run"
    return Claim(
        "Local views in batches ship far less to the merger than an update per result",
        "B, figure 14",
        "greatly reduced for Q5, Q7 and Band, JB16-CR4",
        f"bytes per result over bytes of views: {each(ratios[0], '{:.1f}')} in batches of {lab.size.batch_rows:,} tuples,"
        f" {each(ratios[1], '{:.1f}')} in {FEW} large ones; it grows with the results of a unit in a batch (Band runs JB16-RG)",
        verdict([r >= 2 for by in ratios for r in by.values()]),
        raw={"bytes_ratio": ratios[0], "bytes_ratio_in_large_batches": ratios[1]},
        plots=(Plot("figure-14-aggregation", title, "", "kB", series, "bars", tuple(chosen), log=True),),
    )
