"""Answers as rows: the query's id and version, the youngest member's event time, the SELECT as a JSON object.

    query | version | ts                  | answer
    q17   | 3       | 2024-05-01 10:00:03 | {"page":"/buy","total":12.50}

Queries have different columns, and come and go while one sink stands: so the values are text that Spark reads back in the
query's types (`from_json`); `expressions.json_text` writes it.

Invariant: an object has the columns of the SELECT in their order. The text of a value is made once for every tuple that
some answer of the chunk shows, however many answers show it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.expressions.evaluator import evaluate
from watersmeet.expressions.json_text import json_text
from watersmeet.query.session import UTC
from watersmeet.query.stream import INTEGERS
from watersmeet.registry.plan import ANSWER, QUERY, VERSION, YOUNGEST
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.fan_out import Pairs, group_positions


def answers(block: Block, pairs: Pairs) -> pa.Table:
    """Pairs as rows."""
    values = _Values(block, pairs)
    parts = []
    for count, rows in group_positions(block.output_count[pairs.query]):
        texts = [values.texts(n, rows) for n in range(count)]
        parts.append(answer_rows(block, pairs.query[rows], pairs.youngest[pairs.combination[rows]], texts))
    return pa.concat_tables(parts)


def answer_rows(block: Block, query: np.ndarray, youngest: np.ndarray, texts: Sequence[pa.Array]) -> pa.Table:
    """Answers of queries with as many columns each, by the texts of their values."""
    pieces: list[pa.Array | pa.Scalar] = []
    for n, text in enumerate(texts):
        pieces += block.prefixes.take(pa.array(block.output_prefix[query, n])), text
    which = pa.array(query)
    return write_rows(block.names.take(which), block.versions.take(which), youngest, pieces)


def write_rows(
    ids: pa.Array, versions: pa.Array, youngest: np.ndarray, pieces: Sequence[pa.Array | pa.Scalar]
) -> pa.Table:
    """Answers of some queries, with the versions that added these, by the pieces of their objects: a name's prefix and a value in turn."""
    end = pa.array(["}" if pieces else "{}"], pa.large_string())[0]
    parts = [*pieces, pa.repeat(end, len(ids)), pa.scalar("", pa.large_string())]
    ts = pa.array(youngest).cast(pa.timestamp("us", tz="UTC"))
    object_ = pc.binary_join_element_wise(*parts)
    return pa.table({QUERY: ids, VERSION: versions, YOUNGEST: ts, ANSWER: object_})


def write_texts(values: Sequence[pa.Array], types: Sequence[str], what: str) -> list[pa.Array]:
    """The texts of columns; Arrow writes whole numbers as the evaluator does, and faster."""
    out = {n: write_whole(values[n]) for n, kind in enumerate(types) if kind in INTEGERS}
    rest = [n for n in range(len(types)) if n not in out]
    if rest:
        texts = [json_text(types[n]).format(f'"c{n}"') for n in rest]
        made = evaluate(pa.table({f"c{n}": values[n] for n in rest}), texts, what, UTC)
        out |= {n: made.column(at).combine_chunks() for at, n in enumerate(rest)}
    return [out[n] for n in range(len(types))]


def write_whole(values: pa.Array) -> pa.Array:
    """The texts of whole numbers."""
    texts = values.cast(pa.large_string())
    return pc.fill_null(texts, "null") if texts.null_count else texts


_NULL = 0
"""The place of what no tuple has."""


class _Values:
    """The texts of all values that some pairs show, in one pool; a value is a place in it."""

    def __init__(self, block: Block, pairs: Pairs) -> None:
        self.block, self.pairs = block, pairs
        self._pool: list[pa.Array] = []
        self._size = 0
        self._plain = np.full(len(block.plain) + 1, -1, np.int64)
        """By plain column: where its texts begin, less the place of its stream's first tuple; the last is for what is computed."""
        self._put(pa.array(["null"], pa.large_string()))
        self._lay_plain()
        count = block.output_count[pairs.query]
        self._have = [np.flatnonzero(count > n) for n in range(int(count.max(initial=0)))]
        """By number of a value the pairs that have so many: one query with many columns costs nothing for the others."""
        self._places = [self._compute(n, rows) for n, rows in enumerate(self._have)]
        self.pool = pa.concat_arrays(self._pool)

    def texts(self, n: int, rows: np.ndarray) -> pa.Array:
        """The texts of the n-th values of some pairs, which are given in ascending order."""
        return self.pool.take(pa.array(self._places[n][np.searchsorted(self._have[n], rows)]))

    def _lay_plain(self) -> None:
        taken = self.pairs.taken
        shown = np.unique(self.block.output_column[np.unique(self.pairs.query)])
        whole: dict[str, list[tuple[int, str, pa.Array]]] = {}
        by_stream: dict[str, list[tuple[int, str, str]]] = {}
        plain = list(self.block.plain)
        for number in shown[shown >= 0].tolist():
            stream, column, kind = plain[number]
            if stream not in taken.tables:
                continue
            if kind in INTEGERS:
                whole.setdefault(kind, []).append((number, stream, taken.column(stream, column)))
            else:
                by_stream.setdefault(stream, []).append((number, column, kind))
        for found in whole.values():  # one call for all columns of a type: there may be a hundred, of a tuple each
            begin = self._size
            self._put(write_whole(pa.concat_arrays([values for *_, values in found])))
            for number, stream, values in found:
                self._plain[number] = begin - taken.starts[stream]
                begin += len(values)
        for stream, columns in by_stream.items():
            values = [taken.column(stream, column) for _, column, _ in columns]
            texts = write_texts(values, [kind for *_, kind in columns], f"answers of {stream}")
            for (number, _, _), text in zip(columns, texts, strict=True):
                self._plain[number] = self._size - taken.starts[stream]
                self._put(text)

    def _put(self, texts: pa.Array) -> None:
        self._pool.append(texts)
        self._size += len(texts)

    def _compute(self, n: int, rows: np.ndarray) -> np.ndarray:
        """The places of the n-th values of some pairs."""
        block, query = self.block, self.pairs.query[rows]
        column, alias = block.output_column[query, n], block.output_alias[query, n]
        member = self.pairs.places[self.pairs.combination[rows], alias]
        places = np.where(member < 0, _NULL, self._plain[column] + member)
        for form, at in group_positions(block.output_form[query, n]):
            if form >= 0:
                text, parameters = block.outputs[form]
                uses = block.output_use[query[at], n]
                wrap = json_text(block.output_types[form])
                places[at] = self._size + np.arange(len(at))
                self._put(self.pairs.values(text, parameters, rows[at], uses, wrap))
        return places
