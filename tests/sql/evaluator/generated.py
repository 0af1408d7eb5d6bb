"""Random expressions of numbers, texts and truth values over the columns of the edge values."""

import random

COLUMNS = {"number": "thijlmfdexy", "text": "su", "truth": "bc"}


def write_expressions(seed: int, many: int) -> list[str]:
    """So many of them."""
    chance = random.Random(seed)
    writers = [write_number, write_text, write_truth]
    return [chance.choice(writers)(chance, chance.randrange(1, 4)) for _ in range(many)]


def write_number(chance: random.Random, depth: int) -> str:
    if depth == 0 or chance.random() < 0.1:
        return chance.choice([*COLUMNS["number"], "1", "7", "-3", "2.50", "1e3", "3000000000"])
    one, other, third = (write_number(chance, depth - 1) for _ in range(3))
    return chance.choice(
        [
            *(f"{one} {sign} {other}" for sign in "+-*"), f"({one} - {other}) * {third}", f"{one} / {other}", f"{one} % {other}", f"-({one})", f"abs({one})",
            f"coalesce({one}, {other})", f"greatest({one}, {other}, {third})", f"least({one}, {other})", f"length({write_text(chance, depth - 1)})",
            f"if({write_truth(chance, depth - 1)}, {one}, {other})", f"CASE WHEN {write_truth(chance, depth - 1)} THEN {one} WHEN b THEN {other} ELSE {third} END",
            f"CASE {one} WHEN {other} THEN {third} END",
        ]
    )  # fmt: skip


def write_text(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice([*COLUMNS["text"], "'de'", "'{0}'"])
    one, other = (write_text(chance, depth - 1) for _ in range(2))
    return chance.choice(
        [f"upper({one})", f"lower({one})", f"coalesce({one}, {other})", f"CASE WHEN b THEN {one} ELSE {other} END"]
    )


def write_truth(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(COLUMNS["truth"])
    one, other, third = (write_number(chance, depth - 1) for _ in range(3))
    text, truth, more = write_text(chance, depth - 1), write_truth(chance, depth - 1), write_truth(chance, depth - 1)
    return chance.choice(
        [
            *(f"{one} {sign} {other}" for sign in ("=", "<>", "<", ">=")), f"{one} BETWEEN {other} AND {third}", f"{one} IN ({other}, {third}, 4)", f"{text} = {write_text(chance, depth - 1)}",
            f"{text} IN ('a', {write_text(chance, depth - 1)})", f"{text} LIKE 'a%'", f"{text} NOT LIKE '_b'", f"{one} IS NULL", f"{text} IS NOT NULL", f"({truth} AND {more})",
            f"({truth} OR {more})", f"NOT {truth}", f"coalesce({truth}, {more})", "(b = TRUE)",
        ]
    )  # fmt: skip
