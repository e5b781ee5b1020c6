"""Figures of stored runs: attribution, economics, formats of the report, comparison, commands."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beir_folder import write_beir
from browser import CHROMIUM, browser
from conftest import golden, refused
from crossgate import Policy, Profile, RouteResult
from crossgate._cli import evaluate, parser_of, run
from crossgate._cli.labelled import dump
from crossgate._core import (
    Answer,
    AnyFits,
    Lexical,
    Promise,
    Relevance,
    Shortlist,
    Stage1AnyFits,
    Stage1Relevance,
    Stage2AnyFits,
    Stage2Relevance,
    Winner,
)
from crossgate._evaluation.charts import (
    abstention_chart,
    coverage_chart,
    shares_shown,
)
from crossgate._evaluation.compare import REPORTS_SCHEMA, compare
from crossgate._evaluation.economics import (
    CURVE,
    measure_shortlists,
)
from crossgate._evaluation.metrics import count_moves, measure_answer, where_lost
from crossgate._evaluation.page import SCRIPT
from crossgate._evaluation.sections import (
    advice,
    gate_sentence,
    sections,
)
from crossgate._evaluation.statistics import Interval
from crossgate._evaluation.stored_runs import (
    MODES,
    Mode,
    StoredQuery,
    decide,
    write_run,
)
from crossgate._evaluation.summary import summarize
from crossgate.evaluation import (
    html_report,
    read_reports,
    text_report,
)
from outcome_queries import (
    CLEAR,
    CLOSE,
    CLOSED,
    POLICY,
    PROFILE,
    QUERIES,
    many,
    reports_of,
    run_of,
    stored,
)


def decided(
    query: StoredQuery, mode: Mode, profile: Profile = PROFILE, policy: Policy = POLICY
) -> RouteResult:
    """Decide a query, by default with the profile and the policy of this file."""
    return decide(query, profile, mode, policy=policy)


LOST = {
    "skipped right": (None, None, None),
    "gate": ("stage1", "gate", None),
    "behind the gate": ("stage1", "model", "model"),
    "reranked right": ("stage1", None, None),
    "pushed out": (None, "model", "model"),
    "pool": ("stage1", "pool", "pool"),
    "retrieval": ("retrieval", "retrieval", "retrieval"),
    "guardrail": (None, "guardrail", "guardrail"),
    "below floor": (None, "gate", None),
}


@pytest.mark.parametrize(
    "query", [query for query in QUERIES if query.relevant], ids=lambda query: query.id
)
def test_miss_is_attributed_to_the_step_that_lost_it(query: StoredQuery) -> None:
    results = {mode: decided(query, mode) for mode in MODES}
    found = tuple(where_lost(query, results[mode], results["always"]) for mode in MODES)
    assert found == LOST[query.id]


def test_wrong_pick_is_not_attributed_to_a_guardrail() -> None:
    policy = Policy(rerank_min=0.5)
    picked = stored("q", CLOSE, (1.0, 0.2, 0.0, 0.0), "b")
    result = decided(picked, "always", policy=policy)
    assert where_lost(picked, result, result) == "model"
    # The guardrail dropped the document above it too, so the pick was not lost there.
    both = stored("q", CLOSE, (0.3, 0.2, 0.0, 0.0), "b")
    result = decided(both, "always", policy=policy)
    assert where_lost(both, result, result) == "guardrail"


def test_metrics_count_only_the_queries_they_apply_to() -> None:
    values = {
        query.id: {mode: measure_answer(query, decided(query, mode)) for mode in MODES}
        for query in QUERIES
    }
    assert values["pushed out"]["never"]["recall@1"] == 1.0
    assert values["pushed out"]["always"]["recall@1"] == 0.0
    assert values["pushed out"]["always"]["mrr@10"] == 0.5
    assert values["below floor"]["gated"]["recall@10"] == 0.0
    assert values["below floor"]["gated"]["abstention_precision"] == 0.0
    assert values["nothing, silent"]["gated"]["abstention_precision"] == 1.0
    assert values["nothing, silent"]["gated"]["recall@1"] is None
    assert values["nothing, silent"]["never"]["false_positive_rate"] == 1.0
    assert values["nothing, silent"]["never"]["wrong_pick@1"] == 1.0
    assert values["nothing, silent"]["gated"]["wrong_pick@1"] == 0.0
    assert values["nothing, picked"]["gated"]["false_positive_rate"] == 1.0
    assert values["nothing, picked"]["gated"]["abstention_recall"] == 0.0
    # Picked b, a, c: the second right one is beyond two picks only under stage 1's order a, b.
    assert values["nothing, picked"]["never"]["wrong_pick@1"] == 0.0
    assert values["nothing, picked"]["never"]["wrong_pick@2"] == 1.0
    assert values["gate"]["gated"]["wrong_pick@1"] is None
    assert [values["gate"][mode]["skipped"] for mode in MODES] == [1.0, 1.0, 0.0]


def test_miss_below_a_floor_is_attributed_to_the_floor() -> None:
    floored = POLICY.replace(floors={"default": 0.52})
    query = stored("q", CLOSE, (0.0, 0.0, 9.0, 0.0), "c")
    result = decided(query, "gated", policy=floored)
    assert where_lost(query, result, result) == "floor"
    both = stored("q", CLOSE, (0.0, 0.0, 9.0, 0.0), "cd")
    assert where_lost(both, decided(both, "gated", policy=floored), None) == "floor"
    assert where_lost(both, decided(both, "gated"), None) is None
    # A floor that drops the first candidate changes the gate's decisions.
    report = summarize(run_of(policy=POLICY.replace(floors={"default": 0.62})))
    assert report.economics is not None
    assert report.economics.reasons == {"below_floor": 8, "confident_winner": 3}
    assert report.economics.skip_rate == 1.0
    # Without thresholds, floors are off, too.
    assert (
        report.recall_without_thresholds["always"]
        == summarize(run_of()).recall_without_thresholds["always"]
    )


def test_decisions_without_thresholds_ignore_the_relevance_threshold() -> None:
    models = (Stage1Relevance(intercept=-1.0), Stage2Relevance(intercept=-1.0))
    relevant = Relevance(stage1=models[0], stage2=models[1], threshold=0.9)
    report = summarize(run_of(profile=PROFILE.replace(relevance=relevant)))
    assert report.quality["never"]["recall@1"] is not None
    assert report.quality["never"]["recall@1"].value == 0
    assert report.recall_without_thresholds == summarize(run_of()).recall_without_thresholds
    # The abstention curve varies only the threshold of an answer.
    report = summarize(run_of(profile=confident().replace(relevance=relevant)))
    assert {point.false_positive_rate for point in report.abstention} == {0.0}


FALLING, LEVEL = (0.6, 0.59, 0.3, 0.29), (0.6, 0.59, 0.58, 0.57)


@pytest.mark.parametrize(
    ("falling", "level", "core", "shown"),
    [
        (1, 9, 2, "1 of 10 (10.0%) of the pools, within the expected 2% to 40%"),
        (0, 9, 2, "0 of 9 (0.0%) of the pools, below the expected 2% to 40%"),
        (2, 3, 2, "2 of 5 (40.0%) of the pools, within the expected 2% to 40%"),
        (3, 3, 2, "3 of 6 (50.0%) of the pools, above the expected 2% to 40%"),
        (3, 3, None, ""),
        (0, 0, 2, "no pool was read"),
    ],
)
def test_share_of_cut_tails_is_compared_with_the_expected_range(
    falling: int, level: int, core: int | None, shown: str
) -> None:
    queries = [stored(f"f{n}", FALLING, (0.0,) * 4, "a") for n in range(falling)]
    queries += [stored(f"l{n}", LEVEL, (0.0,) * 4, "a") for n in range(level)]
    queries += [stored("skipped", CLEAR, (0.0,) * 3, "a")]
    policy = POLICY.replace(cliff_core=core)
    report = summarize(run_of(queries, profile=PROFILE.replace(pool=4), policy=policy))
    # A rule that the policy leaves off is not mentioned.
    text = " ".join(text_report(report).split())
    assert text.count("score cliff") == bool(shown)
    assert f"Tail of the pool cut below a score cliff: {shown}" in text or not shown
    account = report.to_dict()["economics"]
    rate = falling / (falling + level) if core and falling + level else None
    assert account["tighten_apply_rate"] == rate
    assert account["tightened"] == (None if core is None else falling)
    assert account["tighten_skips"] == ({"no_cliff": level} if core and level else {})
    json.dumps(account, allow_nan=False)


def test_source_types_of_a_run_limit_the_cut() -> None:
    profile, policy = PROFILE.replace(pool=4), POLICY.replace(cliff_core=2)
    guarded = stored("q", FALLING, (0.0,) * 4, "a", sources={"a": "web", "d": "pdf"})
    cliff = decided(guarded, "gated", profile, policy).trace["gate"]["cliff"]
    assert cliff["skip_reason"] == "source_diversity_loss"


def test_moves_ignore_guardrails() -> None:
    results = {mode: [decided(query, mode) for query in QUERIES] for mode in MODES}
    moves = count_moves(QUERIES, results["never"], results["always"])
    assert (moves.first, moves.pushed_out) == (4, 1)
    assert (moves.deep, moves.pulled_in) == (1, 0)
    deep = [stored("in", CLOSE, (0.0, 0.0, 0.0, 9.0), "d"), stored("out", CLOSE, (1.0,) * 4, "d")]
    wide = PROFILE.replace(pool=4)
    before = [decided(query, "never", wide) for query in deep]
    after = [decided(query, "always", wide) for query in deep]
    moves = count_moves(deep, before, after)
    assert (moves.deep, moves.pulled_in) == (2, 1)


def confident(**answer: Any) -> Profile:
    """Return the profile with models whose `any_fits` is a function of the best cosine alone."""
    weights = {"intercept": -2.0, "cosine": 4.0}
    models = AnyFits(stage1=Stage1AnyFits(**weights), stage2=Stage2AnyFits(**weights))
    return PROFILE.replace(any_fits=models, answer=Answer(**answer))


TERMS = tuple(
    replace(
        query,
        scored=tuple(candidate.replace(overlap=2) for candidate in query.scored),
    )
    for query in QUERIES
)
"""The queries, with two terms in common with each candidate, so that BM25 may find a winner."""


def test_abstention_curve_has_a_point_per_threshold() -> None:
    report = summarize(run_of(profile=confident(threshold=0.6)))
    assert [point.least for point in report.abstention if point.shipped] == [0.6]
    right = [point.right_picks for point in report.abstention]
    injects = [point.false_positive_rate for point in report.abstention]
    assert right == sorted(right, reverse=True)
    assert len(set(right)) > 1
    assert injects == sorted(injects, reverse=True)
    assert len(set(injects)) > 1


@pytest.mark.parametrize(
    ("winner", "policy"),
    [
        (Winner(), Policy()),
        (Winner(agreed=0.05, disagreed=0.2), Policy()),
        (Winner(), Policy(lexical=Lexical(score=8.0, margin=2.0))),
        (Winner(agreed=0.05), Policy(floors={"default": 0.52})),
        (Winner(), POLICY),
    ],
    ids=["none", "leads", "lexical", "floor", "guardrail"],
)
def test_abstention_point_equals_a_decision_at_its_threshold(
    winner: Winner, policy: Policy
) -> None:
    bare = confident().replace(winner=winner)
    points = summarize(run_of(TERMS, profile=bare, policy=policy)).abstention
    assert len(points) > 4
    for point in points[::4]:
        at_bar = bare.replace(answer=bare.answer.replace(threshold=point.least))
        naive = summarize(run_of(TERMS, profile=at_bar, policy=policy))
        gated = naive.quality["gated"]
        assert gated["recall@1"] is not None
        assert gated["false_positive_rate"] is not None
        assert gated["recall@1"].value == pytest.approx(point.right_picks)
        assert gated["false_positive_rate"].value == pytest.approx(point.false_positive_rate)
        (shipped,) = (point for point in naive.abstention if point.shipped)
        assert (shipped.right_picks, shipped.false_positive_rate) == (
            point.right_picks,
            point.false_positive_rate,
        )


def test_abstention_curve_is_empty_without_a_model_or_labels() -> None:
    assert summarize(run_of(profile=PROFILE.replace(any_fits={}))).abstention == ()
    assert summarize(run_of()).abstention  # a model of stage 1 alone holds for reranked queries too
    matched = [query for query in QUERIES if query.relevant]
    assert summarize(run_of(matched, profile=confident())).abstention == ()


def test_abstention_curve_varies_the_confidence_if_the_threshold_is_on_it() -> None:
    by_confidence = confident(confidence=0.6)
    report = summarize(run_of(profile=by_confidence))
    (shipped,) = (point for point in report.abstention if point.shipped)
    assert shipped.least == 0.6
    gated = report.quality["gated"]
    assert gated["recall@1"] is not None
    assert gated["false_positive_rate"] is not None
    assert shipped.right_picks == pytest.approx(gated["recall@1"].value)
    assert shipped.false_positive_rate == pytest.approx(gated["false_positive_rate"].value)


def test_reliability_of_any_fits_is_that_of_the_probabilities_that_results_state() -> None:
    any_fits, *_ = summarize(run_of(profile=confident())).reliability
    assert any_fits.rank == 0
    for tenth in any_fits.bins:  # each is on sigmoid(4 cosine - 2)
        assert 1 / (1 + math.exp(2)) <= tenth.stated <= 1 / (1 + math.exp(-2))


PROMISED = [Promise(most=3, least_shares=[1.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0])]
LISTED = PROFILE.replace(
    shortlist=Shortlist(coverage=0.55, most=3, stage1=PROMISED, stage2=PROMISED)
)
"""The profile with a promise; the numbers are not fitted."""


def test_curve_of_coverage_rises_with_the_promise() -> None:
    points = summarize(run_of(profile=LISTED)).coverage_curve
    assert [point.promised for point in points] == sorted({*CURVE, 0.55})
    assert [point.promised for point in points if point.shipped] == [0.55]
    for low, high in itertools.pairwise(points):
        assert low.size <= high.size
        assert low.coverage <= high.coverage
    circles = [element for element in svg(coverage_chart(points)) if element.tag == "circle"]
    assert [circle.get("class") for circle in circles].count("mark") == 1
    assert len(circles) == len(points)


def test_lengths_of_texts_are_unknown_if_the_run_lacks_one() -> None:
    results = [decided(query, "always", LISTED) for query in QUERIES]
    known = [
        replace(query, lengths={scored.id: 100 for scored in query.scored}) for query in QUERIES
    ]
    figures = measure_shortlists(known, results, most=3, seed=0)
    mean = sum(len(result.shortlist) for result in results) / len(results)
    assert figures.characters == pytest.approx(100 * mean)
    assert figures.tokens == pytest.approx(25 * mean)
    unknown = [replace(known[0], lengths={}), *known[1:]]
    assert measure_shortlists(unknown, results, most=3, seed=0).tokens is None


def svg(chart: str) -> list[ElementTree.Element]:
    """Return all elements of a chart, which must be well formed."""
    return list(ElementTree.fromstring(chart).iter())


def test_chart_equals_the_stored_file() -> None:
    chart = abstention_chart(summarize(run_of()).abstention)
    ElementTree.fromstring(chart)  # it is well formed
    golden("curve.svg", chart.replace("><", ">\n<") + "\n")


def test_stored_run_is_decided_by_another_profile_without_a_model() -> None:
    report = summarize(run_of(), profile=CLOSED)
    assert report.economics is not None
    assert report.economics.reranked == 11
    assert any("decided again" in note for note in report.notes)
    times = {latency.path: latency.p50 for latency in report.economics.latencies}
    assert times["reranked"] == 9.0  # that of always, since gated was not measured with this gate
    refused("profile_mismatch", summarize, run_of(), profile=CLOSED.replace(reranker="another"))
    refused("unsuitable_run", summarize, run_of(modes=["never", "gated"]), profile=CLOSED)


def test_stored_run_is_decided_by_another_policy() -> None:
    report = summarize(run_of(), policy=Policy())
    assert any(
        note.startswith("decided again from a stored run by another policy: times")
        for note in report.notes
    )
    assert report.policy == Policy()
    values = report.to_dict()
    assert values["policy"] == Policy().to_dict()
    assert values["header"]["policy"] == POLICY.to_dict() != Policy().to_dict()
    assert "decided again" not in " ".join(summarize(run_of(), policy=POLICY).notes)
    # Another policy may send queries to stage 2 that the gate of the run did not.
    message = refused(
        "unsuitable_run", summarize, run_of(modes=["never", "gated"]), policy=Policy()
    )
    assert "another profile or policy lacks logits" in message
    # A report of an earlier version has only the run's policy.
    before, after = reports_of(summarize(run_of())), reports_of(report)
    del before["by-hand test"]["policy"]
    assert "by-hand test: the policies differ" in compare(before, after).notes
    assert "the policies differ" not in " ".join(compare(before, before).notes)


def test_report_warns_about_an_inert_gate() -> None:
    never_skips = summarize(run_of(profile=CLOSED))
    assert "WARNING: the gate never skipped" in text_report(never_skips)
    every = PROFILE.replace(answer=Answer(rerank_threshold=1.0))
    assert "WARNING: the gate never asked stage 2" in text_report(summarize(run_of(profile=every)))
    usual = gate_sentence(summarize(run_of()))
    assert usual.startswith("The gate skipped stage 2 for 45.5% of 11 queries")
    assert "was not run" in gate_sentence(summarize(run_of(modes=["never"])))


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (0.1, 0.0, 0.25, "with no difference"),
        (0.1, -0.05, 0.25, "with no difference"),
        (0.1, 0.02, 0.25, "and gained 10.0 points of recall@1 against always asking it (2.0 to"),
        (-0.1, -0.25, -0.02, "and lost 10.0 points of recall@1 against always asking it (2.0 to"),
        (-0.1, -0.25, 0.0, "with no difference"),
    ],
)
def test_interval_around_zero_is_neither_gain_nor_loss(
    value: float, low: float, high: float, said: str
) -> None:
    difference = Interval(value=value, low=low, high=high, count=20)
    report = replace(summarize(run_of()), against_always={"gated": difference})
    assert said in gate_sentence(report)


def test_recommended_threshold_leaves_out_needless_picks() -> None:
    report = summarize(run_of())
    answer = report.answers[0]
    answers = [
        *(replace(answer, outcome="right", confidence=0.9 + at / 100) for at in range(5)),
        *(replace(answer, outcome="injected", confidence=at / 10) for at in range(4)),
    ]
    lines = list(advice(replace(report, answers=tuple(answers))))
    assert lines[0].startswith("threshold: --min-confidence 0.900 would have left out 4 of 4 ")
    assert "0 of 5 right picks" in lines[0]


def test_abstention_is_not_measured_without_no_match_queries() -> None:
    matched = [query for query in QUERIES if query.relevant]
    report = summarize(run_of(matched))
    assert report.quality["gated"]["false_positive_rate"] is None
    assert "Abstention was not measured" in text_report(report)
    assert "not measured" not in text_report(summarize(run_of()))


def test_sections_without_figures_are_left_out() -> None:
    empty = summarize(run_of([query for query in QUERIES if not query.relevant]))
    assert empty.quality["gated"]["recall@1"] is None
    bare = summarize(run_of(profile=PROFILE.replace(any_fits={}, relevance={})))
    assert (bare.reliability, bare.coverage_curve) == ((), ())
    assert bare.shortlists["gated"].promised is None
    titles = {
        name: [section.title for section in sections(report)]
        for name, report in (
            ("empty", empty),
            ("bare", bare),
            ("listed", summarize(run_of(profile=LISTED))),
        )
    }
    everything = titles.pop("listed")
    assert [title for title in everything if title not in titles["empty"]] == [
        "Shortlist",
        "Where right answers get lost",
        "Noise",
    ]
    assert [title for title in everything if title not in titles["bare"]] == [
        "Shortlist",
        "Probabilities",
    ]
    assert "Recall was not measured" in text_report(empty)


def test_report_equals_the_stored_text() -> None:
    golden("report.txt", text_report(summarize(run_of(profile=LISTED))) + "\n")


def test_page_equals_the_stored_text() -> None:
    page = Page()
    page.feed(html_report([summarize(run_of(profile=LISTED))]))
    golden("report_page.txt", page.lines())


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page_marks_each_outcome_differently_and_folds_the_details(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html_report([summarize(run_of(profile=LISTED))]))
    with browser(tmp_path / "chromium") as page:
        page.open(path.as_uri(), width=360)
        marks = page.evaluate(
            "['wrong', 'missed', 'injected'].map(name => getComputedStyle("
            "document.querySelector(`.legend .${name}`), '::before').content)"
        )
        assert len(set(marks)) == 3
        assert not page.evaluate("document.querySelector('.columns table').checkVisibility()")
        page.evaluate("document.querySelectorAll('details').forEach(box => box.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.said == []


def test_precision_counts_the_queries_with_a_pick() -> None:
    report = summarize(run_of())
    precision = report.quality["gated"]["precision@1"]
    picks = [answer for answer in report.answers if answer.picked]
    assert precision is not None
    assert precision.count == len(picks) < report.queries
    right = sum(answer.outcome == "right" for answer in picks)
    assert precision.value == pytest.approx(right / len(picks))


@pytest.mark.parametrize("modes", [["never", "always"], ["always"], ["gated", "always"]])
def test_answers_are_those_of_the_named_mode(modes: list[Mode]) -> None:
    # The run has all modes, and only some of them are compared.
    report = summarize(run_of(), modes=modes)
    mode: Mode = "gated" if "gated" in modes else "always"
    picks = {answer.id: answer.picked for answer in report.answers}
    assert picks == {query.id: tuple(decided(query, mode).ids) for query in QUERIES}
    assert f"All queries, {mode}" in html_report([report])


@pytest.mark.parametrize("modes", [["never"], ["gated"], ["never", "gated"], MODES])
def test_every_format_of_the_report_works_for_every_set_of_modes(modes: Sequence[Mode]) -> None:
    report = summarize(run_of(modes=modes))
    text = text_report(report)
    assert max(map(len, text.split("\n"))) <= 100
    assert ("was not run" in text) == ("gated" not in modes)
    values = json.loads(dump(report.to_dict()))
    assert values["schema"] == "crossgate-eval/1"
    assert list(values["quality"]) == list(modes)
    assert html_report([report]).endswith("</html>\n")


class Page(HTMLParser):
    """Collects the files that a page would load, and checks that elements are closed in order."""

    VOID = frozenset({"meta", "input"})
    HIDDEN = frozenset({"style", "script", "svg"})
    LINES = frozenset({"h1", "h2", "p", "li", "tr", "figure", "summary", "dt", "form"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.shown = ""

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Record an opened element and the files that it would load."""
        if tag not in self.VOID:
            self.open.append(tag)
        if not self.HIDDEN & set(self.open):
            self.shown += " | " if tag in ("td", "th", "small", "option") else ""
            self.shown += "\n" if tag in self.LINES else ""
        if tag in ("img", "link", "iframe"):  # a script would have a src
            self.loads.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href", "onclick", "onerror")]

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Ignore an element that closes itself."""

    def handle_endtag(self, tag: str) -> None:
        """Check that the element was the last to be opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.text += data
        if not self.HIDDEN & set(self.open):
            self.shown += data

    def lines(self) -> str:
        """Return the text that a reader sees, a line for each row of a table and each paragraph."""
        return "".join(f"{line.strip()}\n" for line in self.shown.splitlines() if line.strip())


def test_page_is_complete_loads_nothing_and_escapes_text() -> None:
    evil = '<script>alert("1")</script>&amp;<img src=x onerror=y>'
    query = stored("x", CLOSE, (1.0, 0.0, 0.0, 0.0), "b", text=evil, kind=evil)
    names: dict[str, Any] = {
        "dataset": evil,
        "notes": (evil,),
        "machine": {**_MACHINE, "processor": evil},
    }
    page = Page()
    markup = html_report([summarize(run_of([query, *QUERIES], **names))])
    page.feed(markup)
    assert (page.open, page.loads) == ([], [])
    assert page.text.count(evil) >= 4
    assert "http" not in markup
    assert "url(" not in markup
    assert "prefers-color-scheme: dark" in markup
    # The curve, and the reliability diagrams of both probabilities.
    assert markup.count("<svg") == 3
    assert "stage 2 was skipped" in page.text
    # The only script is that of the table, and it contains no text of a query.
    assert markup.count("<script") == 1
    assert f"<script>{SCRIPT}</script>" in markup
    assert markup.count("<tr data-outcome=") == len(QUERIES) + 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_axis_contains_every_share_within_0_and_1(shares: list[float]) -> None:
    low, high = shares_shown(shares)
    assert 0 <= low <= min(shares)
    assert max(shares) <= high <= 1
    assert high - low >= 0.2 - 1e-9


_MACHINE = {"processor": "none", "cores": 2, "system": "none"}


def test_report_equals_itself() -> None:
    same = reports_of(summarize(run_of()))
    found = compare(dict(same), dict(same))
    assert not found.fell
    assert all(change.difference.value == 0 for change in found.changes)
    assert {(change.mode, change.metric) for change in found.changes} >= {
        (mode, metric)
        for mode in MODES
        for metric in ("recall@1", "false_positive_rate", "skipped")
    }


def test_fall_beyond_noise_is_reported_in_either_direction() -> None:
    gated, ungated = dict(many(PROFILE)), dict(many(CLOSED))
    better = {(change.mode, change.metric): change for change in compare(gated, ungated).changes}
    assert better["gated", "recall@1"].difference.low > 0
    assert not better["gated", "recall@1"].fell
    # Without the gate no query is skipped.
    assert [key for key, change in better.items() if change.fell] == [("gated", "skipped")]
    worse = {
        (change.mode, change.metric) for change in compare(ungated, gated).changes if change.fell
    }
    assert ("gated", "recall@1") in worse
    assert ("gated", "skipped") not in worse
    assert all(mode == "gated" for mode, _ in worse)
    injects = compare(gated, dict(many(CLOSED, policy=Policy()))).changes
    lower = {change.metric: change for change in injects if change.mode == "gated"}
    assert lower["false_positive_rate"].after > lower["false_positive_rate"].before
    assert lower["false_positive_rate"].fell


def test_differences_are_paired_by_query_id() -> None:
    turned = reports_of(summarize(run_of(QUERIES[::-1])))
    found = compare(dict(reports_of(summarize(run_of()))), dict(turned))
    assert all(change.difference.low == change.difference.high == 0 for change in found.changes)


def test_moved_queries_are_listed() -> None:
    before = dict(reports_of(summarize(run_of())))
    turned = run_of(QUERIES[::-1], profile=CLOSED)
    found = {moved.mode: moved for moved in compare(before, reports_of(summarize(turned))).moved}
    # Without a gate all are reranked: two queries that the gate abstained on gain a right pick.
    assert found["never"].gained == found["never"].lost == ()
    assert (found["gated"].gained, found["gated"].lost) == (("gate", "below floor"), ())
    back = compare(reports_of(summarize(turned)), before).moved
    assert {moved.mode: moved.lost for moved in back}["gated"] == ("below floor", "gate")


def test_profile_fitted_on_these_queries_is_noted() -> None:
    header = run_of().header
    known = {"corpus": header.corpus, "labels": header.labels}

    def notes(data: object) -> str:
        profile = PROFILE.replace(fitted={"data": data})
        report = summarize(run_of(profile=profile))
        return " ".join(report.notes)

    assert "was fitted on these queries" in notes([{"corpus": "other"}, known])
    for data in ([{**known, "labels": "others"}], [], None, "all", [known["corpus"]]):
        assert "was fitted on" not in notes(data)


def test_incomparable_reports_are_refused_and_other_differences_noted() -> None:
    first, other = dict(many(PROFILE, 1)), dict(many(PROFILE, 1, labels="others"))
    for before, after in ((first, other), (first, dict(many(PROFILE, 1, split="dev")))):
        refused("not_comparable", compare, before, after)
    fewer = dict(reports_of(summarize(run_of(reranker="new"), modes=["never"])))
    extra = dict(many(PROFILE, 1, split="dev"))
    found = compare({**reports_of(summarize(run_of())), **extra}, fewer)
    assert "by-hand dev is only in the first report" in found.notes
    assert any("the mode gated is only in the first" in note for note in found.notes)
    assert any("the reranker was r, now new" in note for note in found.notes)


def test_reports_on_different_queries_are_refused() -> None:
    before = reports_of(summarize(run_of()))
    twice = json.loads(json.dumps(before))
    twice["by-hand test"]["ids"][1] = twice["by-hand test"]["ids"][0]
    # `--unnamed` changes neither documents nor labels in the header.
    unnamed = reports_of(summarize(run_of([query for query in QUERIES if not query.mentions_name])))
    for changed, other, message in (
        (before, unnamed, "not the same queries"),
        (unnamed, before, "not the same queries"),
        (before, twice, "not the same queries"),
        (twice, twice, "an id occurs twice"),
    ):
        assert message in refused("not_comparable", compare, dict(changed), dict(other))


def test_file_that_is_not_a_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    good: dict[str, Any] = {"schema": REPORTS_SCHEMA, "reports": [summarize(run_of()).to_dict()]}
    path.write_text(dump(good))
    assert list(read_reports(path)) == ["by-hand test"]
    broken = json.loads(dump(good))
    broken["reports"][0]["per_query"]["gated"]["recall@1"].pop()
    for text in (
        "",
        "{",
        "[]",
        "{}",
        json.dumps(broken),
        '{"schema": "crossgate-evals/1"}',
    ):
        path.write_text(text)
        refused("malformed_report", read_reports, path)
    # One report would replace the other.
    path.write_text(dump({**good, "reports": good["reports"] * 2}))
    assert "two reports of by-hand test" in refused("malformed_report", read_reports, path)
    refused("source_missing", read_reports, tmp_path / "nowhere.json")


def options(*dataset: object, **given: Any) -> argparse.Namespace:
    """Return the options of the command with their defaults."""
    parsed = parser_of("eval").parse_args(["eval", *map(str, dataset)])
    return argparse.Namespace(**(vars(parsed) | given))


def test_command_measures_stores_and_reports_with_the_bundled_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_beir(tmp_path / "set")
    page, runs = tmp_path / "page.html", tmp_path / "runs"
    code = evaluate.run(options(folder, json=True, html=str(page), runs=str(runs), limit=3))
    assert code == 0
    shown = capsys.readouterr()
    assert shown.err == ""  # no progress in a pipe
    (report,) = json.loads(shown.out)["reports"]
    assert report["queries"] == 3
    assert report["profile"]["name"] == "default"
    assert page.read_text().startswith("<!doctype html>")
    (run,) = runs.iterdir()
    assert run.name == "set-test.run.jsonl"
    # The stored run gives the same figures, and needs no model.
    assert evaluate.run(options(run, json=True, reranker="nowhere", embedder="nowhere")) == 0
    (again,) = json.loads(capsys.readouterr().out)["reports"]
    assert again == report
    assert evaluate.run(options(run)) == 0
    line = capsys.readouterr().out.partition("\n")[0]
    assert re.fullmatch(r"\d of 1 right, .*\d of 2 answered though nothing fits\.", line)


def test_missed_limit_exits_with_1_and_names_the_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = tmp_path / "a.run.jsonl", run_of()
    write_run(path, made.header, made.queries)
    assert run(["eval", str(path), "--min-recall", "0.2", "--max-false-positives", "0.5"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["eval", str(path), "--min-recall", "0.8", "--max-false-positives", "0.1"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "crossgate: by-hand test, gated: recall@1 is 0.222, below --min-recall 0.8",
        "crossgate: by-hand test, gated: false positive rate is 0.500, above "
        "--max-false-positives 0.1",
    ]
    write_run(path, made.header, [query for query in made.queries if query.relevant])
    assert run(["eval", str(path), "--max-false-positives", "0.1"]) == 2
    assert "by-hand has no no-match query" in capsys.readouterr().err


def test_unwritable_report_is_refused_before_measuring(tmp_path: Path) -> None:
    folder, runs = write_beir(tmp_path / "set"), tmp_path / "runs"
    given = {"html": str(tmp_path / "absent" / "page"), "runs": str(runs)}
    said = refused("unwritable", evaluate.run, options(folder, **given))
    assert "choose a file in an existing, writable folder" in said
    assert not runs.exists()


def test_skipped_rows_are_reported_on_stderr_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_beir(
        tmp_path / "set",
        queries=['{"_id": "q1", "text": "csv"}', *"{{{{{{{"],
        qrels={"test": ["q1\tcsv-cleaner\t1"]},
        negatives={},
    )
    assert evaluate.run(options(folder, modes="never", embedder=None)) == 0
    shown = capsys.readouterr()
    assert shown.err.count("queries.jsonl:") == 5
    assert "and 2 more of set" in shown.err
    assert "7 malformed rows skipped" in shown.out
    refused("malformed_row", evaluate.run, options(folder, strict=True))


def test_compare_exits_with_1_if_a_metric_fell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name, profile in (("a", PROFILE), ("b", CLOSED)):
        reports = list(many(profile).values())
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(dump({"schema": REPORTS_SCHEMA, "reports": reports}))
    before, after = files
    assert evaluate.run(options("compare", before, before)) == 0
    assert capsys.readouterr().out.startswith("no metric fell beyond noise, 0 of")
    assert evaluate.run(options("compare", after, before)) == 1
    text = capsys.readouterr().out
    assert re.search(r"gated, recall@1 .* FELL\n", text)
    assert "gated: 0 queries gained a right first pick, 24 lost it" in text
    assert max(map(len, text.split("\n"))) <= 100
    assert evaluate.run(options("compare", after, before, json=True)) == 1
    assert json.loads(capsys.readouterr().out)["fell"] is True
    refused("out_of_range", evaluate.run, options("compare", before))
    refused("out_of_range", evaluate.run, options("compare", after, before, html="page.html"))


@pytest.mark.parametrize("given", ["background", "from_transcripts", "limit", "split"])
def test_options_that_choose_queries_are_refused_for_a_stored_run(
    tmp_path: Path, given: str
) -> None:
    path, made = tmp_path / "a.run.jsonl", run_of()
    write_run(path, made.header, made.queries)
    value = {"background": True, "limit": 3}.get(given, "x")
    message = refused("out_of_range", evaluate.run, options(path, **{given: value}))
    assert message.startswith(f"--{given.replace('_', '-')} chooses the queries that are measured")
    assert "--runs" in message


def test_page_contains_no_control_characters() -> None:
    run = run_of()
    nasty = "data\x1b[31m\u202eset\x9b\r\0\u2066"
    page = html_report([summarize(replace(run, header=replace(run.header, dataset=nasty)))])
    assert "data [31m set" in page
    assert [
        character for character in page if character != "\n" and not character.isprintable()
    ] == []
