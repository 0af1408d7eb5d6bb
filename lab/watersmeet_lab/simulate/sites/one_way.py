"""All one-way joins: which halves make them."""

from __future__ import annotations

from watersmeet.sites.planning.model import Algorithm
from watersmeet_lab.simulate.sites import bloom, semijoin_d, semijoin_s1, semijoin_s2, simple
from watersmeet_lab.simulate.sites.halves import Destination, Source

HALVES: dict[Algorithm, tuple[type[Source], type[Destination]]] = {
    Algorithm.SP_S: (simple.SimpleSource, simple.Exporter),
    Algorithm.SP_D: (simple.Shipper, simple.JoiningDestination),
    Algorithm.SM_S1: (semijoin_s1.AskingSource, semijoin_s1.AnsweringDestination),
    Algorithm.SM_S2: (semijoin_s2.MixedSource, semijoin_s2.MirroringDestination),
    Algorithm.SM_D1: (semijoin_d.ReducingSource, semijoin_d.CountingDestination),
    Algorithm.SM_D2: (semijoin_d.OfferingSource, semijoin_d.WantingDestination),
    Algorithm.SMB_S1: (bloom.FilteringAsker, bloom.FilteredAnswerer),
    Algorithm.SMB_S2: (bloom.FilterMixed, bloom.FilterMirror),
    Algorithm.SMB_D1: (bloom.FilterReducer, bloom.FilterCounter),
    Algorithm.SMB_D2: (bloom.FilterOfferer, bloom.FilterWanter),
}

MIRRORED = frozenset({Algorithm.SP_S, Algorithm.SM_S2, Algorithm.SM_D1, Algorithm.SMB_S2, Algorithm.SMB_D1})
"""Those that probe a copy of S_2's window or values at the source: constraint 1 makes them wait for it."""
ANSWERED = frozenset({Algorithm.SM_D2, Algorithm.SMB_D2})
"""Those that keep rows at the source until the destination wants some of them, or none."""
HOPS = {
    Algorithm.SP_S: 0, Algorithm.SP_D: 1, Algorithm.SM_S1: 2, Algorithm.SM_S2: 2, Algorithm.SM_D1: 1, Algorithm.SM_D2: 3,
    Algorithm.SMB_S1: 2, Algorithm.SMB_S2: 2, Algorithm.SMB_D1: 1, Algorithm.SMB_D2: 3,
}  # fmt: skip
"""Shipments between a probe and its results."""
