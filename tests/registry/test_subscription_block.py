"""Compiled queries: what expiry goes by, and the paths of probes, against plain loops over the queries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.compiled import Compiled
from watersmeet.registry.shared.probe_trie import NODE_FIELDS, TrieBuilder
from watersmeet.registry.subscription import Registered, Subscription
from watersmeet.registry.template import Template

NAMES = ("r", "s", "t")


@st.composite
def templates(draw: st.DrawFn) -> Template:
    """2 to 4 aliases in the order of their streams, joined by a tree of equalities and some more."""
    streams = tuple(sorted(draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=4))))
    column = st.sampled_from(("j", "k"))
    edges = {(draw(st.integers(0, y - 1)), draw(column), y, draw(column), "integer") for y in range(1, len(streams))}
    for _ in range(draw(st.integers(0, 2))):
        y = draw(st.integers(1, len(streams) - 1))
        edges.add((draw(st.integers(0, y - 1)), draw(column), y, draw(column), "integer"))
    bound = st.sampled_from((0, 5, 10, UNBOUNDED))
    bounds = tuple(tuple(0 if x == y else draw(bound) for y in range(len(streams))) for x in range(len(streams)))
    return Template(streams, tuple(sorted(edges)), bounds)  # type: ignore[arg-type]


def registered(number: int, template: Template) -> Registered:
    return Registered(f"q{number}", 0, Subscription(template, (), (), ()))


def widest(queries: list[Registered]) -> dict[tuple[str, str], int]:
    out: dict[tuple[str, str], int] = {}
    for q in queries:
        streams, bounds = q.query.template.streams, q.query.template.bounds
        for x, left in enumerate(streams):
            for y, right in enumerate(streams):
                if x != y:
                    out[left, right] = max(out.get((left, right), bounds[x][y]), bounds[x][y])
    return out


@given(st.lists(templates(), min_size=1, max_size=8), st.data())
def test_expiry_goes_by_the_widest_windows_of_the_living(made: list[Template], data: st.DataObject) -> None:
    queries = [registered(n, t) for n, t in enumerate(made)]
    block = Block(queries)
    assert block.hull() == widest(queries)
    gone = data.draw(st.sets(st.integers(0, len(queries) - 1)))
    block.strike(f"q{n}" for n in gone)
    assert block.hull() == widest([q for n, q in enumerate(queries) if n not in gone])


def test_a_query_that_leaves_takes_its_streams_along() -> None:
    def pair(stream: str) -> Template:
        return Template(("r", stream), ((0, "k", 1, "k", "integer"),), ((0, 5), (5, 0)))

    compiled = Compiled()
    both = {q.id: q for q in (registered(0, pair("s")), registered(1, pair("t")))}
    compiled.become(both)
    assert compiled.streams == {"r", "s", "t"}
    compiled.become({"q0": both["q0"]})
    assert compiled.streams == {"r", "s"}


@given(st.lists(templates(), min_size=1, max_size=8))
def test_every_alias_drives_every_template_once_and_no_path_leaves_out_an_equality(made: list[Template]) -> None:
    builder = TrieBuilder()
    for template in made:
        builder.add(template)
    trie = builder.build()
    column_of = {number: (stream, column) for (stream, column, _, _), number in builder.columns.items()}
    found: dict[tuple[int, int], int] = {}
    reached: set[int] = set()

    def down(begin: int, end: int, driver: str, path: list[list[int]]) -> None:
        for node in range(begin, end):
            reached.add(node)
            row = trie.nodes[node].tolist()
            here = [*path, row]
            assert column_of[row[1]][0] == list(builder.streams)[row[0]]
            for leaf in range(row[7], row[8]):
                template, aliases = made[trie.leaf_template[leaf]], trie.leaf_alias[leaf].tolist()
                check(template, driver, here, aliases[: len(here) + 1], bool(trie.leaf_tests[leaf]))
                key = int(trie.leaf_template[leaf]), aliases[0]
                found[key] = found.get(key, 0) + 1
            down(row[5], row[6], driver, here)

    def check(template: Template, driver: str, path: list[list[int]], aliases: list[int], tests: bool) -> None:
        assert template.streams[aliases[0]] == driver
        assert sorted(aliases) == list(range(len(template.streams)))
        equalities, tighter = set(), False
        for depth, row in enumerate(path, 1):
            further = [(row[2], row[3], row[1]), *trie.more[row[9] : row[10]].tolist()]
            for slot, other, own in further:
                assert slot < depth
                ends = sorted(((aliases[slot], column_of[other][1]), (aliases[depth], column_of[own][1])))
                equalities.add((*ends[0], *ends[1], "integer"))
            for slot in range(depth):
                x, y = aliases[slot], aliases[depth]
                low, high = row[NODE_FIELDS + slot], row[NODE_FIELDS + builder.width + slot]
                assert low <= -template.bounds[y][x]
                assert template.bounds[x][y] <= high
                tighter |= (low, high) != (-template.bounds[y][x], template.bounds[x][y])
        assert equalities == set(template.edges)
        assert tests == tighter

    for name, number in builder.streams.items():
        down(*trie.roots[number].tolist(), name, [])
    assert found == {(n, alias): 1 for n, t in enumerate(made) for alias in range(len(t.streams))}
    assert reached == set(range(len(trie.nodes)))
