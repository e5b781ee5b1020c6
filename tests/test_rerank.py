"""Tests of `rerank` with the bundled passage model and profile."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import LengthReranker
from crossgate import Candidate, Document, Index, Profile, Router, rerank
from crossgate._decision.cascade import replay
from crossgate._decision.orderings import ranked
from crossgate._retrieval.passages import windows
from crossgate._retrieval.spelling import _edits, corrected
from crossgate._runtime import model_files
from crossgate._runtime.model_files import PASSAGE_RERANKER
from crossgate._values.profile_files import PASSAGE_PROFILE, read_profile

PASSAGES = (
    "The staging cluster has five nodes since the March upgrade.",
    "Production runs on twelve nodes in two regions.",
    "The canteen is closed on Friday.",
)


def test_bundled_profile_names_the_default_reranker() -> None:
    profile = read_profile(PASSAGE_PROFILE)
    assert profile.reranker == model_files.identity(PASSAGE_RERANKER)
    assert profile.relevance.stage2 is not None
    # The BM25 score of a passage depends on the other candidates; its relevance must not.
    assert (profile.relevance.stage2.cosine, profile.relevance.stage2.bm25) == (0, 0)
    assert profile.relevance.stage2.rerank_score > 0


def test_answering_passage_is_selected_with_its_relevance() -> None:
    result = rerank("how many nodes does the staging cluster have", PASSAGES)
    assert result.degraded == ()
    assert result.selected[0].document.text == PASSAGES[0]
    relevance = [hit.relevance for hit in result.hits]
    assert all(one is not None and 0 <= one <= 1 for one in relevance)
    assert result.confidence == result.hits[0].relevance
    assert result.hits[-1].document.text == PASSAGES[2]
    assert result.hits[-1].dropped == "irrelevant"
    assert result.to_dict()["hits"][0]["relevance"] == relevance[0]


def test_nothing_is_selected_without_an_answer() -> None:
    result = rerank("how do I bake bread", PASSAGES)
    assert (result.selected, result.degraded) == ((), ())
    assert {hit.dropped for hit in result.hits} == {"irrelevant"}


def test_relevance_does_not_depend_on_other_passages() -> None:
    query = "how many nodes does the staging cluster have"
    among = {hit.document.text: hit.relevance for hit in rerank(query, PASSAGES).hits}
    for text in PASSAGES:
        (alone,) = rerank(query, [text]).hits
        assert alone.relevance == pytest.approx(among[text], abs=1e-6)


def test_every_candidate_is_read() -> None:
    profile = read_profile(PASSAGE_PROFILE)
    texts = [f"The staging cluster has {n} nodes." for n in range(profile.pool + 5)]
    result = rerank("how many nodes does staging have", texts)
    assert all(hit.rerank_score is not None for hit in result.hits)
    assert result.trace["profile"]["combine"]["mode"] == "weighted"


def test_clear_first_passage_is_read_alone_whatever_the_order() -> None:
    index = Index.build(PASSAGES)
    query = "how many nodes does the staging cluster have"
    found = index.search(query).candidates
    result = rerank(query, found)
    assert (result.ids, result.trace["profile"]["combine"]["mode"]) == (["0"], "weighted")
    assert [hit.dropped for hit in result.hits] == [None, "not_reranked", "not_reranked"]
    assert rerank(query, found[::-1]).hits[0].relevance == result.confidence
    # The cosines of an unknown embedder predict nothing, so everything is read.
    unknown = rerank(query, [replace(one, embedder="") for one in found])
    assert all(hit.rerank_score is not None for hit in unknown.hits)


@pytest.mark.parametrize("embedder", ["default", None])
@pytest.mark.parametrize("query", ["how many nodes does staging have", "how do I bake bread"])
def test_router_over_passages_decides_as_rerank_for_the_same_passages(
    query: str, embedder: str | None
) -> None:
    index = Index.build(PASSAGES, embedder=embedder)
    routed, reranked = (
        Router(index).route(query),
        rerank(query, index.search(query, limit=12).candidates),
    )
    assert bool(routed) == ("nodes" in query)
    for result in (routed, reranked):
        assert result.degraded == ()
    assert [(hit.id, hit.relevance, hit.score, hit.dropped) for hit in routed.hits] == [
        (hit.id, hit.relevance, hit.score, hit.dropped) for hit in reranked.hits
    ]


@pytest.mark.parametrize(
    ("title", "metadata", "profile"),
    [
        ("", {}, "passages"),
        ("Fleet > Ferries", {"line": 3}, "passages"),
        ("Ferry times", {}, "default"),
        ("ferry-times", {}, "default"),
    ],
)
def test_router_takes_only_texts_without_titles_and_parts_of_files_for_passages(
    title: str, metadata: dict[str, Any], profile: str
) -> None:
    documents = [
        Document(id=f"{number} of 3", title=title, text=text, metadata=metadata)
        for number, text in enumerate(PASSAGES)
    ]
    assert Router(Index.build(documents)).profile.name == profile


def test_profile_does_not_depend_on_the_order_of_the_documents() -> None:
    documents = [
        *(Document(id=f"{number:02} of 20", text=f"Bus {number} is late.") for number in range(20)),
        Document(id="00 skills", title="pdf", text="Merge PDF files"),
    ]
    names = {Router(Index.build(order)).profile.name for order in (documents, documents[::-1])}
    assert names == {"default"}


@pytest.mark.parametrize(
    ("known", "reranker", "mode"),
    [
        ({}, "default", "weighted"),
        ({"cosine": 0.5}, "default", "z_score"),
        ({"score": 0.5}, "default", "rrf"),
        ({"score": 0.5, "cosine": 0.5}, "default", "z_score"),
        ({"cosine": 0.5}, LengthReranker(), "rrf"),
    ],
)
def test_combination_depends_on_cosines_and_scores(
    known: dict[str, float], reranker: str | LengthReranker, mode: str
) -> None:
    rows = [{"text": text, **known} for text in PASSAGES]
    result = rerank("how many nodes does staging have", rows, reranker=reranker)
    assert result.trace["profile"]["combine"]["mode"] == mode


def test_cosine_of_one_candidate_is_not_used_with_a_warning() -> None:
    rows: list[str | dict[str, object]] = [{"text": PASSAGES[0], "cosine": 0.5}, *PASSAGES[1:]]
    result = rerank("how many nodes does staging have", rows, embed=False)
    assert result.trace["profile"]["combine"]["mode"] == "weighted"
    assert {hit.cosine for hit in result.hits} == {None}
    assert [warning.code for warning in result.warnings] == ["cosines_missing"]


def test_candidates_without_a_score_rank_behind_the_others() -> None:
    rows: list[dict[str, Any]] = [
        {"text": "alpha"},
        {"text": "beta", "score": -7.5},
        {"text": "gamma"},
        {"text": "delta", "score": 2e9},
    ]
    result = rerank("omega", rows, reranker=None)
    assert [hit.index for hit in result.hits] == [3, 1, 0, 2]
    assert [warning.code for warning in result.warnings] == ["scores_missing"]


@pytest.mark.parametrize(
    ("vector", "vectors"),
    [(None, ([1.0, 0.0], [0.0, 1.0])), ([1.0, 0.0], ([1.0, 0.0], None))],
)
def test_vectors_that_cannot_be_compared_give_a_warning(vector: Any, vectors: Any) -> None:
    rows: list[dict[str, Any]] = [{"text": f"text {one}", "vector": one} for one in vectors]
    result = rerank("text", rows, vector=vector, reranker=None)
    assert [warning.code for warning in result.warnings] == ["vectors_unused"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64, np.array])
def test_numpy_scalars_are_numbers(kind: Any) -> None:
    rows = [{"text": "one", "score": kind(1)}, {"text": "two", "cosine": kind(1), "score": kind(2)}]
    result = rerank("text", rows, reranker=None)
    assert [hit.index for hit in result.hits] == [1, 0]
    one = Candidate(id="a", text="one", cosine=kind(0), score=kind(3))
    assert rerank("text", [one], reranker=None).hits[0].cosine == 0.0
    options: dict[str, Any] = {"limit": np.int64(1), "budget_ms": kind(60_000)}
    options |= {"max_shortlist": np.int8(3), "min_confidence": kind(0), "coverage": np.float16(0.5)}
    assert len(rerank("text", ["text", "one"], **options)) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, list, tuple])
def test_vectors_of_any_number_type_are_compared(kind: Any) -> None:
    def vector(*numbers: int) -> Any:
        return kind(numbers) if kind in (list, tuple) else np.array(numbers, dtype=kind)

    rows = [{"text": "one", "vector": vector(1, 0)}, {"text": "two", "vector": vector(3, 4)}]
    result = rerank("text", rows, vector=vector(0, 2), reranker=None)
    assert [hit.cosine for hit in result.hits] == pytest.approx([0.8, 0.0])


@pytest.mark.parametrize("reranker", ["default", None])
def test_empty_documents_are_the_last_hits(reranker: str | None) -> None:
    rows: list[Any] = [
        "",
        PASSAGES[0],
        {"text": None},
        {"text": " \n", "title": ""},
        PASSAGES[2],
        "\0",
    ]
    result = rerank("how many nodes does staging have", rows, reranker=reranker)
    assert [hit.index for hit in result.hits] == [1, 4, 0, 2, 3, 5]
    empty = result.hits[2:]
    assert {(hit.relevance, hit.dropped, hit.score) for hit in empty} == {(0.0, "empty", None)}
    assert [hit.stage1_rank for hit in result.hits] == [1, 2, 3, 4, 5, 6]
    assert all(number <= ranked(result)[1][1] for _, number in ranked(result)[2:])
    assert replay(result.trace)["decision"] == result.trace["decision"]


def test_only_empty_documents_select_nothing() -> None:
    result = rerank("how many nodes", ["", " "])
    assert (result.selected, result.reason) == ((), "no_candidates")
    assert [hit.dropped for hit in result.hits] == ["empty", "empty"]


def test_default_ids_equal_the_indexes() -> None:
    result = rerank("how many nodes does staging have", PASSAGES)
    assert all(hit.id == str(hit.index) for hit in result.hits)


SENTENCE = "The wind was mild and the boats stayed near the shore all afternoon. "
ANSWER = "The lighthouse at Perrin Point has 214 steps."


@pytest.mark.parametrize("characters", [1_000, 4_000, 16_000])
@pytest.mark.parametrize("field", ["text", "body"])
def test_answer_at_the_end_of_a_long_field_is_found(field: str, characters: int) -> None:
    filler = SENTENCE * (characters // len(SENTENCE))
    row = {"id": "long", "title": "Log", "text": "A log.", field: filler + ANSWER}
    others = [{"id": str(n), "text": f"Lighthouse number {n} is painted red."} for n in range(4)]
    result = rerank("how many steps does the lighthouse at Perrin Point have", [*others, row])
    assert result.ids[0] == "long"
    hit = result.selected[0]
    if characters > 1_000:
        assert ANSWER in hit.excerpt
        source = hit.document.body or hit.document.text
        assert hit.passage is not None
        assert source[hit.passage.start : hit.passage.end] == hit.excerpt
    assert hit.truncated == (characters > (6_000 if field == "body" else 1_200))


def test_long_text_without_an_answer_is_not_selected() -> None:
    result = rerank("how many steps does the lighthouse have", [SENTENCE * 100, PASSAGES[2]])
    assert result.selected == ()


def test_long_text_in_a_script_without_spaces_is_read_in_windows() -> None:
    filler = "船は午後ずっと岸の近くにいた。" * 80
    window = windows(
        "灯台の階段", [Document(id="a", text=f"{filler}灯台の階段は二百十四段ある。")]
    )["a"]
    assert "二百十四段" in window.text
    assert len(window.text) < 600


@pytest.mark.parametrize(
    ("query", "word", "correct"),
    [
        ("how many nodes does the stagign cluster have", "stagign", "staging"),
        ("how many nodes does the staging clustr have", "clustr", "cluster"),
        ("PRODUCTIN nodes", "productin", "production"),
    ],
)
def test_misspelt_word_is_read_as_the_closest_word(query: str, word: str, correct: str) -> None:
    result = rerank(query, PASSAGES)
    assert [warning.code for warning in result.warnings] == ["spelling"]
    assert f"{word!r}" in result.warnings[0].detail
    assert f"{correct!r}" in result.warnings[0].detail
    right = rerank(query.lower().replace(word, correct), PASSAGES)
    assert result.ids == right.ids


@pytest.mark.parametrize(
    "query",
    ["upgrading clusters", "house of three", "kubernetes nodes", "node", "a lof of nodes"],
)
def test_known_common_and_distant_words_are_not_corrected(query: str) -> None:
    assert corrected(query, PASSAGES, "english") == (query, {})


def test_swapped_letters_of_short_words_are_corrected_to_rare_words_only() -> None:
    texts = ["Merge PDF and YAML files with git, used by a test."]
    read, corrections = corrected(
        "gti: merge a pfd and ymal file, tets it, he sued", texts, "english"
    )
    assert read == "git: merge a pdf and yaml file, tets it, he sued"
    assert corrections == {"gti": "git", "pfd": "pdf", "ymal": "yaml"}


def test_a_word_is_corrected_to_the_singular_of_a_known_word() -> None:
    read, corrections = corrected("a recipie for two", ["Scales recipes"], "english")
    assert (read, corrections) == ("a recipe for two", {"recipie": "recipe"})


@pytest.mark.parametrize(
    ("word", "text", "correct"),
    [
        ("querry", "Speeds up slow queries.", "query"),
        ("optimze", "The sql-optimizer.", "optimize"),
        ("resizng", "Resize images.", "resizing"),
        ("transalting", "Translates texts.", "translating"),
        ("compresed", "Compresses files.", "compressed"),
    ],
)
def test_a_word_is_corrected_to_another_form_of_a_known_word(
    word: str, text: str, correct: str
) -> None:
    assert corrected(word, [text], "english") == (correct, {word: correct})


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("starter", "Starting a company."),
        ("stripes", "Stripped cables."),
        ("painting", "Prints posters."),
        ("trainees", "Training plans."),
    ],
)
def test_a_word_is_not_corrected_to_an_unlike_ending(word: str, text: str) -> None:
    assert corrected(word, [text], "english") == (word, {})


def test_of_many_unknown_words_only_the_first_are_looked_up() -> None:
    letters = "bcdfghjklm"
    known = [f"war{a}{b}anty" for a in letters for b in letters]
    query = " ".join(word.replace("anty", "atny") for word in known)
    _, corrections = corrected(query, [" ".join(known)], "english")
    assert list(corrections.values()) == known[:64]


def test_a_word_of_an_exclusion_is_not_misspelt() -> None:
    read, corrections = corrected(
        "offboarding worbkooks", ["Onboarding workbooks"], "english", ["Not for offboarding."]
    )
    assert read == "offboarding workbooks"
    assert corrections == {"worbkooks": "workbooks"}


@given(st.text("abcd", max_size=6), st.text("abcd", max_size=6), st.integers(0, 3))
def test_edits_equal_their_definition(word: str, other: str, most: int) -> None:
    @lru_cache
    def distance(i: int, j: int) -> int:
        if min(i, j) == 0:
            return max(i, j)
        costs = [
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (word[i - 1] != other[j - 1]),
        ]
        if min(i, j) > 1 and word[i - 2 : i] == other[j - 2 : j][::-1]:
            costs.append(distance(i - 2, j - 2) + 1)
        return min(costs)

    exact = distance(len(word), len(other))
    assert min(_edits(word, other, most), most + 1) == min(exact, most + 1)


def test_unknown_word_makes_stage_1_embed_the_candidates() -> None:
    def cosines(query: str, **options: Any) -> set[bool]:
        return {hit.cosine is None for hit in rerank(query, PASSAGES, **options).hits}

    assert cosines("staging nodes") == {True}
    assert cosines("kubernetes nodes") == {False}
    assert cosines("kubernetes nodes", embed=False) == {True}
    assert cosines("staging nodes", embed=True) == {False}


def test_date_matches_other_formats() -> None:
    notes = [
        "2031-05-12: the crew voted to repaint the hull in green.",
        "2031-03-12: the crew voted to sell the old dinghy.",
        "2030-03-12: the crew voted to rent a second berth.",
    ]
    result = rerank("what did the crew vote for on 12 March 2031", notes)
    assert result.ids[0] == "1"


DATES = ("2031-06-04", "4 June 2031", "June 4th, 2031", "4.6.2031", "the fourth of June 2031")


@pytest.mark.parametrize("asked", [*DATES, "20310604", "June 2031", "2031-06"])
@pytest.mark.parametrize("written", DATES)
def test_note_of_another_date_ranks_behind_that_of_the_question(asked: str, written: str) -> None:
    notes = [
        "Meeting of 4 May 2031: the board decided to repair the jetty.",
        f"Meeting of {written}: the board talked about fees, and decided to buy a winch.",
        "Meeting of 4 June 2030: the board decided to sell the old crane.",
    ]
    result = rerank(f"what did the board decide, meeting of {asked}", notes)
    assert result.hits[0].index == 1
    assert [hit.index for hit in result.selected if hit.index != 1] == []


def test_note_of_another_quarter_ranks_behind_that_of_the_question() -> None:
    notes = [
        "Q2 2031: the crew voted to repaint the hull.",
        "9 August 2031: the crew voted to sell the dinghy.",
        "Q3 2030: the crew voted to rent a berth.",
    ]
    result = rerank("what did the crew vote for in the third quarter of 2031", notes)
    assert result.ids == ["1"]


def test_long_query_is_cut_to_its_beginning_and_end() -> None:
    filler = "by the way the sea was calm and we ate fish again " * 120
    query = f"how many nodes does the staging cluster have, {filler} and thanks"
    result = rerank(query, PASSAGES, embed=False)
    assert [note.code for note in result.degraded] == []
    assert "query_cut" in [warning.code for warning in result.warnings]
    assert all(hit.rerank_score is not None for hit in result.hits)


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("сколько узлов в тестовом кластере", ("В кластере пять узлов.", "Столовая закрыта.")),
        ("ステージングのノードはいくつですか", ("ノードは五つです。", "食堂は休みです。")),
        (
            "how many nodes does staging have",
            ("Der Cluster hat fünf Knoten und ist neu.", "Die Kantine ist am Freitag zu."),
        ),
    ],
)
def test_no_threshold_applies_to_other_languages(query: str, texts: tuple[str, ...]) -> None:
    result = rerank(query, texts)
    assert "unsupported_language" in [warning.code for warning in result.warnings]
    assert len(result.selected) == len(texts)
    assert result.hits[0].index == 0


def test_kept_scores_take_precedence_over_cosines() -> None:
    rows = [{"text": text, "cosine": 0.5, "score": 0.5} for text in PASSAGES]
    result = rerank("how many nodes does staging have", rows, keep_scores=True)
    assert result.trace["profile"]["combine"]["mode"] == "rrf"


def test_cosines_and_rerank_scores_are_combined_as_standard_scores() -> None:
    query = "how many nodes does the staging cluster have"
    rows = [
        {"text": text, "cosine": cosine}
        for text, cosine in zip(PASSAGES, (0.50, 0.52, 0.10), strict=True)
    ]
    hits = rerank(query, rows).hits
    blends = np.array([hit.blend for hit in hits])
    logits = np.array([hit.rerank_score for hit in hits])
    expected = sum(
        weight * (scores - scores.mean()) / scores.std()
        for weight, scores in ((1, blends), (1.1, logits))
    )
    assert [hit.score for hit in hits] == pytest.approx(expected)
    assert hits[0].document.text == PASSAGES[0]


def test_between_two_candidates_the_cross_encoder_decides() -> None:
    rows = [{"text": PASSAGES[0], "cosine": 0.50}, {"text": PASSAGES[1], "cosine": 0.52}]
    result = rerank("how many nodes does the staging cluster have", rows)
    assert result.hits[0].document.text == PASSAGES[0]


def test_scores_of_another_reranker_have_no_threshold() -> None:
    result = rerank("how do I bake bread", PASSAGES, reranker=LengthReranker())
    assert [note.code for note in result.degraded] == ["no_profile"]
    assert len(result.selected) == len(PASSAGES)
    assert {hit.relevance for hit in result.hits} == {None}
    open_gate = rerank("how do I bake bread", PASSAGES, profile=Profile())
    assert len(open_gate.selected) == len(PASSAGES)
