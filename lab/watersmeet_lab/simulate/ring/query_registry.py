"""Continuous queries: who asked what, from when to when; answers of a template fan out to all queries that share it.

    query      template   in force from batch   up to batch
    answer     template   oldest batch of its tuples, newest batch

    a query gets an answer   if   from <= oldest   and   newest <= up to

Invariant: queries of one template share its rows. A template takes a later query in only while it is in force, since then its
rows hold everything that was published since; otherwise the query gets a template of its own. A one-time query sees what
was published before it, and shares with none.
Implements: Idreos, Liarou, Koubarakis (2008), section 2: insT(q), pub(t) >= insT(q), Owner(q); section 4: one-time queries.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from watersmeet.errors import OptionError
from watersmeet.kernels.registered.rewriting import AT_NUMBERS, AT_SLOTS, AT_TS, NEWEST, OLDEST, TEMPLATE
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.rjoin.catalogue import ALWAYS, NEVER
from watersmeet_lab.simulate.ring.catalogue import RingCatalogue
from watersmeet_lab.simulate.ring.coded_join import CodedJoin


class QueryRegistry:
    """The queries of a catalogue; numbers count from 0 and are never used again."""

    def __init__(self, catalogue: RingCatalogue) -> None:
        self.catalogue = catalogue
        self._template = np.zeros(0, np.int64)
        self._since = np.zeros(0, np.int64)
        self._until = np.zeros(0, np.int64)
        self._numbers: dict[CodedJoin, int] = {}

    def __len__(self) -> int:
        return len(self._template)

    def add_all(self, templates: Iterable[CodedJoin], batch: int) -> tuple[range, list[int]]:
        """Queries that take effect with a batch: their numbers, and the templates that are new and must be placed."""
        templates = [t.canonical for t in templates]
        fresh = [t for t in dict.fromkeys(templates) if not self._is_shared(t)]
        new = self.catalogue.add_between(fresh, batch)
        self._numbers |= dict(zip(fresh, new, strict=True))
        return self._register([self._numbers[t] for t in templates], batch, ALWAYS), list(new)

    def add(self, template: CodedJoin, batch: int) -> tuple[int, list[int]]:
        numbers, new = self.add_all([template], batch)
        return numbers[0], new

    def ask(self, template: CodedJoin, batch: int) -> tuple[int, list[int]]:
        """A one-time query over the tuples of all batches up to this one."""
        new = self.catalogue.add(template, NEVER, batch)
        return self._register([new], NEVER, batch)[0], [new]

    def remove(self, query: int, batch: int) -> None:
        """A query gets answers whose tuples were published up to this batch, and no others."""
        if not 0 <= query < len(self) or self._until[query] != ALWAYS:
            raise OptionError(f"query {query} is not in force; it cannot be removed")
        self._until[query] = batch
        template = self._template[query]
        self.catalogue.end(int(template), int(self._until[self._template == template].max()))

    @property
    def templates(self) -> np.ndarray:
        """The template of every query."""
        return self._template

    def fan_out(self, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(query, position in the answers) of everything that has to be delivered."""
        order = np.argsort(self._template, kind="stable")
        of = self._template[order]
        first = np.searchsorted(of, answers[:, TEMPLATE], side="left")
        count = np.searchsorted(of, answers[:, TEMPLATE], side="right") - first
        answer_idx = np.repeat(np.arange(len(answers)), count)
        within = np.arange(len(answer_idx)) - np.repeat(np.cumsum(count) - count, count)
        query = order[first[answer_idx] + within]
        due = (self._since[query] <= answers[answer_idx, OLDEST]) & (answers[answer_idx, NEWEST] <= self._until[query])
        return query[due], answer_idx[due]

    def deliver(self, answers: np.ndarray) -> dict[int, np.ndarray]:
        """The results of every query that has some, one line each. DISTINCT: a row once per bucket of its youngest member."""
        query, answer_idx = self.fan_out(answers)
        order = np.argsort(query, kind="stable")
        numbers, first = np.unique(query[order], return_index=True)
        parts = np.split(answer_idx[order], first[1:])
        return {q: self._results(q, answers[part]) for q, part in zip(numbers.tolist(), parts, strict=False)}

    def _results(self, query: int, answers: np.ndarray) -> np.ndarray:
        template = self.catalogue.templates[self._template[query]]
        lay = self.catalogue.layout.array
        rows = answers[:, [AT_SLOTS + template.slot_of(place) for place in template.select]]
        if not template.distinct:
            return rows
        youngest = answers[:, lay[AT_TS] : lay[AT_TS] + len(template.streams)].max(axis=1)
        bucket = youngest if template.bucket <= 0 else youngest // template.bucket
        if template.bucket >= UNBOUNDED:
            bucket = np.zeros(len(answers), np.int64)
            if template.tumbling_rows:
                bucket = (answers[:, lay[AT_NUMBERS]] - 1) // template.tumbling_rows
        return np.unique(np.column_stack([rows, bucket]), axis=0)[:, :-1]

    def _is_shared(self, template: CodedJoin) -> bool:
        number = self._numbers.get(template)
        return number is not None and self.catalogue.until(number) == ALWAYS

    def _register(self, templates: list[int], since: int, until: int) -> range:
        first = len(self)
        self._template = np.append(self._template, np.array(templates, np.int64))
        self._since = np.append(self._since, np.full(len(templates), since))
        self._until = np.append(self._until, np.full(len(templates), until))
        return range(first, len(self))
