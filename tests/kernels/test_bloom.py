"""A filter passes all that is in it, and little else."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels import bloom
from watersmeet.sites.planning.cost import BYTES_PER_VALUE, FALSE_POSITIVES, HASHES, filter_bytes


def test_what_is_in_passes_and_what_is_not_seldom_does():
    inside, outside = np.arange(5000) * 7, np.arange(200_000) * 7 + 3
    bits = bloom.build(inside, len(inside) * BYTES_PER_VALUE, HASHES)
    assert bloom.find_passing(bits, inside, HASHES).all()
    falsely = bloom.find_passing(bits, outside, HASHES).mean()
    assert 0.2 * FALSE_POSITIVES < falsely < 3 * FALSE_POSITIVES


def test_small_filters_let_little_pass_too():
    outside = np.arange(10, 100_000)
    for n in range(1, 9):
        bits = bloom.build(np.arange(n), filter_bytes(n), HASHES)
        assert bloom.find_passing(bits, outside, HASHES).mean() < 0.01


def test_an_empty_filter_passes_nothing():
    bits = bloom.build(np.empty(0, np.int64), filter_bytes(0), HASHES)
    assert not bloom.find_passing(bits, np.arange(100), HASHES).any()
    assert not bloom.find_passing(np.empty(0, np.uint8), np.arange(100), HASHES).any()
