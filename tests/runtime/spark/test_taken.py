"""What Spark is asked about an alias with tables, for the later aliases of its stream: each table by itself, where no condition relates it to another."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import watersmeet as wm
from watersmeet.plan.model import InputPlan
from watersmeet.runtime.spark import taken

ORDERS = wm.Stream(wm.testing.table("id int, user int, ts timestamp"), time="ts")
TABLES = {name: wm.Table(wm.testing.table("id int, country string")) for name in ("u", "v", "w")}


def alias(joins: str, where: str = "true") -> InputPlan:
    text = f"SELECT a.id FROM o a {joins} JOIN o b ON b.id = a.id WHERE {where} WINDOW = 1 MINUTE"
    query = wm.sql(text, o=ORDERS, **{name: table for name, table in TABLES.items() if f"JOIN {name} " in text})
    return next(i for i in query.plan.inputs if i.alias == "a")


@pytest.mark.parametrize(
    ("joins", "where", "groups"),
    [
        ("JOIN u ON u.id = a.user JOIN v ON v.id = a.id", "true", [{"u"}, {"v"}]),
        ("JOIN u ON u.id = a.user LEFT JOIN v ON v.country = u.country", "true", [{"u", "v"}]),
        ("LEFT JOIN u ON u.id = a.user LEFT JOIN v ON v.id = a.id", "coalesce(u.id, v.id) = 3", [{"u", "v"}]),
        ("JOIN u ON u.id = a.user LEFT JOIN v ON v.id = a.id LEFT JOIN w ON w.id = v.id", "true", [{"u"}, {"v", "w"}]),
    ],
)
def test_tables_that_a_condition_names_together_are_asked_together(
    joins: str, where: str, groups: list[set[str]]
) -> None:
    assert sorted(map(sorted, taken.group_tables(alias(joins, where)))) == sorted(map(sorted, groups))


def ask(monkeypatch: pytest.MonkeyPatch, of: InputPlan) -> str:
    said: list[str] = []
    monkeypatch.setattr(taken, "name_columns", lambda lookup, table: lookup.alias)
    session = SimpleNamespace(sql=lambda text, **views: said.append(text.format(**views)))
    taken.mark_taken(SimpleNamespace(sparkSession=session), of, dict.fromkeys(TABLES), "true")
    return said[0]


def test_a_left_joined_table_that_nothing_asks_about_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ask(monkeypatch, alias("JOIN u ON u.id = a.user LEFT JOIN v ON v.id = a.id", "a.id <> 7"))
    assert text.count("EXISTS") == 1
    assert "FROM u WHERE" in text
    assert "(`u.id` = _of_stream.`user`)" in text


def test_texts_with_braces_are_asked_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ask(monkeypatch, alias("LEFT JOIN u ON u.id = a.user", "coalesce(u.country, '{x}') = '{x}'"))
    cases = 3  # with a partner, without one, and for rows that are looked up nowhere; the filter also guards the key
    assert text.count("'{x}') = '{x}'") == 2 * cases
    assert text.count("NOT EXISTS") == 1
