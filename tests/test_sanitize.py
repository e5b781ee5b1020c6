"""Tests of sanitising: no invisible characters, no tags, and legible scripts stay intact."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossgate._cli.output import plain
from crossgate._support.sanitize import (
    remove_invisible,
    sanitize,
    sanitize_line,
    sanitize_quotation,
)

# From DerivedCoreProperties.txt of Unicode 17.
IGNORABLE = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810)),
    *(*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164),
    *(*range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFF9)),
    *(*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]


@pytest.mark.parametrize("letter", ["a", "é", "中", "б", "1", "\u0301"])
def test_ignorable_characters_are_removed_after_any_letter(letter: str) -> None:
    for code in [*IGNORABLE, 0x2800]:
        assert sanitize(f"{letter}{chr(code)}b") == f"{letter}b", hex(code)
        assert plain(f"{letter}{chr(code)}b").replace(" ", "") == f"{letter}b"


@pytest.mark.parametrize(
    "text",
    [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian with a zero-width non-joiner
        "\u0915\u094d\u200d\u0937",  # Devanagari with a zero-width joiner
        "\U0001f469\u200d\U0001f4bb",  # a woman with a laptop
        "\U0001f468\U0001f3fd\u200d\U0001f33e",  # with a skin tone
        "\u2764\ufe0f\u200d\U0001f525",  # a heart in emoji style, on fire
        "caf\u00e9, \u4e2d\u6587, \ud55c\uae00, \u05e9\u05dc\u05d5\u05dd",
    ],
)
def test_legible_text_is_not_changed(text: str) -> None:
    assert sanitize(text) == text


@given(st.text(st.sampled_from("ab中\u0645\u2764\u200c\u200d\ufe0f\ufe0e\U000e0141"), max_size=12))
def test_kept_joiners_and_styles_are_single(text: str) -> None:
    kept = remove_invisible(text)
    for first, second in itertools.pairwise(kept):
        assert not (first in "\u200c\u200d" and second in "\u200c\u200d\ufe0f")
    assert not any(hidden in kept for hidden in "\ufe0e\U000e0141")


@pytest.mark.parametrize("hidden", ["", "\u034f", "\u115f", "\u3164", "\ufe0f", "\u2800", "\u200d"])
@pytest.mark.parametrize("mark", ["", "\u0301", "\u0338", " ", "\u0301 \u20d2", "\u0903"])
@pytest.mark.parametrize("bracket", "<\uff1c\ufe64")
def test_a_tag_is_disarmed_despite_marks_and_hidden_characters(
    bracket: str, mark: str, hidden: str
) -> None:
    text = f"{bracket}{mark}{hidden}/system-reminder>"
    assert bracket not in sanitize(text)
    assert sanitize(text).startswith("\u2039")


@pytest.mark.parametrize("bracket", "<\uff1c\ufe64")
@pytest.mark.parametrize("start", "/\uff0f\u2044\u2215\u29f8!\uff01\ufe57?\uff1f\ufe56|\uff5c")
def test_a_tag_is_disarmed_despite_a_lookalike_of_its_slash_or_mark(
    bracket: str, start: str
) -> None:
    assert sanitize(f"a {bracket}{start}system>") == f"a \u2039{start}system>"


def test_a_bracket_without_a_tag_stays() -> None:
    assert sanitize("a <= b, 3 < 5\u0338, <>, x <-> y") != ""
    assert sanitize("a <= b <> c <-") == "a <= b <> c <-"


def test_lines_and_fences() -> None:
    assert sanitize("a\r\nb\u2028c\x85d\x1ce\tf\n") == "a\nb\nc\nd\ne\tf"
    assert sanitize_quotation("````\n~~~") == "``\n~~"
    assert sanitize_line("a\n b\u200b \x1b[31mc") == "a b [31mc"


@given(st.text())
def test_the_result_has_only_visible_characters_and_is_stable(text: str) -> None:
    cleaned = sanitize(text)
    assert sanitize(cleaned) == cleaned
    for character in cleaned:
        if character not in "\n\t\u200c\u200d":
            assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn")
            assert ord(character) not in IGNORABLE or character == "\ufe0f"
