"""Answers and selectivities: what must hold before anything is compared."""

from __future__ import annotations

import numpy as np

from watersmeet.plan.options import POLICIES
from watersmeet_lab.reproduce.driver.data import DATASETS
from watersmeet_lab.reproduce.driver.lab import Lab
from watersmeet_lab.reproduce.driver.paper import TABLE_2
from watersmeet_lab.reproduce.report import Claim, verdict


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
    """Table 2, counted on the generated streams."""
    found, right = {}, []
    for dataset in DATASETS:
        case = lab.case(dataset, lab.size.batches[0])
        keys, at = np.unique(np.concatenate(case.keys), return_inverse=True)
        parts = np.split(at, np.cumsum([len(k) for k in case.keys])[:-1])
        a, b, c = (np.bincount(p, minlength=len(keys)).astype(np.int64) for p in parts)
        sizes = [len(k) for k in case.keys]
        pairs = [int((x * y).sum()) for x, y in ((a, b), (a, c), (b, c))]
        products = [sizes[0] * sizes[1], sizes[0] * sizes[2], sizes[1] * sizes[2]]
        found[dataset.name] = [p / q * (1 / lab.size.scale) for p, q in zip(pairs, products, strict=True)]
        wanted, whole = TABLE_2[dataset.name]
        right.append(
            np.allclose(found[dataset.name], wanted, rtol=1e-9) and case.expected[0] == whole // lab.size.scale
        )
    said = "; ".join(
        f"{name}: {', '.join(f'{s:.3g}' for s in values)}" for name, values in found.items() if name in "I V"
    )
    return [
        Claim(
            "Selectivities are uniform over the data sets and those of table 2",
            "tables 2 and 3",
            "I to IV: 5e-9, 1e-6, 5e-6, all of 5e6 results; V and VI: 1e-5 for all pairs, 1e6 results (S2 of 10^5: with the 10^9"
            " of table 3 no line of table 2 would hold)",
            f"pairs S1 S2, S1 S3, S2 S3: {said}; results as there, in all six"
            + (f" (times {lab.size.scale}, for the smaller streams)" if lab.size.scale > 1 else ""),
            verdict(right),
            raw=found,
        )
    ]
