"""From combinations of templates to pairs of a combination and a query.

    combination --classes--> key, value of the range --index of queries--> candidates --constants, ranges, arrival--> pairs --residuals--> answers

Residuals of all queries that differ only in their numbers are one form, evaluated in one go over all their pairs.

Invariant: a pair holds if and only if the query's constants, ranges and residuals are true for the combination (an error in the data
counts as NULL: one query's overflow must not stop the others) and all members arrived from the query's effect on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import block_bytes, cuts
from watersmeet.expressions.evaluator import evaluate
from watersmeet.kernels.registered.fan_out import Classes, admit, search, span
from watersmeet.kernels.registered.probe_trie import LIMIT
from watersmeet.kernels.registered.ranges import stab
from watersmeet.registry.shared.block import Block, Form
from watersmeet.registry.shared.visible import Taken, Visible


@dataclass
class Pairs:
    """Answers before they are written: combinations, and which query wants which of them."""

    taken: Taken
    places: np.ndarray
    """By combination and alias the place of the member among the tuples taken."""
    youngest: np.ndarray
    combination: np.ndarray
    query: np.ndarray
    tuples: np.ndarray
    """By combination and alias the member, see `visible`; -1 where there is none."""

    def where(self, keep: np.ndarray | slice) -> Pairs:
        return replace(self, combination=self.combination[keep], query=self.query[keep])

    def blocks(self) -> Iterator[Pairs]:
        """The same pairs in blocks, by the bytes of all tuples that a pair shows."""
        rows = len(self.query)
        if rows * self.places.shape[1] * self.taken.nbytes <= block_bytes():
            yield self
            return
        widths = self.taken.widths()
        each = widths[self.places].sum(axis=1)[self.combination]
        for begin, end in cuts(each, rows, block_bytes()):
            yield self.where(slice(begin, end))

    def values(self, form: Form, parameters: pa.Table, rows: np.ndarray, uses: np.ndarray, wrap: str) -> pa.Array:
        """A form's values at some of the pairs, with the parameters of these uses; `wrap` is put around its text."""
        template, columns = form
        table: dict[str, pa.Array] = {"_row": pa.nulls(len(rows), pa.bool_())}
        names = []
        for n, (alias, stream, column) in enumerate(columns):
            table[f"c{n}"] = self.taken.at(stream, column, self.places[self.combination[rows], alias])
            names.append(f'"c{n}"')
        for name in parameters.column_names:
            table[name] = parameters.column(name).take(pa.array(uses)).combine_chunks()
            names.append(f'"{name}"')
        text = wrap.format(f"TRY({template.format(*names)})")
        return evaluate(pa.table(table), [text], template, self.taken.plan.timezone).column(0).combine_chunks()


def fan_out(
    block: Block, visible: Visible, tuples: np.ndarray, first: np.ndarray, count: np.ndarray, limit: int = LIMIT
) -> Iterator[Pairs]:
    """All answers among a chunk of combinations, each of which `count` classes from `first` on may want, in bounded chunks."""
    youngest, oldest = span(tuples, visible.ts, visible.batch)
    for combination, query in find_candidates(block, visible, tuples, oldest, first, count, limit):
        yield from hold(block, take(visible, tuples, youngest, combination, query))


def find_held(
    block: Block, visible: Visible, tuples: np.ndarray, first: np.ndarray, count: np.ndarray, limit: int = LIMIT
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same answers, as combinations and queries: tuples are read only where something is left to be evaluated."""
    youngest, oldest = span(tuples, visible.ts, visible.batch)
    start = block.residual_start
    for combination, query in find_candidates(block, visible, tuples, oldest, first, count, limit):
        is_open = start[query + 1] > start[query]
        yield combination[~is_open], query[~is_open]
        if is_open.any():
            kept, place = np.unique(combination[is_open], return_inverse=True)
            for held in hold(block, take(visible, tuples[kept], youngest[kept], place, query[is_open])):
                yield kept[held.combination], held.query


def find_candidates(
    block: Block,
    visible: Visible,
    tuples: np.ndarray,
    oldest: np.ndarray,
    first: np.ndarray,
    count: np.ndarray,
    limit: int = LIMIT,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of a combination and a query whose constants, lists and ranges hold; what is left of its conditions is not evaluated."""
    index = block.index
    classes = Classes(index.alias, index.column, index.range_alias, index.range_column, index.is_down)
    for hits in search(tuples, first, count, classes, visible.codes, index.hashed, limit):
        for wanted, entry in stab(index.tree, index.hashed.rows, hits.first, hits.many, hits.value, limit):
            combination, class_of = hits.combination[wanted], hits.class_of[wanted]
            keep = admit(
                tuples, combination, class_of, entry, index.query_of, index.alias, index.column, visible.codes, visible.valid,
                index.values, oldest, block.sees_from, block.active,
                index.test_start, index.test_alias, index.test_column, index.test_low, index.test_high,
            )  # fmt: skip
            if keep.any():
                yield combination[keep], index.query_of[entry[keep]]


def take(
    visible: Visible, tuples: np.ndarray, youngest: np.ndarray, combination: np.ndarray, query: np.ndarray
) -> Pairs:
    """Pairs with the tuples that they need."""
    wanted = np.zeros(len(tuples), np.bool_)
    wanted[combination] = True
    kept, combination = np.flatnonzero(wanted), (np.cumsum(wanted) - 1)[combination]
    members = tuples[kept]
    distinct, places = np.unique(members, return_inverse=True)
    absent = int(np.searchsorted(distinct, 0))
    taken = visible.take(distinct[absent:])
    return Pairs(taken, places.reshape(len(kept), -1) - absent, youngest[kept], combination, query, members)


def hold(block: Block, found: Pairs) -> Iterator[Pairs]:
    """The pairs whose residuals all hold, in blocks."""
    for part in found.blocks():
        yield from _filter_held(block, part)


def _filter_held(block: Block, found: Pairs) -> Iterator[Pairs]:
    """The pairs whose residuals all hold."""
    start = block.residual_start
    counts = start[found.query + 1] - start[found.query]
    if counts.any():
        keep = np.ones(len(found.query), np.bool_)
        pair = np.repeat(np.arange(len(counts)), counts)
        offset = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = start[found.query[pair]] + offset
        for form, where in group_positions(block.residual_form[place]):
            text, parameters = block.residuals[form]
            held = found.values(text, parameters, pair[where], block.residual_use[place[where]], "coalesce({}, false)")
            keep[pair[where]] &= np.asarray(held.to_numpy(zero_copy_only=False), np.bool_)
        found = found.where(keep)
    if len(found.query):
        yield found


def group_positions(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The positions of every number.

    >>> [(n, at.tolist()) for n, at in group_positions(np.array([7, 3, 7]))]
    [(3, [1]), (7, [0, 2])]
    """
    order = np.argsort(numbers, kind="stable")
    edges = np.flatnonzero(np.diff(numbers[order])) + 1
    for part in np.split(order, edges):
        if len(part):
            yield int(numbers[part[0]]), part


def gather(chunks: Iterable[tuple[np.ndarray, np.ndarray]], enough: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same combinations in chunks that are worth the calls that each one costs."""
    held: list[tuple[np.ndarray, np.ndarray]] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk[0])
        if size >= enough:
            yield np.concatenate([t for t, _ in held]), np.concatenate([r for _, r in held])
            held, size = [], 0
    if held:
        yield np.concatenate([t for t, _ in held]), np.concatenate([r for _, r in held])
