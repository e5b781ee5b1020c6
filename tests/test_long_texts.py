"""Long texts in an index: found by their windows, and marked where no model read them whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from conftest import LengthReranker, WordEmbedder
from crossgate import Document, Index, Profile, Router, rerank
from crossgate._retrieval.passages import passages, surroundings, windows

SENTENCE = "The wind was mild and the boats stayed near the shore all afternoon. "
ANSWER = "The lighthouse at Perrin Point has 214 steps."
QUESTION = "how many steps does the lighthouse at Perrin Point have"
UNGATED = Profile()


def long_text(characters: int) -> str:
    return SENTENCE * (characters // len(SENTENCE)) + ANSWER


def library(characters: int) -> list[Document]:
    others = [Document(id=str(n), text=f"Boat number {n} is painted red.") for n in range(12)]
    return [*others, Document(id="long", text=long_text(characters))]


@pytest.mark.parametrize("characters", [4_000, 16_000, 40_000])
def test_answer_at_the_end_of_a_long_text_is_found(characters: int) -> None:
    result = Router(Index.build(library(characters))).route(QUESTION)
    assert result.ids[:1] == ["long"]
    hit = result.selected[0]
    assert ANSWER in hit.excerpt
    assert len(hit.excerpt) < 1_000
    assert hit.truncated


def test_cosine_of_a_long_text_is_that_of_its_nearest_part() -> None:
    index = Index.build(library(4_000), embedder=WordEmbedder())
    document = Document(id="short", text=ANSWER)
    index.upsert([document])
    hits = Router(index, reranker=None, profile=UNGATED).route(ANSWER).hits
    cosines = {hit.id: hit.cosine for hit in hits}
    head = index.search(ANSWER).scored
    stored = {found.id: found.cosine for found in head}
    assert cosines["short"] == stored["short"]
    of_text, of_start = cosines["long"], stored["long"]
    assert of_text is not None
    assert of_start is not None
    assert of_text > of_start


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (Document(id="a", text="boats " * 190), False),
        (Document(id="a", text="boats " * 210), True),
        (Document(id="a", text="boats", body="shore " * 990), False),
        (Document(id="a", text="boats", body="shore " * 1_010), True),
    ],
)
@pytest.mark.parametrize("reranker", [None, LengthReranker()])
def test_hit_is_truncated_if_no_model_read_the_document_whole(
    document: Document, expected: bool, reranker: LengthReranker | None
) -> None:
    index = Index.build([document], embedder=WordEmbedder())
    (hit,) = Router(index, reranker=reranker, profile=UNGATED).route("boats").hits
    assert hit.truncated == expected


def test_windows_are_not_embedded_when_time_is_up() -> None:
    class Slow(WordEmbedder):
        delay = 0.0

        def embed(
            self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
        ) -> list[list[float]]:
            if texts != [QUESTION]:
                time.sleep(self.delay)
            return super().embed(texts, progress=progress)

    embedder = Slow()
    index = Index.build(library(4_000), embedder=embedder)
    router = Router(index, reranker=None, profile=UNGATED)
    embedder.delay = 5.0
    started = time.perf_counter()
    result = router.route(QUESTION, budget_ms=50)
    assert time.perf_counter() - started < 4
    assert {(note.code, "50 ms" in note.detail) for note in result.degraded} == {("budget", True)}
    assert next(hit for hit in result.hits if hit.id == "long").truncated


TABLE = "# Stock\n\n| Part | Shelf |\n| --- | --- |\n" + "".join(
    f"| bolt M{number} | row {number} |\n" for number in range(100)
)


def test_rows_of_a_table_are_read_with_its_header_and_heading() -> None:
    window = windows("bolt M97", [Document(id="a", text=TABLE)])["a"]
    assert "| bolt M97 |" in window.text
    assert window.text.startswith("# Stock\n| Part | Shelf |\n| --- | --- |\n| bolt")
    assert window.embedded.count("| Part | Shelf |") == 2
    assert "| bolt M97 |" in TABLE[window.start : window.end]


def test_part_of_a_section_is_read_with_its_heading() -> None:
    text = f"# Log\n\n{SENTENCE * 3}\n\n## Perrin Point\n\n{SENTENCE * 30}{ANSWER}"
    window = windows(QUESTION, [Document(id="a", text=text)])["a"]
    assert window.text.startswith("## Perrin Point\nThe wind")
    assert window.text.endswith(ANSWER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n# b\nc\n", ["", "", "# b"]),
        ("# a\n```\n# b\n```\nc\n", ["", "# a", "# a", "# a", "# a"]),
        ("|a|\n|-|\n|b|\n|c|\n", ["", "", "|a|\n|-|", "|a|\n|-|"]),
        ("|a|\n|b|\n|c|\n", ["", "", ""]),
        ("|a|\n|-|\nb\n|c|\n", ["", "", "", ""]),
    ],
)
def test_surroundings_are_the_last_heading_and_the_header_of_the_table(
    text: str, expected: list[str]
) -> None:
    starts = [at for at in range(len(text)) if at == 0 or text[at - 1] == "\n"]
    assert surroundings(text, [(start, start + 1) for start in starts]) == expected


def test_long_headings_and_table_headers_are_not_repeated() -> None:
    text = (
        f"# {'kiln ' * 20_000}\n{'clay ' * 20_000}\n| {'glaze ' * 20_000}|\n|---|\n"
        + "| d |\n" * 500
    )
    spans = passages(text, max_chars=len(text))
    assert sum(map(len, surroundings(text, spans))) < len(text) / 100


def test_every_passage_has_surroundings() -> None:
    spans = passages(TABLE, max_chars=len(TABLE))
    assert len(surroundings(TABLE, spans)) == len(spans) > 2


def test_best_passage_of_a_long_text_is_read_alone_and_embedded_first() -> None:
    text = f"The lighthouse is red. {SENTENCE * 10}\n\n{SENTENCE * 10}\n\n{ANSWER} {SENTENCE * 10}"
    window = windows(QUESTION, [Document(id="a", title="Log", text=text)])["a"]
    assert window.text.startswith(f"Log: {ANSWER}")
    assert "is red" not in window.text
    assert window.embedded.startswith(window.text)
    assert "is red" in window.embedded


DENSE = {
    "table": "| id | load | share |\n| --- | --- | --- |\n"
    + "".join(f"| {n} | {n * 37 % 101}.{n} | 0x{n * n:04x} |\n" for n in range(1, 45)),
    "code": "x=y[0];" * 160,
    "hashes": " ".join(f"{n * 2654435761 % 2**32:08x}" for n in range(120)),
    "one line of JSON": '{"a":[1,2,3],"b":{"c":null}},' * 40,
    "cyrillic": "Паром отправляется в полдень. " * 38,
    "greek": "Το πλοίο φεύγει το μεσημέρι. " * 40,
    "korean": "배는 정오에 떠난다. " * 100,
    "short korean": "배는 정오에 떠난다. " * 23,
    "long words": "antidisestablishmentarianism " * 40,
}


@pytest.mark.parametrize("text", DENSE.values(), ids=DENSE)
@pytest.mark.parametrize("words", [1, 12, 80, 400])
def test_the_part_that_is_read_of_a_text_with_many_word_pieces_fits_the_model(
    text: str, words: int
) -> None:
    assert len(text) <= 1_200
    query = "who won the cup in 2014, and where? " * words
    result = rerank(query[: 9 * words], [text, "The ferry leaves at noon."], embed=False)
    assert not any(pair["truncated"] for pair in result.trace["stage2"])


@pytest.mark.parametrize("kind", ["table", "code", "hashes", "one line of JSON"])
def test_a_text_with_many_word_pieces_is_not_selected_for_an_unrelated_question(kind: str) -> None:
    result = rerank("who won the world cup in 2014", [DENSE[kind], "The ferry leaves at noon."])
    assert not result.selected
    assert {hit.dropped for hit in result.hits} <= {"irrelevant", "not_reranked"}


def test_a_fact_at_the_end_of_a_text_with_many_word_pieces_is_found() -> None:
    text = f"{DENSE['table'][:1_000]}\n{ANSWER}"
    result = rerank(QUESTION, ["The ferry leaves at noon.", text])
    assert result.selected[0].index == 1
    assert ANSWER in result.selected[0].excerpt
