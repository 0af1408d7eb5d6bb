"""Answers and selectivities: what must hold before anything is compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.plan.options import POLICIES
from watersmeet_lab.bench.drivers.data import DATASETS
from watersmeet_lab.reproduce.driver.lab import Lab
from watersmeet_lab.reproduce.driver.paper import TABLE_2
from watersmeet_lab.reproduce.report import Claim, each, verdict

UNIFORM = 0.2
"""How far selectivities of the two halves of a data set may be apart."""


def check_answers(lab: Lab) -> Claim:
    """Say last how many runs were verified."""
    return Claim(
        "Tuples may be processed in any order inside a batch: the results are the same",
        "1, 3.1",
        "a more recent tuple may be processed before an earlier one of another stream without sacrificing correctness",
        f"{lab.verified} runs ({len(POLICIES)} policies, I to VI and data sets of more inputs): {lab.results:,} results; number"
        " and checksum are those that follow from the keys, in all",
        "yes",
    )


def check_selectivities(lab: Lab) -> list[Claim]:
    """Table 2 is what the generator is told; that selectivities are the same all along is counted, in both halves of the streams."""
    found, apart, right = {}, {}, []
    for dataset in DATASETS:
        case = lab.case(dataset, lab.size.batches[0])
        middle = np.median(np.concatenate(case.times))
        halves = [
            [k[(t < middle) == first] for k, t in zip(case.keys, case.times, strict=True)] for first in (True, False)
        ]
        found[dataset.name] = [s / lab.size.scale for s in _selectivities(case.keys)]
        parts = [_selectivities(half) for half in halves]
        apart[dataset.name] = max(
            abs(x / y - 1) for pairs in zip(*parts, strict=True) for x in pairs for y in pairs if y
        )
        right.append(case.expected[0] == TABLE_2[dataset.name][1] // lab.size.scale)
    said = "; ".join(
        f"{name}: {', '.join(f'{s:.3g}' for s in values)}" for name, values in found.items() if name in "I V"
    )
    return [
        Claim(
            "Selectivities are uniform over the data sets",
            "4.1, tables 2 and 3",
            "the same from the first tuple to the last; I to IV: 5e-9, 1e-6, 5e-6, all of 5e6 results; V and VI: 1e-5 for all pairs, 1e6 results (S2 of 10^5: with the"
            " 10^9 of table 3 no line of table 2 would hold)",
            f"pairs S1 S2, S1 S3, S2 S3 over whole streams, which is what the generator was told: {said}"
            + (f" (over {lab.size.scale}, for the smaller streams)" if lab.size.scale > 1 else "")
            + f"; between the two halves they differ by at most {each(apart, '{:.0%}')}; results as in table 2 in {sum(right)} of {len(right)}",
            verdict([a <= UNIFORM for a in apart.values()], main=all(right)),
            raw={"selectivities": found, "apart": apart},
        )
    ]


def _selectivities(streams: Sequence[np.ndarray]) -> list[float]:
    """Of the three pairs."""
    keys, at = np.unique(np.concatenate(streams), return_inverse=True)
    parts = np.split(at, np.cumsum([len(k) for k in streams])[:-1])
    a, b, c = (np.bincount(p, minlength=len(keys)).astype(np.int64) for p in parts)
    return [float((x * y).sum()) / max(int(x.sum()) * int(y.sum()), 1) for x, y in ((a, b), (a, c), (b, c))]
