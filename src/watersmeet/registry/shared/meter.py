"""What each query takes of a unit in one turn: it is told, and who takes more than its quota is named.

    combinations of a template --count_combinations--> the same, or QuotaError with all queries of a template that has too many, or for which a node
                                                       of the trie tries too many tuples
    pairs of a combination and a query --count--> the same pairs, or QuotaError with the queries that have too many
    after the batch: tuples that a query's windows still reach, and its rows of DISTINCT --weigh--> nothing, or QuotaError

    after the batch: answers, time of the youngest, CPU seconds --tell--> the unit's report

The CPU time of a block is shared out among its queries by their work: their own answers, and their part of the combinations of their template.

Answers are counted before they are written, so a query that explodes takes one chunk of pairs and no more. Under RJoin a turn is a round,
and answers of each are counted by themselves.

Invariant: counting changes nothing; the error names queries of this unit alone, and the batch runs again without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import process_time

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import NEVER, stream_cuts
from watersmeet.dataflow.report import merge_figures
from watersmeet.errors import QuotaError
from watersmeet.kernels.registered.probe_trie import count_tries
from watersmeet.query.quotas import Quotas
from watersmeet.registry.plan import QUERY
from watersmeet.registry.shared.block import FOR_EVER, UNTIL, Block
from watersmeet.registry.shared.distinct import QUERY_OF_ROW
from watersmeet.registry.shared.fan_out import Pairs
from watersmeet.registry.shared.probe_trie import Trie
from watersmeet.registry.template import Template, hull
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import SegmentInfo, SegmentStore

MOST_DEAR = 10
"""So many queries of a block are told of for what they cost alone."""
_FEW = 8
"""Pairs of fewer than one in so many queries are counted by sorting them."""
Combinations = tuple[np.ndarray, np.ndarray]
"""Templates, and tuples by alias."""


class Meter:
    """Counts during one turn of a unit. Give every block's answers to `time`."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._tallies: dict[Block, _Tally] = {}

    def time(self, block: Block, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The same answers; what they take is counted to their block. Rows that DISTINCT drops are no answers."""
        tally, distinct = self._tally(block), block.has_distinct
        while True:
            began = process_time()
            table = next(tables, None)
            tally.seconds += process_time() - began
            if table is None:
                return
            if distinct:
                found = table.column(QUERY).value_counts()
                numbers = np.array([block.at[id] for id in found.field(0).to_pylist()], np.int64)
                tally.answers[numbers] += integers(found.field(1))
                tally.touched.append(numbers)
            yield table

    def tell(self) -> dict[str, Sequence[float]]:
        """What queries took, by id: those that have answers, and the dearest."""
        out: dict[str, Sequence[float]] = {}
        for block, tally in self._tallies.items():
            merge_figures(out, tally.tell(block))
        return out

    def _tally(self, block: Block) -> _Tally:
        if block not in self._tallies:
            self._tallies[block] = _Tally(block)
        return self._tallies[block]

    def count(self, block: Block, chunks: Iterable[Pairs]) -> Iterator[Pairs]:
        """The same pairs, until a query has more than its quota. Give all of a turn's pairs of a block together."""
        tally = self._tally(block)
        for pairs in chunks:
            found = tally.add(pairs)
            over = found[tally.pairs[found] > self.quotas.answers]
            refuse_more(self.quotas, [block.ids[n] for n in over.tolist()], "answers")
            yield pairs

    def count_combinations(
        self, block: Block, trie: Trie, make: Callable[[np.ndarray], Iterable[Combinations]]
    ) -> Iterator[Combinations]:
        """The combinations that are made, until a template has more than the quota of its queries, whole or begun; `make` is given where to count those that a node tries."""
        counts, tried = np.zeros(block.templates, np.int64), count_tries(trie.nodes)
        most = self.quotas.combinations
        for templates, tuples in make(tried):
            found = np.bincount(templates, minlength=block.templates)
            counts += found
            if counts.max(initial=0) > most:
                refuse_more(self.quotas, block.list_ids(np.flatnonzero(counts > most)), "combinations")
            self._look(block, trie, tried)
            self._tally(block).combinations += found
            if len(templates):
                yield templates, tuples
        self._look(block, trie, tried)

    def _look(self, block: Block, trie: Trie, tried: np.ndarray) -> None:
        if tried[-1] > self.quotas.combinations:
            refuse_more(self.quotas, block.list_ids(trie.find_widest(tried, self.quotas.combinations)), "combinations")

    def weigh(self, blocks: Sequence[Block], manifest: Manifest, store: SegmentStore, marks: Mapping[str, int]) -> None:
        """Raise if some query keeps more than its quota."""
        most, rows = self.quotas.state, manifest.rows()
        if most is None or sum(rows.values()) <= most:
            return
        own = self._count_distinct(manifest, store)
        reached: dict[Template, int] = {}
        over = []
        for registered in (q for block in blocks for q in block.list_living()):
            template = registered.query.template
            if template not in reached:
                cuts = stream_cuts(hull([template]), marks)
                reached[template] = sum(_count_since(manifest.segments.get(s, []), c, store) for s, c in cuts.items())
            if reached[template] + own[registered.id] > most:
                over.append(registered.id)
        refuse_more(self.quotas, over, "state")

    def _count_distinct(self, manifest: Manifest, store: SegmentStore) -> Counter[str]:
        """Rows of DISTINCT by query."""
        out: Counter[str] = Counter()
        for kind, infos in manifest.segments.items():
            for info in infos if kind.startswith((UNTIL, FOR_EVER)) else ():
                found = store.read(info).table.column(QUERY_OF_ROW).value_counts()
                out.update(dict(zip(*(found.field(n).to_pylist() for n in (0, 1)), strict=True)))
        return out


def refuse_more(quotas: Quotas, ids: list[str], quota: str) -> None:
    """Raise if there are queries that take more than a quota.

    >>> refuse_more(Quotas(answers=5), ["q"], "answers")
    Traceback (most recent call last):
    watersmeet.errors.QuotaError: ["q"] it takes more than 5 answers in one micro-batch: narrow its conditions or windows, or raise the quota (answers=), and add it again
    """
    if not ids:
        return
    words, remedy = _WORDS.get(
        quota, (f"takes more than {{:,}} {quota} in one micro-batch", "narrow its conditions or windows")
    )
    found = words.format(getattr(quotas, quota))
    raise QuotaError.of(ids, f"it {found}: {remedy}, or raise the quota ({quota}=), and add it again")


_WORDS = {
    "state": ("takes more than {:,} tuples and rows of state", "give it smaller windows"),
    "rewritten_bytes": (
        "has the most of more than {:,} bytes of rewritten queries at one unit",
        "narrow its conditions or windows",
    ),
}


class _Tally:
    """What the queries of one block took in one turn. Most have no answer: what is told costs what those take that have one."""

    def __init__(self, block: Block) -> None:
        self.seconds = 0.0
        self.pairs = np.zeros(block.size, np.int64)
        self.last: np.ndarray | None = None
        """By query the time of its youngest answer, once there is one."""
        self.combinations = np.zeros(block.templates, np.int64)
        self.answers = np.zeros(block.size, np.int64) if block.has_distinct else self.pairs
        self.touched: list[np.ndarray] = []
        """The queries that have pairs or answers."""

    def add(self, pairs: Pairs) -> np.ndarray:
        """Take in pairs; the queries that have some of them."""
        size = len(self.pairs)
        if len(pairs.query) * _FEW < size:
            found, counts = np.unique(pairs.query, return_counts=True)
        else:
            counts = np.bincount(pairs.query, minlength=size)
            found = np.flatnonzero(counts)
            counts = counts[found]
        self.pairs[found] += counts
        if self.last is None:
            self.last = np.full(size, NEVER, np.int64)
        np.maximum.at(self.last, pairs.query, pairs.youngest[pairs.combination])
        self.touched.append(found)
        return found

    def tell(self, block: Block) -> dict[str, Sequence[float]]:
        """By id (answers, CPU seconds, time of the youngest answer, version)."""
        touched = np.unique(np.concatenate(self.touched)) if self.touched else np.empty(0, np.int64)
        used = np.flatnonzero(self.combinations * (block.sharing > 0))
        whole = float(self.pairs[touched].sum() + self.combinations[used].sum())
        if whole:  # queries of a template that have no answers are alike: of these the first ones are enough
            asked = np.union1d(touched, block.list_first(used, MOST_DEAR))
            part = self.combinations / np.maximum(block.sharing, 1)
            work = self.pairs[asked] + part[block.template_of[asked]]
        else:
            asked = np.flatnonzero(block.active)[:MOST_DEAR]
            work, whole = np.ones(len(asked)), max(float(block.alive), 1.0)
        dear = np.zeros(len(asked), np.bool_)
        dear[_find_dearest(work)] = True
        took = self.seconds * work / whole
        told = np.flatnonzero(dear | (self.answers[asked] > 0))
        rules = asked[told]
        if not len(rules):
            return {}
        # Both rules of an outer join are one query's.
        order = np.argsort(block.owner[rules], kind="stable")
        rules, owner = rules[order], block.owner[rules[order]]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        answers, seconds = (np.add.reduceat(f, first).tolist() for f in (self.answers[rules], took[told][order]))
        last = np.full(len(first), NEVER) if self.last is None else np.maximum.reduceat(self.last[rules], first)
        queries = owner[first].tolist()
        versions = map(block.query_versions.__getitem__, queries)
        figures = zip(answers, seconds, last.tolist(), versions, strict=True)
        return dict(zip(map(block.query_ids.__getitem__, queries), figures, strict=True))


def _find_dearest(work: np.ndarray) -> np.ndarray:
    """The numbers that have the most, the first of equals; ten at most, and none without any.

    >>> _find_dearest(np.array([0.0, 3.0, 0.0, 5.0])).tolist()
    [1, 3]
    """
    if len(work) > MOST_DEAR:
        least = np.partition(work, len(work) - MOST_DEAR)[len(work) - MOST_DEAR]
        above, equal = np.flatnonzero(work > least), np.flatnonzero(work == least)
        found = np.concatenate([above, equal[: MOST_DEAR - len(above)]])
    else:
        found = np.arange(len(work))
    return np.sort(found[work[found] > 0])


def _count_since(infos: Sequence[SegmentInfo], cut: int, store: SegmentStore) -> int:
    """Stored tuples from an instant on."""
    return sum(info.rows if info.min_ts >= cut else int(np.count_nonzero(store.read(info).ts >= cut)) for info in infos)
