r"""Java's regular expressions as RE2's, of which DuckDB's are made: those that mean the same, and only these.

    Java                     RE2
    .                        anything but Java's five ends of lines; RE2 would stop at \n alone
    $                        the end, or before the end of the last line: \z after an optional end of line
    \d \w \s                 the ASCII characters that Java means; RE2's \s has no vertical tab
    (?i) at the beginning    both cases of ASCII letters; RE2 would fold all of Unicode's

Whether there is a match is all that RLIKE asks, so it does not matter which one is found: lazy quantifiers are taken for greedy ones. What looks around, back or at words (\b), possessive quantifiers, classes inside classes
and names of classes are not translated. Nor is a $ where something may match a carriage return, since Java does not look between \r and \n, or where something follows it.

Invariant: a pattern that is translated matches what Java's matches. RE2 takes time that is linear in the text, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_ENDS = "\n\r\x85\u2028\u2029"
_DIGIT, _WORD, _SPACE = "0-9", "0-9A-Za-z_", r"\x{20}\x{9}-\x{d}"
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_MOST_REPEATED, _DEEPEST, _LONGEST = 1_000, 30, 2_000


class _Unknown(Exception):
    """The pattern may mean something else in RE2."""


def translate(pattern: str) -> str | None:
    r"""RE2's pattern for one of Java's; None if nobody knows one.

    >>> translate("a.c"), translate(r"\d+"), translate(r"(a)\1")
    ('a[^\\x{a}\\x{d}\\x{85}\\x{2028}\\x{2029}]c', '[0-9]+', None)
    >>> translate("(?i)ab|[x-z]$")
    '[aA][bB]|[x-zX-Z](?:\\x{d}\\x{a}|[\\x{a}\\x{d}\\x{85}\\x{2028}\\x{2029}])?\\z'
    """
    if len(pattern) > _LONGEST:
        return None
    folds = pattern.startswith("(?i)")
    reader = _Reader(pattern[4:] if folds else pattern, folds)
    try:
        made = reader.read_choice(0)
        return None if reader.at < len(reader.text) or (reader.ends_at_lines and reader.takes_returns) else made
    except _Unknown:
        return None


@dataclass
class _Reader:
    """One pass over a pattern."""

    text: str
    folds: bool
    at: int = 0
    ends_at_lines: bool = False
    takes_returns: bool = field(default=False)
    """Whether some part can match a carriage return."""

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        found = self.peek()
        if not found:
            raise _Unknown
        self.at += 1
        return found

    def read_choice(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise _Unknown
        parts = [self.read_sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            parts.append(self.read_sequence(depth))
        return "|".join(parts)

    def read_sequence(self, depth: int) -> str:
        out = []
        while self.peek() and self.peek() not in "|)":
            if self.peek() == "$":
                out.append(self.read_end(depth))
                break
            is_begin = self.peek() == "^"
            out.append(self.read_atom(depth))
            out.append("" if is_begin else self.read_count())
        return "".join(out)

    def read_end(self, depth: int) -> str:
        self.at += 1
        if depth or self.peek() not in ("", "|"):
            raise _Unknown
        self.ends_at_lines = True
        return rf"(?:\x{{d}}\x{{a}}|[{_write_all(_ENDS)}])?\z"

    def read_atom(self, depth: int) -> str:
        found = self.take()
        if found == "(":
            return self.read_group(depth)
        if found == "[":
            return self.read_class()
        if found == ".":
            return f"[^{_write_all(_ENDS)}]"
        if found == "^":
            return r"\A"
        if found == "\\":
            return self.read_escape()
        if found in "*+?{":
            raise _Unknown
        return self.write_one(found)

    def read_group(self, depth: int) -> str:
        if self.peek() == "?":
            self.at += 1
            if self.take() != ":":
                raise _Unknown
        inner = self.read_choice(depth + 1)
        if self.take() != ")":
            raise _Unknown
        return f"(?:{inner})"

    def read_count(self) -> str:
        """A quantifier, if one stands here; how eager it is makes no difference."""
        found = self.peek()
        if not found or found not in "*+?{":
            return ""
        self.at += 1
        made = self.read_braces() if found == "{" else found
        if self.peek() == "?":
            self.at += 1
        if self.peek() and self.peek() in "*+?{":
            raise _Unknown
        return made

    def read_braces(self) -> str:
        end = self.text.find("}", self.at)
        ends = self.text[self.at : end].split(",") if end > 0 else []
        self.at = end + 1
        numbers = [int(n) for n in ends if n.isascii() and n.isdigit() and len(n) <= 4]
        is_open = len(ends) == 2 and not ends[1]
        if not 1 <= len(ends) <= 2 or len(numbers) != len(ends) - is_open or max(numbers) > _MOST_REPEATED:
            raise _Unknown
        if numbers != sorted(numbers):
            raise _Unknown
        return "{" + ",".join([*map(str, numbers), *([""] if is_open else [])]) + "}"

    def read_escape(self) -> str:
        found = self.take()
        if found.lower() in _CLASSES:
            self.takes_returns |= found in "sDW"
            return f"[{'^' if found.isupper() else ''}{_CLASSES[found.lower()]}]"
        return self.write_one(self.read_sign(found))

    def read_sign(self, found: str) -> str:
        """The character that an escape stands for."""
        if found in _CONTROLS:
            return _CONTROLS[found]
        if not found.isascii() or found.isalnum():
            raise _Unknown
        return found

    def write_one(self, sign: str) -> str:
        self.takes_returns |= sign == "\r"
        both = _fold(sign) if self.folds else ""
        return f"[{sign}{both}]" if both else _write(sign)

    def read_class(self) -> str:
        is_not = self.peek() == "^"
        self.at += is_not
        parts, takes = [], False
        first = True
        while self.peek() != "]" or first:
            part, matches = self.read_member(first)
            parts.append(part)
            takes, first = takes or matches, False
        self.at += 1
        self.takes_returns |= takes != is_not
        return f"[{'^' if is_not else ''}{''.join(parts)}]"

    def read_member(self, first: bool) -> tuple[str, bool]:
        """A character, a range or a class by a letter; and whether it has the carriage return."""
        found = self.take()
        if found in "[]&" or (found == "-" and not first and self.peek() != "]") or (found == "^" and first):
            raise _Unknown
        if found == "\\":
            found = self.take()
            if found in _CLASSES:
                return _CLASSES[found], found == "s"
            found = self.read_sign(found)
        low, high = found, found
        if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] != "]":
            self.at += 1
            high = self.take()
            high = self.read_sign(self.take()) if high == "\\" else high
            if high in "[]&" or high < low:
                raise _Unknown
        return self.write_range(low, high), low <= "\r" <= high

    def write_range(self, low: str, high: str) -> str:
        made = _write(low) if low == high else f"{_write(low)}-{_write(high)}"
        return made + ("".join(_fold_range(low, high)) if self.folds else "")


def _fold(sign: str) -> str:
    """The other case of an ASCII letter."""
    return sign.swapcase() if sign.isascii() and sign.isalpha() else ""


def _fold_range(low: str, high: str) -> Iterator[str]:
    """The other cases of the ASCII letters of a range, as ranges."""
    for first, last in (("A", "Z"), ("a", "z")):
        begin, end = max(low, first), min(high, last)
        if begin <= end:
            yield _fold(begin) if begin == end else f"{_fold(begin)}-{_fold(end)}"


def _write(sign: str) -> str:
    """A character as RE2 reads it, in a class or outside."""
    is_plain = (sign.isascii() and sign.isalnum()) or sign == "_"
    return sign if is_plain else rf"\x{{{ord(sign):x}}}"


def _write_all(signs: str) -> str:
    return "".join(map(_write, signs))
