"""The canonical form of a template is the same query: the oracle gives the same answers over a ring's tuples."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.lab.simulate.ring.rings import Query, expected, templates, tuples


@given(templates(), tuples(), st.randoms(use_true_random=False))
def test_the_canonical_form_is_the_same_query(template, data, random):
    order = list(range(len(template.streams)))
    random.shuffle(order)
    at = {a: n for n, a in enumerate(order)}
    turned = replace(
        template,
        streams=tuple(template.streams[a] for a in order),
        equalities=tuple(((at[y], d), (at[x], c)) for (x, c), (y, d) in reversed(template.equalities)),
        select=tuple((at[a], c) for a, c in template.select),
        constants=tuple(((at[a], c), v) for (a, c), v in template.constants),
        bounds=tuple(tuple(template.bounds[x][y] for y in order) for x in order) if template.bounds else (),
        rows=tuple(template.rows[a] for a in order) if template.rows else (),
    )
    assert expected(Query(template.canonical, 0), data) == expected(Query(turned, 0), data)
    if len(set(template.streams)) == len(order):
        assert turned.canonical == template.canonical
