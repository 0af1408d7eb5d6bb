"""Patterns of Java's regular expressions as RE2's. What they match was compared with Spark's RLIKE; here the answers are Java's by its documentation."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.expressions.evaluator import evaluate
from watersmeet.sql.evaluator.patterns import translate


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("a.b", ["xa-b"], ["a\nb", "a\rb", "a\x85b", "a\u2028b"]),
        ("^a$", ["a", "a\n", "a\r\n", "a\u2029"], ["ba", "a\n\n", "ab"]),
        ("a|b$", ["ax", "xb", "b\n"], ["bx"]),
        (r"\s", ["\x0b", " ", "\r"], ["\x85", "\u00a0", ""]),
        (r"\w\d", ["_7", "a0"], ["é7", "a\u0663"]),
        (r"\D\W\S", ["a-b"], ["1-b", "aab", "a- "]),
        ("(?i)ks", ["KS", "kS"], ["\u212as", "k\u017f"]),
        ("(?i)[^a-c]", ["d"], ["a", "B"]),
        (r"[\w.-]+@", ["a.b-c@"], ["@", "é@"]),
        (r"a\.b|[.]c", ["a.b", ".c"], ["axb", "xc"]),
        ("^(?:ab|c){2,3}?$", ["abc", "ccc"], ["c", "cccc"]),
        ("\U0001f600{2}", ["\U0001f600\U0001f600"], ["\U0001f600"]),
        ("", ["", "x"], []),
        ("x{0}y*", ["", "anything"], []),
    ],
)
def test_what_is_translated_matches_what_java_matches(pattern: str, matches: list[str], others: list[str]) -> None:
    made = translate(pattern)
    assert made is not None
    texts = pa.table({"s": [*matches, *others]})
    (found,) = evaluate(texts, [f"regexp_matches(s, '{made}')"], pattern, "UTC").columns
    assert found.to_pylist() == [True] * len(matches) + [False] * len(others)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1", "(?=a)b", "(?<n>a)", "a(?i)b", r"\bfoo", r"\p{L}", r"\x41", r"\u0041", r"\Qa\E", "a++", "a*+", "a**", "*a", "a{3", "a{,3}", "a{3,2}", "a{1001}", "{",
        "[a&&b]", "[[a]b]", "[]", "[a", "[b-a]", r"[a-\d]", "(a", "a)", "a$b", "(a$)", "^*", r"\s$", "[^a]$", r"\r$", r"\W$", "a\\", "(" * 99 + ")" * 99, "a" * 5_000,
    ],
)  # fmt: skip
def test_what_may_mean_something_else_is_not_translated(pattern: str) -> None:
    assert translate(pattern) is None
