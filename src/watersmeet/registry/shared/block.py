"""Queries compiled together: one trie for their templates, and tables that lead from a combination to its queries.

    combination of template t  -->  classes of t  -->  hash of (class, values of the class' columns)  -->  entries in order of their range
                                                                                                           -->  queries

A class is a template, the columns in which its queries ask for constants or one of a list, and the column of their range: with 10,000 queries
`... AND a.user = <n>` or `... AND a.total > <n>` a combination finds those that want it by one look-up, not by 10,000 comparisons. A query has
an entry for every value of its list. Ranges of one end lie in the order of that end, so those that hold are found without looking at others.

A query is compiled to rules, mostly one: an outer join has a second one for preserved tuples by themselves (`registry.subscription`). Numbers of queries below are those
of rules; both rules of a query have its id.

Two tries have the same probes: `trie` finds the pairs that new tuples make, `partners` asks whether preserved tuples have any (`registry.shared.unmatched`).

Invariant: a block never changes, except that queries are struck out. Every rule has exactly one class, and a combination finds an entry of it at most
once, since the values of a list are different.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import codes
from watersmeet.kernels.hashing import combine
from watersmeet.kernels.instants import NO_BOUND, shift
from watersmeet.kernels.registered.probe_trie import find_most_leaves, silence
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.shared.gates import Gate, gates
from watersmeet.registry.shared.probe_trie import Trie, TrieBuilder
from watersmeet.registry.shared.query_index import QueryIndex
from watersmeet.registry.shared.visible import Layout
from watersmeet.registry.subscription import Computed, Registered, Subscription
from watersmeet.registry.template import Template

MOST_GATES = 64
"""Every gate is an evaluation of every new tuple of its stream, and an index of its own."""
UNTIL, FOR_EVER = "|until|", "|for ever|"
"""How the kinds of segments begin that keep rows of DISTINCT; no stream is called so."""
Form = tuple[str, tuple[tuple[int, str, str], ...]]
"""Text, and (alias number, stream, column) of its columns: expressions that are evaluated together."""


@dataclass
class Forms:
    """Expressions of many queries by form: which form stands where, and the parameters there."""

    number: dict[Form, int]
    parameters: list[list[list[str]]]
    """By form: the parameters of every use."""

    @classmethod
    def empty(cls) -> Forms:
        return cls({}, [])

    def use(self, streams: Sequence[str], computed: Computed) -> tuple[int, int]:
        """Number the form and the use."""
        form = computed.template, tuple((n, streams[n], c) for n, c in computed.columns)
        number = self.number.setdefault(form, len(self.number))
        if number == len(self.parameters):
            self.parameters.append([])
        self.parameters[number].append(list(computed.parameters))
        return number, len(self.parameters[number]) - 1

    def tables(self) -> list[tuple[Form, pa.Table]]:
        """By number: the form, and a table of parameters q0, q1, ... with a row for every use."""
        out = []
        for form, uses in zip(self.number, self.parameters, strict=True):
            width = len(uses[0])
            out.append((form, pa.table({f"q{n}": [use[n] for use in uses] for n in range(width)})))
        return out


class Block:
    """Some queries, compiled."""

    def __init__(self, queries: Sequence[Registered]) -> None:
        self.queries = list(queries)
        self._number = {q.id: n for n, q in enumerate(queries)}
        owners = [(n, rule) for n, q in enumerate(queries) for rule in q.query.rules]
        self.owner = np.array([n for n, _ in owners], np.int64)
        """By rule the number of its query."""
        self.rules = [rule for _, rule in owners]
        self.ids = [queries[n].id for n, _ in owners]
        self.query_ids, self.query_versions = [q.id for q in queries], [q.version for q in queries]
        self.names = pa.array(self.ids, pa.large_string())
        self.at = {id: n for n, id in reversed(list(enumerate(self.ids)))}
        """By query its first rule."""
        self.versions = pa.array([queries[n].version for n, _ in owners], pa.int64())
        self.effect, self.sees_from = (
            np.array([getattr(q, name) for q in queries], np.int64)[self.owner] for name in ("effect", "sees_from")
        )
        self.active = np.ones(len(owners), np.uint8)
        builder = TrieBuilder()
        numbers: dict[Template, int] = {}
        template_of = [numbers.setdefault(rule.template, len(numbers)) for rule in self.rules]
        for template, gates_of in zip(numbers, _gates(self.rules, template_of, len(numbers)), strict=True):
            builder.add(template, gates_of)
        index = QueryIndex(self.rules, template_of, builder)
        self.index = index
        self.template_of = np.array(template_of, np.int64)
        self.outer = {n: t for t, n in numbers.items() if t.outer is not None and not t.is_lone}
        """Outer templates by number."""
        self.lone = {n: numbers[t.alone()] for n, t in self.outer.items()}
        """By outer template that of its preserved tuples by themselves."""
        self.is_semi = np.array([rule.template.outer == "semi" for rule in self.rules], np.bool_)
        self.preserved = np.array([rule.template.preserved for rule in self.rules], np.int64)
        """By rule the alias that it preserves, if it is one of an outer join."""
        self.is_lone = np.array([rule.template.is_lone for rule in self.rules], np.bool_)
        self.trie, self.width = builder.build(), builder.width
        self.most_leaves = find_most_leaves(self.trie.nodes)
        self.partners = Trie(*(array.copy() for array in self.trie)) if self.outer else None
        self.probed = frozenset(np.unique(self.trie.nodes[:, 1]).tolist())
        """Columns that are looked up: the others need no index."""
        self.alone = {t.streams[0]: n for t, n in numbers.items() if len(t.streams) == 1}
        """Templates of one stream by itself: at most one for each."""
        self._streams_of, self._bounds = builder.numbers(), builder.bounds()
        self.streams, self.columns = builder.streams, builder.columns
        self._layout: Layout | None = None
        self.template_streams = np.where(self._streams_of < 0, self._streams_of[:, :1], self._streams_of)
        """By template the numbers of its streams, the first repeated where others have more."""
        self._delays = _delays(numbers, self.width)
        self._beside = self._find_partners()
        self._forms()
        self._rows()
        self._count_living()
        self._silence(np.ones(len(numbers), np.bool_))

    def lay_out(self, plan: RegistryPlan) -> Layout:
        """The block's columns as segments are laid out."""
        if self._layout is None:
            self._layout = Layout(plan, self.streams, self.columns, self.probed, self._find_shown())
        return self._layout

    def _find_shown(self) -> dict[str, set[str]]:
        """By stream the columns that residuals and answers read."""
        shown: dict[str, set[str]] = {}
        for stream, column in self.plain_names:
            shown.setdefault(stream, set()).add(column)
        for (_, columns), _ in (*self.residuals, *self.outputs):
            for _, stream, column in columns:
                shown.setdefault(stream, set()).add(column)
        return shown

    @property
    def size(self) -> int:
        return len(self.ids)

    @property
    def alive(self) -> int:
        return int(self.active.sum())

    def strike(self, ids: Iterable[str]) -> None:
        """Queries leave; templates that only they had are not joined any more."""
        self.active[np.isin(self.owner, [self._number[id] for id in ids])] = 0
        self._count_living()
        living = self.sharing > 0
        self._silence(living)
        self.alone = {stream: n for stream, n in self.alone.items() if living[n]}
        self.outer = {n: t for n, t in self.outer.items() if living[n]}

    def _count_living(self) -> None:
        self.sharing = np.bincount(self.template_of[self.active != 0], minlength=self.templates)
        """By template the living rules that share it."""
        self._by_template: tuple[np.ndarray, np.ndarray] | None = None
        self.living_distinct = np.flatnonzero(self.distinct & (self.active != 0))
        """The living rules with DISTINCT."""
        self.distinct_sum = _sum_up(self.names.take(pa.array(self.living_distinct)), self.effect[self.living_distinct])
        """A sum over their queries: if that of all blocks is another one, queries have come or gone."""

    def list_first(self, templates: np.ndarray, most: int) -> np.ndarray:
        """The first living rules of some templates, so many of each at most."""
        if self._by_template is None:
            living = np.flatnonzero(self.active)
            order = living[np.argsort(self.template_of[living], kind="stable")]
            self._by_template = order, np.append(0, np.cumsum(self.sharing))
        order, start = self._by_template
        places = start[templates][:, None] + np.arange(most)
        return order[places[places < start[templates + 1][:, None]]]

    def _silence(self, living: np.ndarray) -> None:
        """Have walks make the combinations of living templates only; pairs of an anti join are not answered."""
        if self.partners is not None:
            asked = np.zeros(self.templates, np.bool_)
            asked[list(self.outer)] = living[list(self.outer)]
            _silence(self.partners, asked)
            anti = [n for n, t in self.outer.items() if t.outer == "anti"]
            living = living.copy()
            living[anti] = False
        if not living.all():
            _silence(self.trie, living)

    def template_over(self, marks: Mapping[str, int]) -> np.ndarray:
        """By template the time that no later answer's youngest member is before."""
        reached = np.array([marks[s] for s in self.streams], np.int64)[self.template_streams]
        return shift(reached, -self._delays).min(axis=1)

    def list_streams(self) -> set[str]:
        """The streams that living queries read."""
        used = np.unique(self._streams_of[np.unique(self.template_of[self.active != 0])])
        names = list(self.streams)
        return {names[n] for n in used if n >= 0}

    @property
    def templates(self) -> int:
        return len(self._streams_of)

    def list_ids(self, templates: np.ndarray) -> list[str]:
        """The living queries of some templates."""
        found = np.flatnonzero(np.isin(self.template_of, templates) & (self.active != 0))
        return [self.queries[n].id for n in np.unique(self.owner[found])]

    def list_living(self) -> list[Registered]:
        return [self.queries[n] for n in np.unique(self.owner[self.active != 0])]

    def hull(self) -> dict[tuple[str, str], int]:
        """For every ordered pair of streams the largest y.ts - x.ts that some living query allows: what expiry goes by."""
        used = np.unique(self.template_of[self.active != 0])
        streams, bounds = self._streams_of[used], self._bounds[used]
        x, y = np.broadcast_arrays(streams[:, :, None], streams[:, None, :])
        pairs = (x >= 0) & (y >= 0) & (~np.eye(streams.shape[1], dtype=np.bool_) | self._beside[used])
        widest = np.full((len(self.streams), len(self.streams)), -NO_BOUND, np.int64)
        np.maximum.at(widest, (x[pairs], y[pairs]), bounds[pairs])
        seen = np.zeros(widest.shape, np.bool_)
        seen[x[pairs], y[pairs]] = True
        names = list(self.streams)
        return {(names[i], names[j]): int(widest[i, j]) for i, j in np.argwhere(seen)}

    def _find_partners(self) -> np.ndarray:
        """By template and pair of aliases, where partners of preserved tuples are kept beside each other."""
        out = np.zeros((self.templates, self.width, self.width), np.bool_)
        for n, template in self.outer.items():
            out[n, template.partner, template.partner] = True
        return out

    def _forms(self) -> None:
        """Residuals and outputs by form; plain outputs by column."""
        residuals, outputs = Forms.empty(), Forms.empty()
        prefixes: dict[str, int] = {}
        most = max((len(rule.outputs) for rule in self.rules), default=0)
        count = len(self.rules)
        self.residual_start = np.zeros(count + 1, np.int64)
        uses = []
        self.output_count = np.array([len(rule.outputs) for rule in self.rules], np.int64)
        self.output_prefix = np.zeros((count, most), np.int64)
        self.output_form = np.full((count, most), -1, np.int64)
        self.output_use = np.zeros((count, most), np.int64)
        self.output_alias = np.zeros((count, most), np.int64)
        self.output_column = np.full((count, most), -1, np.int64)
        self.plain: dict[tuple[str, str, str], int] = {}
        """(stream, column, type) of plain outputs, numbered."""
        self.output_types: list[str] = []
        """Of computed outputs, by form."""
        for row, query in enumerate(self.rules):
            streams = query.template.streams
            found = [residuals.use(streams, r) for r in query.open_residuals]
            uses += found
            self.residual_start[row + 1] = len(uses)
            for n, output in enumerate(query.outputs):
                self.output_prefix[row, n] = prefixes.setdefault(write_prefix(n, output.name), len(prefixes))
                if output.value.is_plain:
                    ((x, column),) = output.value.columns
                    key = streams[x], column, output.type
                    self.output_alias[row, n], self.output_column[row, n] = (
                        x,
                        self.plain.setdefault(key, len(self.plain)),
                    )
                else:
                    form, use = outputs.use(streams, output.value)
                    self.output_form[row, n], self.output_use[row, n] = form, use
                    if form == len(self.output_types):
                        self.output_types.append(output.type)
        self.prefixes = pa.array(list(prefixes) or [""], pa.large_string())
        self.residual_form = np.array([f for f, _ in uses], np.int64)
        self.residual_use = np.array([u for _, u in uses], np.int64)
        self.residuals, self.outputs = residuals.tables(), outputs.tables()

    def _rows(self) -> None:
        """What `distinct` needs: which queries tell rows apart, by buckets of which width, and how their rows are kept."""
        widths = [rule.bucket_us for rule in self.rules]
        self.distinct = np.array([rule.distinct for rule in self.rules], np.bool_)
        self.has_distinct = bool(self.distinct.any())
        self.bucket_us = np.array([UNBOUNDED if w is None else w for w in widths], np.int64)
        kinds: dict[str, int] = {}
        found = [
            (FOR_EVER if width is None else UNTIL) + "|".join(o.type for o in rule.outputs)
            for rule, width in zip(self.rules, widths, strict=True)
        ]
        self.row_kind = np.array([kinds.setdefault(kind, len(kinds)) for kind in found], np.int64)
        self.row_kinds = list(kinds)
        self.plain_names = [(stream, column) for stream, column, _ in self.plain]


def _gates(rules: Sequence[Subscription], template_of: Sequence[int], templates: int) -> list[tuple[Gate | None, ...]]:
    """The gates of the first templates, as far as they go; the others let every tuple pass."""
    by_template: list[list[Subscription]] = [[] for _ in range(templates)]
    for rule, number in zip(rules, template_of, strict=True):
        by_template[number].append(rule)
    out: list[tuple[Gate | None, ...]] = [()] * templates
    known: set[Gate] = set()
    for number, mine in enumerate(by_template):
        if mine[0].template.is_lone or not (mine[0].constants or mine[0].residuals):
            continue  # nothing is looked up for it, or a query that asks nothing wants every tuple
        made = gates(mine)
        known |= {gate for gate in made if gate is not None}
        if len(known) > MOST_GATES:
            break
        out[number] = made
    return out


def _delays(templates: Iterable[Template], width: int) -> np.ndarray:
    """By template and alias how much later than its stream's watermark an answer may leave: preserved tuples wait for their partners."""
    rows = [[t.wait_us if t.outer is not None and n == t.partner else 0 for n in range(width)] for t in templates]
    return np.array(rows, np.int64).reshape(-1, width)


def _sum_up(names: pa.Array, effect: np.ndarray) -> int:
    return int(combine(codes(names, "bytes"), effect).sum()) if len(names) else 0


def _silence(trie: Trie, alive: np.ndarray) -> None:
    silence(trie.nodes, trie.leaf_template, trie.leaf_high, trie.leaf_tests, alive)


def write_prefix(n: int, name: str) -> str:
    """What stands before the n-th value of an object.

    >>> write_prefix(0, "page"), write_prefix(1, "total")
    ('{"page":', ',"total":')
    """
    return ("{" if n == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
