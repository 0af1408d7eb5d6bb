"""Texts that differ in constants: read through their form, each is the query that parsing it gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import WatersmeetError
from watersmeet.query.session import IN_UTC
from watersmeet.query.stream import StreamSpec
from watersmeet.sql.forms import FormReader, cut_form
from watersmeet.sql.parse import parse

SCHEMA = {
    "id": "bigint",
    "k": "int",
    "b": "tinyint",
    "v": "double",
    "d": "decimal(8,2)",
    "t": "string",
    "ts": "timestamp",
}
STREAMS = {name: StreamSpec(name, SCHEMA, time="ts") for name in "rs"}
TEXTS = [
    "SELECT r.id FROM r WHERE r.k = {}",
    "SELECT r.id FROM r WHERE r.b > {} AND r.v < {}",
    "SELECT r.id, r.k + {} AS x FROM r WHERE r.d BETWEEN {} AND {} OR r.k IN ({}, {}, 7)",
    "SELECT round(r.d, {}) AS x FROM r WHERE r.t = {} AND r.k <= -{}",
    "SELECT r.id FROM r, s WHERE r.k = s.k AND r.v > {} * s.v AND abs(r.d - s.d) <= {} WINDOW = {} SECONDS",
    "SELECT r.id FROM r LEFT JOIN s ON r.k = s.k AND s.v > {} WHERE r.t = {} AND s.ts <= r.ts + INTERVAL {} SECONDS WINDOW (r, s) = 9 SECONDS",
    "SELECT r.k, count(*) AS n FROM r WHERE r.v > {} GROUP BY r.k, window(r.ts, '5 minutes') HAVING count(*) > {}",
    "SELECT r.id FROM r [ROWS {}], s WHERE r.k = s.k AND r.v > {}",
    "SELECT DISTINCT * FROM r WHERE r.t = {} -- {}",
]
CONSTANTS = st.sampled_from(
    ["0", "1", "2", "5", "42", "007", "725", "999999999", "2147483648", "1.5", "12.50", "12.75", "0.5", "1e3", "'x'", "'y z'", "'it''s'", "'{{0}}'", "''", "817263001", "'wm-mark-001'"]
)  # fmt: skip


@settings(max_examples=60)
@given(st.sampled_from(TEXTS), st.lists(st.lists(CONSTANTS, min_size=5, max_size=5), min_size=3, max_size=6))
def test_what_is_read_is_what_parsing_gives(text: str, drawn: list[list[str]]) -> None:
    reader = FormReader(STREAMS, IN_UTC, lone=True)
    for constants in drawn:
        sql = text.format(*constants)
        try:
            wanted = parse(sql, STREAMS, IN_UTC, lone=True)
        except WatersmeetError as error:
            with pytest.raises(type(error)):
                reader.read(sql)
        else:
            assert reader.read(sql) == wanted


def test_a_form_is_parsed_three_times_however_many_texts_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, parsed = FormReader(STREAMS, IN_UTC, lone=True), list[str]()
    whole = FormReader._parse
    monkeypatch.setattr(FormReader, "_parse", lambda self, sql: (parsed.append(sql), whole(self, sql))[1])
    for n in range(2, 50):
        found = reader.read(f"SELECT r.id FROM r WHERE r.k = {n} AND r.t = 'a{n}' AND r.v > 1{n % 9}.5")
        assert [str(f) for f in found.filters] == [f"r.k = {n}", f"r.t = 'a{n}'", f"r.v > 1{n % 9}.5"]
    assert len(parsed) == 3


def test_constants_of_other_types_are_other_forms() -> None:
    texts = ["1", "7", "7.5", "77.5", "'x'", "7000000000"]
    cuts = [cut_form(f"SELECT r.id FROM r WHERE r.k = 5 AND r.v > {text}") for text in texts]
    assert len({cut[0] for cut in cuts if cut is not None}) == 6
