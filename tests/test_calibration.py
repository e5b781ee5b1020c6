"""Fitting a profile: folds, prior, thresholds with a guarantee, refusals, and the command."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import outcome_queries
from beir_folder import write_beir
from commands import CROSSGATE, before_python_path, checked, environment
from commands import Run as Done
from conftest import LIBRARY, golden, refused, skills, without_date
from crossgate import PairScore, Policy, Profile, _core
from crossgate import _cli as cli
from crossgate._calibration import base_rate, calibrating, shortlist_promises
from crossgate._calibration import fits as fit_module
from crossgate._calibration.fits import (
    CAUTION,
    RIDGE,
    STEPS,
    Outcomes,
    Scores,
    Stated,
    fit_any_fits,
    fit_likeliest,
    fit_logistic,
    fit_skipping,
    fit_weights,
    folds,
    groups,
    is_chained,
    least_for_false_positives,
    least_for_recall,
    negatives_needed,
    outcomes,
    rounded,
    stated,
)
from crossgate._calibration.shortlist_promises import FittedShortlist, fit_shortlist
from crossgate._cli import calibrate as command_module
from crossgate._cli.calibrate import calibration_sections, render_calibration
from crossgate._core import (
    Answer,
    AnyFits,
    Blend,
    Combine,
    EvidenceWeights,
    Promise,
    Shortlist,
    Stage1AnyFits,
    Stage2AnyFits,
    Winner,
)
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._evaluation.economics import Shortlists, measure_shortlists
from crossgate._evaluation.page import html_sections
from crossgate._evaluation.statistics import Interval
from crossgate._evaluation.stored_runs import (
    MODES,
    Mode,
    Run,
    StoredQuery,
    decide,
    decide_all,
    reblended,
    write_run,
)
from crossgate._values.profile_files import read_profile, write_profile
from crossgate.calibration import Calibration, Objective, calibrate

BLEND = Blend()
EVIDENCE = Profile().evidence.replace(trigger=1.25, counterexample=3.0)
NAMES = tuple(f"tool-{n:02}" for n in range(60))


def blended(rows: Iterable[tuple[str, float, float]]) -> tuple[_core.Scored, ...]:
    """Return candidates with these ids, cosines and BM25 scores, best blend first."""
    scored = [
        _core.Scored(id=id, cosine=cosine, bm25=bm25, overlap=1, blend=0.0)
        for id, cosine, bm25 in rows
    ]
    return tuple(_core.reblend(scored, BLEND))


def stored(
    id: str,
    scores: Mapping[str, tuple[float, float, float]],
    relevant: Sequence[str] = (),
    **options: Any,
) -> StoredQuery:
    """Return a query whose candidates have these cosines, BM25 scores and rerank scores."""
    return StoredQuery(
        id=id,
        scored=blended((name, cosine, bm25) for name, (cosine, bm25, _) in scores.items()),
        pairs={name: PairScore(score) for name, (_, _, score) in scores.items()},
        relevant=dict.fromkeys(relevant, 1),
        **{"text": f"text of {id}", **options},
    )


def synthetic(
    *,
    matched: int = 160,
    no_match: int = 80,
    seed: int = 0,
    names: Sequence[str] = NAMES,
    prefix: str = "q",
) -> list[StoredQuery]:
    """Return queries whose scores show, with noise, whether a document fits, and which.

    The fitting document has a higher cosine, BM25 score and rerank score than the others, and the
    candidates of a query that nothing fits are like those others.
    """
    random = np.random.default_rng(seed)
    queries = []
    for place in range(matched + no_match):
        names_here = [str(name) for name in random.choice(names, size=10, replace=False)]
        fits = names_here[: int(place < matched)]
        # Each document is confused with only one other: more labels would connect all queries.
        wrong = [names[names.index(name) ^ 1] for name in names_here[:1] if place % 4 == 0]
        names_here = list(dict.fromkeys([*fits, *wrong, *names_here]))
        scores = {
            name: (
                float(np.clip(random.normal(0.55 if name in fits else 0.3, 0.1), -1, 1)),
                float(random.gamma(3.0 if name in fits else 0.8, 3.0)),
                float(random.normal(2.5 if name in fits else -3.0, 2.0)),
            )
            for name in names_here
        }
        signals = {"needs_document": 1 - 0.002 * (place % 4)}
        queries.append(
            stored(f"{prefix}{place}", scores, fits, wrong=frozenset(wrong), signals=signals)
        )
    return queries


def run_of(queries: Sequence[StoredQuery], **header: Any) -> Run:
    """Return a run of these queries."""
    values: dict[str, Any] = {
        "dataset": "made-up",
        "corpus": "c0",
        "labels": "l0",
        "documents": len(NAMES),
        "embedder": "e@1",
        "reranker": "r@1",
        "profile": Profile(name="by hand"),
        "policy": Policy(),
        **header,
    }
    return outcome_queries.run_of(queries, **values)


def permuted(queries: Sequence[StoredQuery], seed: int) -> list[StoredQuery]:
    """Shuffle the labels of all queries."""
    order = np.random.default_rng(seed).permutation(len(queries))
    return [
        replace(query, relevant=queries[other].relevant, wrong=queries[other].wrong)
        for query, other in zip(queries, order, strict=True)
    ]


def swapped_matches(queries: Sequence[StoredQuery], seed: int) -> list[StoredQuery]:
    """Draw for each query whether a document fits: if so, the first pick of stage 2."""
    random = np.random.default_rng(seed)
    return [
        replace(query, wrong=frozenset(), relevant={best_reranked(query): 1} if fits else {})
        for query, fits in zip(queries, random.random(len(queries)) < 0.6, strict=True)
    ]


def swapped_documents(queries: Sequence[StoredQuery], seed: int) -> list[StoredQuery]:
    """Replace the fitting document by a random candidate."""
    random = np.random.default_rng(seed)
    return [
        replace(query, relevant={str(random.choice(list(query.pairs))): 1}, wrong=frozenset())
        if query.relevant
        else query
        for query in queries
    ]


def best_reranked(query: StoredQuery) -> str:
    return max(query.pairs, key=lambda id: query.pairs[id].score)


def fold_of(queries: Sequence[StoredQuery], number: int = 0, count: int = 2) -> list[StoredQuery]:
    queries = sorted(queries, key=lambda query: query.id)
    places = folds(queries, ["c0"] * len(queries), count=count, seed=0)[number]
    return [queries[place] for place in places]


@pytest.fixture(scope="module")
def run() -> Run:
    return run_of(synthetic())


@pytest.fixture(scope="module")
def small() -> Run:
    """Return a run for properties that depend on no number of queries: a fit takes half as long."""
    return run_of(synthetic(matched=60, no_match=30))


@pytest.fixture(scope="module")
def small_fit(small: Run) -> Calibration:
    return calibrate([small], OBJECTIVES["cost"])


OBJECTIVES = {
    "inject": Objective(max_false_positive_rate=0.1),
    "recall": Objective(keep_recall=0.9),
    "cost": Objective(cost_ratio=2.0, max_recall_loss=0.03),
}


@pytest.fixture(scope="module")
def fits(run: Run) -> Mapping[str, Calibration]:
    return {name: calibrate([run], objective) for name, objective in OBJECTIVES.items()}


# Folds.


@st.composite
def labelled(draw: st.DrawFn) -> tuple[list[StoredQuery], list[str]]:
    """Draw queries with random labels among few documents of few corpora."""
    documents = st.lists(st.sampled_from("abcdefghijklmno"), max_size=2)
    rows = draw(
        st.lists(
            st.tuples(documents, documents, st.integers(0, 40), st.sampled_from(["c1", "c2"])),
            max_size=40,
        )
    )
    queries = [
        stored(f"q{place}", {}, fits, wrong=frozenset(wrong), text=f"text {text}")
        for place, (fits, wrong, text, _) in enumerate(rows)
    ]
    return queries, [corpus for *_, corpus in rows]


def connected(queries: Sequence[StoredQuery], corpora: Sequence[str]) -> list[set[int]]:
    """Return the groups by their definition: merge as long as two of them share a document."""
    found: list[tuple[set[int], set[object]]] = []
    for place, (query, corpus) in enumerate(zip(queries, corpora, strict=True)):
        marks: set[object] = {
            query.text,
            *((corpus, document) for document in (*query.relevant, *query.wrong)),
        }
        places = {place}
        for other in [group for group in found if group[1] & marks]:
            found.remove(other)
            places |= other[0]
            marks |= other[1]
        found.append((places, marks))
    return [places for places, _ in found]


def one_label(query: StoredQuery) -> StoredQuery:
    """Keep the strongest label: the document that fits best, else one known not to fit."""
    labels = [*sorted(query.relevant), *sorted(query.wrong)][:1]
    fits = {label: 1 for label in labels if label in query.relevant}
    return replace(query, relevant=fits, wrong=frozenset(labels) - set(fits))


def test_labels_that_connect_all_queries_still_give_folds() -> None:
    queries = [stored(f"q{n}", {}, [f"d{n % 20:02}", f"d{(n + 1) % 20:02}"]) for n in range(200)]
    assert is_chained(queries, ["c"] * 200)
    dealt = folds(queries, ["c"] * 200, count=2, seed=0)
    assert [len(fold) for fold in dealt] == [100, 100]
    best = [{min(queries[place].relevant) for place in fold} for fold in dealt]
    assert best[0].isdisjoint(best[1])


@given(labelled(), st.integers(0, 5))
def test_no_group_is_in_two_folds(drawn: tuple[list[StoredQuery], list[str]], seed: int) -> None:
    queries, corpora = drawn
    wanted = connected(queries, corpora)
    numbers = groups(queries, corpora)
    assert len(set(numbers)) == len(wanted)
    for places in wanted:
        assert len({numbers[place] for place in places}) == 1
    if is_chained(queries, corpora):
        assert 2 * max(map(len, wanted)) > len(queries)
        wanted = connected([one_label(query) for query in queries], corpora)
    dealt = folds(queries, corpora, count=3, seed=seed)
    assert all(dealt)
    assert sorted(itertools.chain(*dealt)) == list(range(len(queries)))
    for places in wanted:
        assert sum(not places.isdisjoint(fold) for fold in dealt) == 1
    assert folds(queries, corpora, count=3, seed=seed) == dealt


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 9))
def test_each_fold_has_queries_of_both_kinds(matched: int, no_match: int, seed: int) -> None:
    queries = [stored(f"q{n}", {}, [f"d{n}"]) for n in range(matched)]
    queries += [stored(f"n{n}", {}) for n in range(no_match)]
    dealt = folds(queries, ["c"] * len(queries), count=4, seed=seed)
    for wanted, count in ((True, matched), (False, no_match)):
        shares = [sum(bool(queries[n].relevant) == wanted for n in fold) for fold in dealt]
        assert sum(shares) == count
        assert max([*shares, 0]) <= math.ceil(count / 4)


def test_folds_depend_on_the_seed() -> None:
    queries = synthetic(matched=40, no_match=20)
    drawn = {tuple(folds(queries, ["c"] * 60, count=2, seed=seed)[0]) for seed in range(5)}
    assert len(drawn) == 5


def test_equal_ids_of_two_corpora_do_not_connect_queries() -> None:
    queries = [stored("q1", {}, ["b c"]), stored("q2", {}, ["c"]), stored("q3", {}, ["c"])]
    assert groups(queries, ["a", "a b", "a b"]) == [0, 1, 1]
    assert groups(queries, ["a", "a", "b"]) == [0, 1, 2]
    # Queries with the same text are in one group, whatever their corpus.
    texts = [replace(query, text="same") for query in queries]
    assert groups(texts, ["a", "b", "c"]) == [0, 0, 0]


# The threshold for a false-positive rate.


SCORES = st.one_of(
    st.floats(0, 1), st.integers(0, 10**6).map(lambda n: n / 1e6), st.sampled_from([0.25, 0.5])
)


@given(st.lists(SCORES, min_size=2, max_size=40), st.floats(0.03, 0.97))
@settings(max_examples=300)
def test_at_most_k_of_n_plus_one_queries_are_answered(scores: list[float], level: float) -> None:
    """The finite-sample property for each choice of the new query, with ties."""
    n = len(scores) - 1
    if n < negatives_needed(level):
        assert least_for_false_positives(np.array(scores[1:]), level) > max(scores[1:])
        return
    answered = 0
    for place, new in enumerate(scores):
        rest = np.array(scores[:place] + scores[place + 1 :])
        answered += new >= least_for_false_positives(rest, level)
    assert answered <= math.floor(level * (n + 1) * (1 + 1e-12))


@given(st.lists(SCORES, min_size=1, max_size=40), st.floats(0.03, 0.97))
def test_threshold_is_the_lowest_with_six_digits(scores: list[float], level: float) -> None:
    empty = np.array(scores)
    if len(empty) < negatives_needed(level):
        return
    least = least_for_false_positives(empty, level)
    assert least == round(least, 6)
    largest = np.sort(empty)[::-1][math.floor(level * (len(empty) + 1) * (1 + 1e-12)) - 1]
    assert largest < least <= largest + 1.000001e-6


def test_mean_false_positive_rate_is_within_the_level() -> None:
    """The guarantee holds on average, so it is tested on a mean of many splits.

    With scores of one distribution the rate of a further query is a Beta variable with mean
    k / (n + 1) and a variance below k / (n + 1)^2. Over 2000 splits, each judged on 200 queries
    more, the standard deviation of the mean is below sqrt((k / (n + 1)^2 + 0.25 / 200) / 2000);
    four times that is the tolerance.
    """
    random = np.random.default_rng(3)
    for level, n in ((0.1, 40), (0.05, 19), (0.3, 25)):
        k = math.floor(level * (n + 1) + 1e-9)
        rates = []
        for _ in range(2000):
            # Rounded, so that there are ties.
            scores = random.beta(2, 5, size=n + 200).round(2)
            least = least_for_false_positives(scores[:n], level)
            rates.append(float((scores[n:] >= least).mean()))
        tolerance = 4 * math.sqrt((k / (n + 1) ** 2 + 0.25 / 200) / 2000)
        assert np.mean(rates) <= level + tolerance
        # A threshold that answers no query would satisfy any level.
        assert np.mean(rates) > level / 3


@pytest.mark.parametrize("level", [0.5, 1 / 3, 0.1, 0.07, 0.05, 1 / 49, 0.02, 0.01, 0.001, 0.9])
def test_negatives_needed_is_the_minimum(level: float) -> None:
    needed = negatives_needed(level)
    scores = np.linspace(0.9, 0.1, needed)
    # The highest of just enough negatives sets the threshold.
    assert 0.9 < least_for_false_positives(scores, level) < 0.900002
    assert abs(needed - (1 / level - 1)) <= 1


@pytest.mark.parametrize(("count", "named"), [(8, "promise 0.11 at best"), (0, "needs 9. Give")])
def test_too_few_negatives_are_refused_with_the_number_needed(count: int, named: str) -> None:
    few = run_of(synthetic(matched=60, no_match=count))
    message = refused("too_few_negatives", calibrate, [few], OBJECTIVES["inject"])
    assert f"{count} no-match queries: a false-positive rate of 0.1 needs 9" in message
    assert named in message
    calibrate([run_of(synthetic(matched=60, no_match=9))], OBJECTIVES["inject"])


# Other thresholds.


MANY = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=30)


@given(MANY, st.lists(st.sampled_from("ab"), min_size=30, max_size=30), st.floats(0.05, 0.95))
def test_recall_threshold_keeps_the_share_in_every_corpus(
    drawn: list[tuple[float, bool]], corpora: list[str], share: float
) -> None:
    corpora = corpora[: len(drawn)]
    if not any(right for _, right in drawn):
        return
    scores, right = np.array([draw for draw, _ in drawn]), np.array([draw for _, draw in drawn])
    least = least_for_recall(scores, right, corpora, share)
    highest = []
    for corpus in set(corpora):
        of = [s for (s, fits), name in zip(drawn, corpora, strict=True) if fits and name == corpus]
        assert sum(probability >= least for probability in of) >= share * len(of) - 1e-9
        if of:
            dropped = math.floor((1 - Fraction(str(share))) * len(of))
            highest.append(sorted(of)[dropped])
    # It is the highest threshold with six digits.
    assert min(highest) - 1.000001e-6 <= least <= min(highest)


@pytest.mark.parametrize(("share", "count"), [(0.9, 10), (0.8, 5), (0.7, 10), (0.95, 40), (0.9, 9)])
def test_share_to_keep_is_taken_as_a_decimal(share: float, count: int) -> None:
    scores = np.linspace(0.1, 0.9, count)
    least = least_for_recall(scores, np.ones(count, np.bool_), ["c"] * count, share)
    assert (scores >= least).sum() == math.ceil(Fraction(str(share)) * count)


# The weights.


def likeliest_loss(rows: Sequence[Scores], blend: Blend, weights: Sequence[float]) -> float:
    """Return the listwise loss of weights for cosine, bounded BM25 and so on, with its ridge."""
    features = [row.features(blend)[:, : len(weights)] for row in rows]
    return listwise_loss(
        features, [row.right for row in rows], [row.evidence for row in rows], weights
    )


def listwise_loss(
    features: Sequence[Any], right: Sequence[Any], offset: Sequence[Any], weights: Sequence[float]
) -> float:
    """Return the listwise loss of weights, by its definition, with its ridge."""
    total = 0.0
    for matrix, fits, added in zip(features, right, offset, strict=True):
        scores = [
            float(np.dot(weights, values)) + more
            for values, more in zip(matrix, added, strict=True)
        ]
        largest = max(scores)
        total += largest + math.log(sum(math.exp(score - largest) for score in scores))
        of_right = [score for score, fitting in zip(scores, fits, strict=True) if fitting]
        total -= sum(of_right) / len(of_right)
    spread = np.concatenate(list(features)).std(axis=0)
    return total / len(right) + 1e-4 * float(np.sum(np.square(weights * spread)))


def scores_of(run: Run) -> list[Scores]:
    """Return the scores of some queries, with evidence about a third of the candidates."""
    random = np.random.default_rng(2)
    rows = [Scores.of(query, EvidenceWeights()) for query in run.queries[:80] if query.relevant]
    return [
        replace(row, evidence=np.where(random.random(len(row.right)) < 1 / 3, 1.5, 0.0))
        for row in rows
    ]


@st.composite
def lists_with_offsets(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[Any]]:
    """Draw features, right candidates and offsets of some queries."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    features, right, offset = [], [], []
    for size in draw(st.lists(st.integers(1, 5), min_size=2, max_size=8)):
        features.append(random.normal(size=(size, 2)))
        fits = random.random(size) < 0.4
        fits[random.integers(size)] = True
        right.append(fits)
        offset.append(random.normal(scale=draw(st.sampled_from([0.0, 1.0, 5.0])), size=size))
    return features, right, offset


@given(lists_with_offsets(), st.lists(st.tuples(st.floats(0, 9), st.floats(-9, 9)), max_size=9))
def test_no_other_weights_are_likelier_given_the_offsets(
    drawn: tuple[list[Any], list[Any], list[Any]], others: list[tuple[float, float]]
) -> None:
    features, right, offset = drawn
    found, least, *_ = fit_likeliest(features, right, offset=offset, free=1)
    assert found[0] >= 0
    assert least == pytest.approx(listwise_loss(features, right, offset, found), abs=1e-6)
    near = [(max(found[0] + step, 0.0), found[1] - step) for step in (-0.1, 0.1)]
    for other in (*others, *near):
        assert least <= listwise_loss(features, right, offset, other) + 1e-6


@given(st.integers(0, 10**6), st.floats(0.5, 3.0))
@settings(max_examples=50)
def test_offset_takes_over_from_the_weight_that_it_replaces(seed: int, part: float) -> None:
    """What the offset says already, the weights do not repeat."""
    random = np.random.default_rng(seed)
    signals = random.normal(size=(400, 2))
    labels = (random.random(400) < 1 / (1 + np.exp(-signals @ [4.0, 4.0]))).astype(float)
    with mock.patch.object(fit_module, "RIDGE", 0.0):
        _, *whole = fit_logistic(signals, labels).weights
        _, *rest = fit_logistic(signals, labels, offset=part * signals[:, 0]).weights
    assume(whole[0] > part)
    assert rest == pytest.approx([whole[0] - part, whole[1]], rel=0.01, abs=0.01)


def test_score_too_large_to_square_has_no_weight(run: Run) -> None:
    rows = scores_of(run)
    rows[0].rerank_score[0] = 1e308
    found = fit_likeliest(
        [row.features(BLEND) for row in rows],
        [row.right for row in rows],
        offset=[row.evidence for row in rows],
    )
    assert found.weights[2] == 0
    assert found.weights[0] + found.weights[1] > 0


WITH_EVIDENCE = EvidenceWeights(trigger=2.0, counterexample=-3.0)


def with_evidence(query: StoredQuery) -> StoredQuery:
    """Return a query with a trigger for one candidate, a counterexample of another, and a need."""
    number = int(query.id[1:])
    pieces = [{"trigger": 0.5}, {}, {"counterexample": 0.25}]
    scored = [
        candidate.replace(evidence=pieces[place % 3]) if (place + number) % 2 else candidate
        for place, candidate in enumerate(query.scored)
    ]
    signals = {"needs_document": (0.2, 0.5, 0.99)[number % 3]}
    return replace(query, scored=tuple(scored), signals=signals)


def relevance_loss(queries: Sequence[StoredQuery], profile: Profile, stage: int) -> float:
    """Return the listwise loss, with its ridge, of the relevances that the cascade states."""
    losses, columns = [], []
    for query in queries:
        result = decide(query, profile, ("never", "always")[stage - 1])
        relevances = {hit.id: hit.relevance for hit in result.hits}
        assert sum(relevance or 0.0 for relevance in relevances.values()) == pytest.approx(1)
        losses.append(-math.log(relevances[next(iter(query.relevant))] or 0.0))
        for place, candidate in enumerate(query.scored):
            bm25 = candidate.bm25 / (candidate.bm25 + profile.blend.pivot)
            read = place < profile.pool
            score = query.pairs[candidate.id].score if read else 0.0
            columns.append([candidate.cosine, bm25, score, float(not read)])
    model = profile.relevance.stage1 if stage == 1 else profile.relevance.stage2
    assert model is not None
    names = ("cosine", "bm25", "rerank_score", "unread")[: 2 * stage]
    spread = np.array(columns, dtype=float)[:, : 2 * stage].std(axis=0)
    weights = np.array([getattr(model, name) for name in names])
    return float(np.mean(losses) + 1e-4 * np.sum(np.square(weights * spread)))


@pytest.mark.parametrize("stage", [1, 2])
def test_weights_have_the_highest_likelihood_and_give_the_order(run: Run, stage: int) -> None:
    queries = [with_evidence(query) for query in run.queries[:60]]
    found, known = fit_weights(queries, Profile(evidence=WITH_EVIDENCE), prior=False)
    assert known is None
    queries = [reblended(query, found) for query in queries]
    least = relevance_loss(queries, found, stage)
    model = found.relevance.stage1 if stage == 1 else found.relevance.stage2
    assert model is not None
    weights = model.to_dict()
    # The run has no coverage, so its weights stay 0.
    weights = {name: weight for name, weight in weights.items() if weight}
    assert {"cosine", "bm25"} <= weights.keys()
    for name, step in itertools.product(weights, (-0.05, 0.05)):
        changed = {**weights, name: weights[name] * (1 + step)}
        other = {**found.relevance.to_dict(), f"stage{stage}": changed}
        assert least < relevance_loss(queries, found.replace(relevance=other), stage), (name, step)
    if stage == 1:
        share = weights["cosine"] / (weights["cosine"] + weights["bm25"])
        assert found.blend.cosine_weight == round(share, 2)
        assert found.blend.log_odds == pytest.approx(weights["cosine"] + weights["bm25"], rel=1e-4)
    else:
        combine = found.combine.to_dict()
        for name in ("cosine", "bm25", "rerank_score"):
            assert combine[name] == pytest.approx(weights.get(name, 0.0), rel=1e-4)


def any_fits_loss(queries: Sequence[StoredQuery], profile: Profile, stage: int) -> float:
    """Return the logistic loss, with its ridge, of the `any_fits` that the cascade states."""
    losses, columns = [], []
    for query in queries:
        result = decide(query, profile, ("never", "always")[stage - 1])
        assert result.any_fits is not None
        losses.append(-math.log(result.any_fits if query.relevant else 1 - result.any_fits))
        scores = {
            scored.id: query.pairs[scored.id].score for scored in query.scored[: profile.pool]
        }
        documents = query.documents or len(query.scored)
        known = _core.log_mean(query.scored, scores if stage == 2 else None, documents, profile)
        assert known is not None
        log_mean, _ = known
        cosine = max(scored.cosine or 0.0 for scored in query.scored)
        columns.append([log_mean, cosine, result.hits[0].rerank_score or 0.0][: stage + 1])
    model = profile.any_fits.stage1 if stage == 1 else profile.any_fits.stage2
    assert model is not None
    weights = [model.log_mean, model.cosine, getattr(model, "rerank_score", 0.0)][: stage + 1]
    spread = np.array(columns, dtype=float).std(axis=0)
    return float(np.mean(losses) + RIDGE * np.sum(np.square(weights * spread)))


@pytest.mark.parametrize("stage", [1, 2])
def test_any_fits_has_the_highest_likelihood(run: Run, stage: int) -> None:
    # What the probability of a need adds is given, and not part of the fit.
    queries = [with_evidence(query) for query in (*run.queries[:60], *run.queries[-40:])]
    weighed, _ = fit_weights(queries, Profile(evidence=WITH_EVIDENCE), prior=False)
    queries = [reblended(query, weighed) for query in queries]
    found, _ = fit_any_fits(queries, weighed, prior=False)
    least = any_fits_loss(queries, weighed.replace(any_fits=found), stage)
    name_of_stage = f"stage{stage}"
    weights = found.to_dict()[name_of_stage]
    for name, step in itertools.product(weights, (-0.05, 0.05)):
        if name != "intercept" and not weights[name] and step < 0:
            continue
        changed = {**weights, name: weights[name] * (1 + step) or step}
        other = {**found.to_dict(), name_of_stage: changed}
        assert least < any_fits_loss(queries, weighed.replace(any_fits=other), stage), (name, step)


def test_any_fits_is_that_of_the_prior_without_no_match_queries(run: Run) -> None:
    matched = [query for query in run.queries if query.relevant][:30]
    profile, _ = fit_weights(matched, Profile(), prior=False)
    matched = [reblended(query, profile) for query in matched]
    assert fit_any_fits(matched, profile, prior=False) == (AnyFits(), None)
    assert fit_any_fits(matched, profile.replace(any_fits=EVEN), prior=True) == (EVEN, None)
    result = decide(matched[0], profile, "always")
    assert result.any_fits is None
    # The relevances are then shares, under the condition that a candidate fits.
    assert sum(hit.relevance or 0.0 for hit in result.hits) == pytest.approx(1)


@pytest.mark.parametrize(
    ("cosine", "bm25", "shares"),
    [
        ([0.9, 0.1], [1.0, 9.0], (0.9, 0.1)),
        ([0.1, 0.9], [9.0, 1.0], (0.1, 0.9)),
        ([0.1, 0.9], [1.0, 9.0], (0.7, 0.3)),
    ],
)
def test_blend_keeps_a_minimum_share_of_each_channel(
    cosine: list[float], bm25: list[float], shares: tuple[float, float]
) -> None:
    """One channel or both may look useless on queries of a single kind."""
    scores = {name: (cosine[place], bm25[place], 0.0) for place, name in enumerate("ab")}
    queries = [stored(f"q{n}", scores, ["a"]) for n in range(20)]
    found, _ = fit_weights(queries, Profile(), prior=False)
    assert (found.blend.cosine_weight, found.blend.bm25_weight) == pytest.approx(shares)


# The prior.


@st.composite
def logistic_rows(draw: st.DrawFn) -> tuple[Any, Any, list[float]]:
    """Draw signals and labels, and a prior that need not fit them."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    signals = random.normal(size=(draw(st.integers(2, 60)), 2))
    labels = (random.random(len(signals)) < 1 / (1 + np.exp(1 - signals @ [2.0, 1.0]))).astype(
        float
    )
    return signals, labels, draw(st.lists(st.floats(0.1, 3), min_size=3, max_size=3))


@given(logistic_rows())
@settings(max_examples=50)
def test_more_of_the_same_labels_move_a_model_further_from_its_prior(
    drawn: tuple[Any, Any, list[float]],
) -> None:
    signals, labels, prior = drawn
    alone, many = (
        fit_logistic(np.repeat(signals, times, axis=0), np.repeat(labels, times), prior=prior)
        for times in (1, 1000)
    )
    assert alone.known is not None
    assert many.known is not None
    assert all(0 <= few <= more <= 1 for few, more in zip(alone.known, many.known, strict=True))

    def gain(weights: Sequence[float]) -> float:
        odds = weights[0] + signals @ np.array(weights[1:])
        return float(np.mean(labels * odds - np.logaddexp(0, odds)))

    assert gain(prior) - 1e-4 <= gain(alone.weights) <= gain(many.weights) + 1e-4


def test_single_label_hardly_moves_the_weights_and_many_move_them_all_the_way(run: Run) -> None:
    matched = [query for query in run.queries if query.relevant]
    alone, _ = fit_weights(matched, Profile(), prior=False)
    start = alone.replace(
        relevance={
            "stage1": {"cosine": 30.0, "bm25": 1.0},
            "stage2": {"cosine": 30.0, "bm25": 1.0, "rerank_score": 0.1},
        }
    )
    matched = [reblended(query, start) for query in matched]

    def bm25(queries: Sequence[StoredQuery]) -> float:
        found, known = fit_weights(queries, start, prior=True)
        assert known is not None
        assert found.relevance.stage1 is not None
        return found.relevance.stage1.bm25

    assert alone.relevance.stage1 is not None
    wanted = alone.relevance.stage1.bm25
    assert abs(bm25(matched[:1]) - 1.0) < 0.3 * abs(wanted - 1.0)
    assert abs(bm25(matched * 100) - wanted) < 0.3 * abs(wanted - 1.0)


@pytest.fixture(scope="module")
def prior(fits: Mapping[str, Calibration]) -> Profile:
    """Return a profile for the runs whose probabilities are far too low for their queries."""
    profile = fits["cost"].profile
    models = {
        stage: {**model, "intercept": model["intercept"] - 3}
        for stage, model in profile.any_fits.to_dict().items()
    }
    return profile.replace(name="prior", any_fits=models)


@pytest.mark.parametrize("count", [20, 60])
def test_few_labels_move_the_level_of_a_profile_and_keep_its_gate(
    prior: Profile, count: int
) -> None:
    queries = synthetic(matched=count * 3 // 4, no_match=count // 4, seed=5)
    found = calibrate([run_of(queries)], Objective(), before=prior)
    made = found.profile
    assert (made.winner, made.runner_up, made.shortlist, made.pool) == (
        prior.winner,
        prior.runner_up,
        prior.shortlist,
        prior.pool,
    )
    assert made.answer == prior.answer.replace(confidence=0.5)
    assert any(note.startswith("the level moves by +") for note in found.notes)
    assert found.change is not None
    assert found.change.value > 0
    assert any("of the level of the probabilities" in note for note in found.notes)
    assert any("would decide half of the weights" in note for note in found.notes)
    assert any("200 queries with a match" in note for note in found.notes)
    # The new profile is better on other queries, too.
    others = synthetic(matched=150, no_match=50, seed=6)
    right = [
        float(np.mean(calibrating.measured([reblended(q, profile) for q in others], profile).right))
        for profile in (prior.replace(answer=made.answer), made)
    ]
    assert right[1] > right[0] + 0.05


@pytest.mark.parametrize(
    ("objective", "matched", "no_match"),
    [
        (Objective(keep_recall=0.9), 1, 6),
        (Objective(max_false_positive_rate=0.5), 6, 1),
    ],
    ids=["the only right pick", "the only no-match query"],
)
def test_queries_of_a_kind_may_all_be_in_one_fold(
    prior: Profile, objective: Objective, matched: int, no_match: int
) -> None:
    queries = synthetic(matched=matched, no_match=no_match)
    found = calibrate([run_of(queries)], objective, before=prior)
    assert (found.report.matched, found.report.no_match) == (matched, no_match)


def test_queries_that_show_nothing_are_refused(prior: Profile) -> None:
    empty = [replace(query, scored=(), pairs={}) for query in synthetic(matched=2, no_match=0)]
    scores = {"a": (0.5, 3.0, 2.0), "b": (0.3, 1.0, -1.0)}
    about_one = [stored(f"q{n}", scores, ["a"]) for n in range(calibrating.GATE_LABELS)]
    for code, queries, objective in (
        ("unsuitable_run", empty, Objective()),
        ("no_gate", synthetic(matched=0, no_match=6), Objective(keep_recall=0.9)),
        ("no_gate", about_one, Objective()),
    ):
        refused(code, calibrate, [run_of(queries)], objective, before=prior)


def test_labels_of_one_query_or_none_change_hardly_anything(prior: Profile) -> None:
    queries = synthetic(matched=1, no_match=0)
    found = calibrate([run_of(queries)], Objective(), before=prior)
    assert found.profile.any_fits == prior.any_fits
    # A single candidate tells no weight from another.
    single = stored("q", {"tool-01": (0.5, 3.0, 1.0)}, ["tool-01"])
    found = calibrate([run_of([single])], Objective(), before=prior)
    assert found.profile.relevance == prior.relevance
    everyday = [replace(query, kind="background") for query in synthetic(matched=0, no_match=60)]
    found = calibrate([run_of(everyday)], OBJECTIVES["inject"], before=prior)
    assert (found.profile.relevance, found.profile.any_fits) == (prior.relevance, prior.any_fits)
    assert found.profile.blend == prior.blend
    # Everyday prompts raise the threshold, and never lower it.
    for before, wanted in ((0.0, None), (0.999, 0.999)):
        start = prior.replace(answer=prior.answer.replace(threshold=before))
        answer = calibrate([run_of(everyday)], OBJECTIVES["inject"], before=start).profile.answer
        assert answer.threshold is not None
        assert answer.threshold >= before
        assert wanted in (None, answer.threshold)


def test_everyday_prompts_do_not_lower_the_probabilities(prior: Profile) -> None:
    own = synthetic(matched=30, no_match=10, seed=3)
    everyday = [
        replace(query, kind="background")
        for query in synthetic(matched=0, no_match=200, seed=4, prefix="e")
    ]
    alone, both = (
        calibrate([run_of(queries)], OBJECTIVES["inject"], before=prior).profile
        for queries in (own, [*own, *everyday])
    )
    assert both.any_fits == alone.any_fits
    assert both.answer != alone.answer


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_cost_of_a_wrong_pick_sets_the_probability_that_a_pick_needs(
    small: Run, ratio: float
) -> None:
    answer = calibrate([small], Objective(cost_ratio=ratio)).profile.answer
    assert answer.confidence == pytest.approx(ratio / (ratio + 1), 1e-4)


# The fit's predictions are those of the cascade.


@pytest.mark.parametrize("name", OBJECTIVES)
def test_cascade_decides_as_the_fit_predicts(
    run: Run, fits: Mapping[str, Calibration], name: str
) -> None:
    profile = fits[name].profile.replace(anytime=None)
    queries = [reblended(query, profile) for query in run.queries]
    seen = outcomes(queries, profile)
    first, second = stated(queries, profile)
    skipped = skips(seen, first, profile)
    reasons = Counter[str]()
    for place, query in enumerate(queries):
        never, gated, always = (decide(query, profile, mode) for mode in MODES)
        assert (never.any_fits, never.confidence) == at(first, place)
        assert (always.any_fits, always.confidence) == at(second, place)
        assert (gated.stage == 1) == skipped[place]
        assert gated.confidence == (never if skipped[place] else always).confidence
        for result in (never, gated, always):
            silent = not clears(result.any_fits, result.confidence, profile.answer)
            assert bool(result.ids) == (not silent and result.reason != "improbable")
        assert (never.hits[0].id in query.relevant) == seen.stage1_right[place]
        assert (always.hits[0].id in query.relevant) == seen.stage2_right[place]
        reasons[gated.reason] += 1
    # The queries take every path.
    assert {"reranked", "confident_winner", "rejected", "improbable"} <= set(reasons)


def at(known: Stated, place: int) -> tuple[float, float]:
    """Return the probabilities of one query."""
    return float(known.any_fits[place]), float(known.confidence[place])


def clears(any_fits: float | None, confidence: float | None, answer: Answer) -> bool:
    """Return whether probabilities reach the thresholds of an answer."""
    assert any_fits is not None
    assert confidence is not None
    return any_fits >= (answer.threshold or 0.0) and confidence >= (answer.confidence or 0.0)


def skips(seen: Outcomes, first: Stated, profile: Profile) -> list[bool]:
    """Return whether the gate skips each query, by its definition."""
    answer, winner = profile.answer, profile.winner
    found = []
    for place in range(len(seen)):
        least = winner.agreed if seen.agreement[place] else winner.disagreed
        lead = seen.stage1_margin[place]
        any_fits, confidence = at(first, place)
        below = answer.rerank_threshold is not None and any_fits < answer.rerank_threshold
        clear = least is not None and lead > 0 and lead >= least
        found.append(bool(below or (clear and clears(any_fits, confidence, answer))))
    return found


def is_ordered(agreed: float | None, disagreed: float | None) -> bool:
    """Return whether the lead for disagreement is at least that for agreement."""
    return disagreed is None or (agreed is not None and disagreed >= agreed)


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.1])
def test_skipping_is_maximal_within_the_allowed_loss_of_each_corpus(
    run: Run, fits: Mapping[str, Calibration], loss: float
) -> None:
    profile = fits["recall"].profile
    queries = [reblended(query, profile) for query in run.queries[::2]]
    seen = outcomes(queries, profile)
    corpora = ["small" if place % 5 == 0 else "large" for place in range(len(queries))]
    least = profile.answer.threshold
    assert least is not None
    first, second = stated(queries, profile)
    reached = first.any_fits >= least, second.any_fits >= least
    threshold, found = fit_skipping(seen, first.any_fits, reached, least, corpora, loss)
    assert (threshold or 0.0) <= least
    answer = profile.answer.replace(rerank_threshold=threshold)

    def judge(agreed: float | None, disagreed: float | None) -> tuple[int, bool]:
        """Return how many queries stage 1 decides alone, and whether the loss is allowed."""
        winner = Winner(agreed=agreed, disagreed=disagreed)
        skipped = skips(seen, first, profile.replace(answer=answer, winner=winner))
        # The loss in answers, and the loss in order without a threshold.
        lost, in_order, matched = Counter[str](), Counter[str](), Counter[str]()
        bare = profile.replace(answer=Answer(), winner=winner)
        leads = skips(seen, first, bare)
        for place, corpus in enumerate(corpora):
            matched[corpus] += bool(seen.matched[place])
            if skipped[place]:
                lost[corpus] -= bool(seen.stage1_right[place] and reached[0][place])
                lost[corpus] += bool(seen.stage2_right[place] and reached[1][place])
            if leads[place]:
                in_order[corpus] -= bool(seen.stage1_right[place])
                in_order[corpus] += bool(seen.stage2_right[place])
        return sum(skipped), all(
            max(lost[query], in_order[query]) <= CAUTION * loss * matched[query]
            for query in matched
        )

    count, allowed = judge(found.agreed, found.disagreed)
    assert allowed
    agrees = seen.agreement
    leads = [
        [None, *(rounded(float(value)) for value in np.quantile(of, np.linspace(0, 1, STEPS)))]
        for of in (seen.stage1_margin[agrees], seen.stage1_margin[~agrees])
    ]
    others = [judge(*pair) for pair in itertools.product(*leads) if is_ordered(*pair)]
    # All of them have the same `rerank_threshold`, so only the leads differ.
    assert count == max(skipped for skipped, good in others if good)
    if loss >= 0.02:
        assert count > 0


@st.composite
def seen_by_chance(draw: st.DrawFn) -> Outcomes:
    """Draw random outcomes in which disagreeing winners are more often right."""
    rows = draw(
        st.lists(
            st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 9), st.integers(0, 9)),
            min_size=1,
            max_size=40,
        )
    )
    agrees, leads, first, second = (np.array(column) for column in zip(*rows, strict=True))
    lead = leads / 20
    nothing = np.zeros(len(rows), dtype=np.bool_)
    return Outcomes(
        agreement=agrees,
        stage1_right=first >= np.where(agrees, 5, 1),
        stage2_right=second >= 3,
        matched=~nothing,
        chance=np.zeros(len(rows)),
        stage1_margin=lead,
        stage1_second=nothing,
        stage2_margin=lead,
        stage2_second=nothing,
    )


@given(seen_by_chance(), st.floats(0.0, 0.5))
@settings(max_examples=200)
def test_lead_for_disagreement_is_at_least_the_lead_for_agreement(
    seen: Outcomes, loss: float
) -> None:
    certain = np.ones(len(seen))
    reached = certain > 0, certain > 0
    _, found = fit_skipping(seen, certain, reached, 0.0, ["c"] * len(seen), loss)
    assert is_ordered(found.agreed, found.disagreed)


def test_misleading_agreement_does_not_lower_the_lead_for_disagreement(run: Run) -> None:
    # If the channels agree, they often err and stage 2 does not. So the cheapest leads would be
    # large for agreement and small for disagreement.
    queries = [misleading(query) for query in run.queries]
    found = calibrate([run_of(queries)], Objective(cost_ratio=0.2, max_recall_loss=0.03))
    winner = found.profile.winner
    assert winner.agreed is not None
    assert winner.disagreed is not None
    assert winner.disagreed >= winner.agreed


# Refusals.


def labels_of_noise(way: Callable[..., list[StoredQuery]], seed: int) -> Run:
    """Return a run with shuffled labels and enough queries that some picks are right."""
    names = tuple(f"tool-{n:03}" for n in range(200))
    return run_of(way(synthetic(matched=500, no_match=150, seed=seed, names=names), seed))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", [permuted, swapped_matches, swapped_documents])
def test_shuffled_labels_are_refused(way: Callable[..., list[StoredQuery]], seed: int) -> None:
    message = refused("no_gate", calibrate, [labels_of_noise(way, seed)], OBJECTIVES["inject"])
    assert message.startswith("the gate cannot be fitted: ")


EVEN = AnyFits(stage1=Stage1AnyFits(cosine=1.0), stage2=Stage2AnyFits(rerank_score=1.0))


def test_refusal_names_the_cause(monkeypatch: pytest.MonkeyPatch, small: Run) -> None:
    monkeypatch.setattr(calibrating, "least_for_false_positives", lambda *_: 1.000001)
    message = refused("no_gate", calibrate, [small], OBJECTIVES["inject"])
    assert "allow a higher rate" in message
    nothing = run_of(synthetic(matched=0, no_match=20))
    assert "no profile suits the models" in refused("no_gate", calibrate, [nothing], Objective())


def test_shuffled_documents_are_refused_despite_many_right_picks() -> None:
    names = tuple(f"tool-{n:03}" for n in range(400))
    queries = synthetic(matched=1000, no_match=150, names=names)
    message = refused(
        "no_gate", calibrate, [run_of(swapped_documents(queries, 0))], OBJECTIVES["recall"]
    )
    assert "a random pick" in message


def misleading(query: StoredQuery) -> StoredQuery:
    """Give another candidate the best BM25 score, and the right one the best rerank score."""
    if not query.relevant or int(query.id[1:]) % 3:
        return query
    (right,) = query.relevant
    other = next(candidate.id for candidate in query.scored if candidate.id != right)
    scored = blended(
        (candidate.id, 0.7, 30.0) if candidate.id == other else (candidate.id, 0.4, 1.0)
        for candidate in query.scored
    )
    pairs = {id: PairScore(14.0 if id == right else -6.0) for id in query.pairs}
    return replace(query, scored=scored, pairs=pairs)


@pytest.mark.parametrize(
    ("objective", "named"),
    [
        (Objective(max_false_positive_rate=0.1), "of the held-out queries: too many for 10.0%"),
        (Objective(keep_recall=0.9), "right picks of held-out queries pass the threshold"),
        (Objective(max_recall_loss=0.01), "skipping costs"),
    ],
    ids=["inject", "recall", "skipping"],
)
def test_objective_that_held_out_queries_contradict_is_refused(
    run: Run, objective: Objective, named: str
) -> None:
    figures = calibrating.measured(run.queries[::4], Profile()).figures(0)
    worst = replace(
        figures,
        separation=None,
        kept=Interval(0.5, 0.4, 0.6, 100),
        recall_loss=Interval(0.2, 0.15, 0.25, 100),
        modes={"gated": {"false_positive_rate": Interval(0.4, 0.3, 0.5, 100)}},
    )
    assert named in refused("promise_broken", calibrating._check_promise, worst, objective, True)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"modes": ("never", "gated")}, "the mode always"),
        ({"reranker": None}, "a reranker"),
        ({"embedder": ""}, "an embedder"),
    ],
    ids=str,
)
def test_run_without_logits_or_vectors_is_refused(
    run: Run, header: dict[str, Any], named: str
) -> None:
    other = run_of(run.queries, **header)
    assert named in refused("unsuitable_run", calibrate, [other], Objective())


def test_runs_of_different_models_are_refused(run: Run) -> None:
    for header, named in (
        ({"embedder": "e@2"}, "one pair of models"),
        ({"reranker": "r@2"}, "one pair of models"),
        ({"profile": Profile(per_channel=20)}, "per_channel of"),
        ({"profile": Profile(evidence=EVIDENCE)}, "weights of the evidence"),
    ):
        other = run_of(run.queries, dataset="other", **header)
        assert named in refused("unsuitable_run", calibrate, [run, other], Objective())
    assert "no run" in refused("unsuitable_run", calibrate, [], Objective())
    assert "-1" in refused("out_of_range", calibrate, [run], Objective(), seed=-1)
    stranger = Profile(name="stranger", embedder="e@2")
    refused("profile_mismatch", calibrate, [run], Objective(), before=stranger)


def test_profile_keeps_the_search_settings_of_the_runs(small: Run) -> None:
    settings = Profile(per_channel=20, evidence=EVIDENCE)
    profile = calibrate([run_of(small.queries, profile=settings)], Objective()).profile
    assert (profile.per_channel, profile.evidence) == (20, EVIDENCE)


# Shortlists.


PLAIN = Profile(
    combine=Combine.Weighted(4.0, 4.0, 1.0),
    pool=6,
    relevance={
        "stage1": {"cosine": 4.0, "bm25": 4.0},
        "stage2": {"cosine": 4.0, "bm25": 4.0, "rerank_score": 1.0},
    },
)
"""A ranking by hand, under which the fits below are quick."""


def folds_of(
    queries: Sequence[StoredQuery], profile: Profile = PLAIN
) -> list[tuple[list[StoredQuery], Profile]]:
    """Return the folds of queries, each with the profile that the others are fitted to."""
    parts = folds(queries, ["c"] * len(queries), count=2, seed=0)
    found = []
    for part, others in zip(parts, reversed(parts), strict=True):
        rest = [queries[place] for place in others]
        weighed, _ = fit_weights(rest, profile, prior=True)
        any_fits, _ = fit_any_fits(rest, weighed, prior=False)
        found.append(([queries[place] for place in part], weighed.replace(any_fits=any_fits)))
    return found


def noisy(count: int, seed: int, *, no_match: int = 0) -> list[StoredQuery]:
    """Return independent queries whose fitting document is often second or third."""
    random = np.random.default_rng(seed)
    queries = []
    for place in range(count + no_match):
        names = [f"d{place}-{number}" for number in range(8)]
        fits = names[: int(place < count)]
        scores = {
            name: (
                float(np.clip(random.normal(0.45 if name in fits else 0.3, 0.1), -1, 1)),
                float(random.gamma(1.5 if name in fits else 0.8, 3.0)),
                float(random.normal(0.5 if name in fits else -1.0, 1.5)),
            )
            for name in names
        }
        queries.append(stored(f"q{seed}-{place}", scores, fits))
    return queries


def with_shortlist(
    queries: Sequence[StoredQuery], coverage: float | None = 0.8, most: int = 5
) -> tuple[Profile, FittedShortlist]:
    """Return a profile whose weights and promise are fitted to queries."""
    parts = folds_of(queries)
    fitted = fit_shortlist(parts, coverage=coverage, most=most, seed=0)
    return parts[0][1].replace(shortlist=fitted.shortlist), fitted


def test_promise_is_kept_on_exchangeable_queries() -> None:
    """The coverage of further queries of the same distribution, as a mean over many fits.

    Each fit has n = 80 queries, and its coverage of further ones varies as a Beta variable with a
    variance below 0.25 / (n + 2). Three times the standard deviation of the mean is the tolerance.
    """
    coverage, fits, further = 0.8, 12, 150
    covered: dict[str, list[float]] = {"never": [], "always": []}
    sizes = []
    modes: tuple[Mode, ...] = ("never", "always")
    for seed in range(fits):
        profile, _ = with_shortlist(noisy(80, seed), None)
        profile = profile.replace(shortlist=profile.shortlist.replace(coverage=coverage))
        for mode in modes:
            queries = noisy(further, seed + 100)
            results = decide_all(queries, profile, mode)
            listed = [
                any(hit.id in query.relevant for hit in result.shortlist)
                for query, result in zip(queries, results, strict=True)
            ]
            covered[mode].append(sum(listed) / further)
            sizes += [len(result.shortlist) for result in results]
    tolerance = 3 * math.sqrt(0.25 / 82 / fits + 0.25 / further / fits)
    for shares in covered.values():
        assert np.mean(shares) >= coverage - tolerance
        # Lists of everything would keep any promise.
        assert np.mean(shares) <= coverage + 0.1
    assert np.mean(sizes) < 4
    assert max(sizes) <= 5


def test_shortlist_is_fitted_with_figures_of_each_mode(fits: Mapping[str, Calibration]) -> None:
    for found in fits.values():
        shortlist = found.profile.shortlist
        assert (shortlist.coverage, shortlist.most) == (0.9, 5)
        assert shortlist.stage1
        assert shortlist.stage2
        assert found.profile.fitted["shortlists"].keys() == set(MODES)
        for of in found.shortlists.values():
            # The weights of each half read the other half, so every query counts.
            assert of.coverage is not None
            assert (of.promised, of.coverage.count) == (0.9, 160)
            assert of.coverage.value >= 0.9
            assert sum(of.lengths.values()) == 160


def test_few_queries_with_a_match_get_an_empty_shortlist() -> None:
    profile, found = with_shortlist(noisy(60, 1, no_match=40), 0.8)
    least = profile.shortlist.least
    assert least is not None
    assert 0 < least < 1
    matched = [query for query in noisy(60, 1) if query.relevant]
    empty = sum(
        any(not decide(query, profile, mode).shortlist for mode in ("never", "always"))
        for query in matched
    )
    assert empty <= 1
    gated = found.held_out["gated"]
    assert gated.shown is not None
    assert gated.shown.count == 40


def test_too_few_labels_for_a_promise_are_refused_with_the_number_needed() -> None:
    for coverage, needed in ((0.9, 18), (0.95, 38), (0.99, 198)):
        message = refused("too_few_labels", with_shortlist, noisy(needed - 1, 0), coverage)
        assert f"needs {needed} queries with a match" in message
        assert f"there are {needed - 1}:" in message
    # Without a promise to keep, as much is promised as the labels allow, and a note says so.
    _, found = with_shortlist(noisy(6, 0), None)
    assert found.shortlist.coverage < 0.9
    assert any(f"is {found.shortlist.coverage:g}, the highest" in n for n in found.notes)


def test_promise_beyond_the_maximum_length_is_refused_with_the_best_possible() -> None:
    # One half alone promises less than 0.5, and both together a little more.
    queries = noisy(150, 3)
    message = refused("promise_impossible", with_shortlist, queries, 0.95, 1)
    _, found = with_shortlist(queries, None, 1)
    possible = found.shortlist.coverage
    assert f"promise {possible:g}, or allow a longer shortlist" in message
    assert 0.5 <= possible < 0.95
    _, found = with_shortlist(queries, possible, 1)
    assert found.shortlist.coverage == possible
    assert {length for of in found.held_out.values() for length in of.lengths} == {1}


def second_in_order(query: StoredQuery) -> StoredQuery:
    """Let the second best candidate of both stages fit, for two of three queries."""
    if int(query.id.partition("-")[2]) % 3 == 0:
        return query
    ranked = decide(query, PLAIN, "always").hits
    return replace(query, relevant={ranked[1].id: 1})


def test_promise_that_the_other_half_contradicts_is_refused() -> None:
    # One half is easy: its first pick always fits. In the other one, it seldom does.
    queries = [
        replace(query, relevant={decide(query, PLAIN, "always").hits[0].id: 1})
        for query in noisy(200, 5)
    ]
    easy, hard = queries[:100], [second_in_order(query) for query in queries[100:]]
    parts = [(easy, PLAIN), (hard, PLAIN)]
    said = refused("promise_broken", fit_shortlist, parts, coverage=0.9, most=5, seed=0)
    assert "of 200 held-out shortlists contain a fitting document" in said
    # Unless it was asked for, there is no shortlist rather than no profile.
    found = fit_shortlist(parts, coverage=None, most=5, seed=0)
    assert not found.shortlist.stage1
    assert any("no shortlist was fitted" in note for note in found.notes)


@pytest.mark.parametrize("coverage", [0.05, 0.4, 0.605])
def test_promise_of_any_coverage_is_checked_at_the_next_whole_percentage(coverage: float) -> None:
    queries = noisy(160, 11)
    percent = max(50, math.ceil(Fraction(str(coverage)) * 100))
    _, found = with_shortlist(queries, coverage)
    _, whole = with_shortlist(queries, percent / 100)
    for mode in MODES:
        assert found.held_out[mode].lengths == whole.held_out[mode].lengths
        assert found.held_out[mode].coverage == whole.held_out[mode].coverage


@pytest.mark.parametrize(("covered", "count", "k"), [(0, 1, 1), (7, 10, 9), (50, 60, 55)])
def test_probability_of_a_coverage_is_the_beta_binomial_one(
    covered: int, count: int, k: int
) -> None:
    def beta(a: int, b: int) -> Fraction:
        return Fraction(math.factorial(a - 1) * math.factorial(b - 1), math.factorial(a + b - 1))

    other = count + 1 - k
    wanted = sum(
        math.comb(count, number) * beta(number + k, count - number + other) / beta(k, other)
        for number in range(covered + 1)
    )
    assert shortlist_promises._at_most(covered, count, k) == pytest.approx(float(wanted))


def test_coverage_is_refused_if_no_fitting_candidate_is_found() -> None:
    lost = [replace(query, relevant={"elsewhere": 1}) for query in noisy(80, 6)]
    fit = partial(fit_shortlist, [(lost[:40], PLAIN), (lost[40:], PLAIN)], most=5, seed=0)
    assert "with a probability of 0 at best" in refused("promise_impossible", fit, coverage=0.8)
    found = fit(coverage=None)
    assert not found.shortlist.stage1
    assert "80 queries with a match promise nothing" in found.notes[0]


@pytest.mark.parametrize(("corpus", "chosen"), [("c0", "one"), ("", "other")])
def test_datasets_over_one_corpus_are_told_apart(corpus: str, chosen: str) -> None:
    queries = synthetic(matched=120, no_match=60)
    one, other = queries[::4], [*queries[1::4], *queries[2::4], *queries[3::4]]
    runs = [
        run_of([*one, other[0]], dataset="one", corpus=corpus),
        run_of(other, dataset="other", corpus=corpus),
    ]
    its = {"one": [*one, other[0]], "other": other}[chosen]
    found = calibrate(runs, Objective(cost_ratio=1.0, covered=(chosen,)))
    coverage = found.shortlists["gated"].coverage
    assert coverage is not None
    assert coverage.count == sum(bool(query.relevant) for query in its)


def test_promise_can_be_for_some_of_the_datasets(small: Run) -> None:
    hard = run_of(noisy(80, 7), dataset="hard", corpus="c1")
    objective = Objective(cost_ratio=1.0, covered=("made-up",))
    found = calibrate([small, hard], objective)
    gated = found.shortlists["gated"]
    assert gated.coverage is not None
    assert gated.coverage.count == 60
    unknown = replace(objective, covered=("elsewhere",))
    message = refused("out_of_range", calibrate, [small, hard], unknown)
    assert message == "no run is of 'elsewhere': name hard, made-up"


# The same data give the same profile.


def test_order_of_runs_and_queries_does_not_matter(small: Run) -> None:
    queries = small.queries
    runs = [
        run_of(queries[0::2], dataset="one", corpus="c1"),
        run_of(queries[1::2], dataset="two", corpus="c2", profile=Profile(name="other")),
    ]
    wanted = calibrate(runs, OBJECTIVES["recall"])
    random = np.random.default_rng(0)
    turned = [
        replace(run, queries=tuple(run.queries[n] for n in random.permutation(len(run.queries))))
        for run in reversed(runs)
    ]
    found = calibrate(turned, OBJECTIVES["recall"])
    assert without_date(found.profile) == without_date(wanted.profile)
    assert replace(found, profile=wanted.profile) == wanted
    assert found.profile.corpora == ["c1", "c2"]
    assert "all queries have equal weight, so the largest dataset counts most" in found.notes
    other = calibrate(runs, OBJECTIVES["recall"], seed=1)
    assert other.profile.answer != wanted.profile.answer


def test_query_in_two_runs_counts_once(small: Run, small_fit: Calibration) -> None:
    both = [small, replace(small, header=replace(small.header, split="train"))]
    twice, once = calibrate(both, OBJECTIVES["cost"]), small_fit
    assert (twice.report, twice.profile.answer) == (once.report, once.profile.answer)
    count = len(small.queries)
    assert f"counted {count} queries once that the runs repeat" in twice.notes


def test_queries_without_candidates_or_logits_are_left_out_with_a_note(
    small: Run, small_fit: Calibration
) -> None:
    silent = stored("silent", {}, ["tool-01"])
    deaf = replace(synthetic(matched=1, no_match=0, seed=9)[0], id="deaf", pairs={})
    partly = replace(deaf, id="partly", pairs={deaf.scored[0].id: PairScore(1.0)})
    found = calibrate([run_of([*small.queries, silent, deaf, partly])], OBJECTIVES["cost"])
    assert "left out 3 queries without a candidate or without logits" in found.notes
    assert found.report == small_fit.report


def test_profile_worse_than_the_previous_profile_has_a_note(
    run: Run, fits: Mapping[str, Calibration]
) -> None:
    before = fits["cost"].profile
    timid = calibrate([run], Objective(cost_ratio=200.0), before=before)
    assert timid.change is not None
    assert timid.change.high < 0
    (note,) = (note for note in timid.notes if "keep the previous profile" in note)
    assert f"{-100 * timid.change.value:.1f} points fewer" in note
    again = calibrate([run], OBJECTIVES["cost"], before=before)
    assert not any("keep the previous profile" in note for note in again.notes)


# The file and the command.


def stored_run(folder: Path, run: Run) -> Path:
    path = folder / "a.run.jsonl"
    write_run(path, run.header, run.queries)
    return path


def command(*arguments: str | Path, home: Path, name: str = "calibrate", **variables: str) -> Done:
    """Run `crossgate calibrate`, or another command, in a process of its own."""
    done = subprocess.run(
        [CROSSGATE, name, *arguments],
        capture_output=True,
        text=True,
        cwd=home,
        env={**environment(home), **variables},
        timeout=100,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def here(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> Done:
    """Run `crossgate calibrate` in this process."""
    code = cli.run(["calibrate", *map(str, arguments)])
    return Done(code, *capsys.readouterr())


def test_profile_file_records_its_calibration(
    tmp_path: Path, run: Run, fits: Mapping[str, Calibration]
) -> None:
    found = calibrate([run], OBJECTIVES["inject"], name="mine", command="crossgate calibrate x")
    path = tmp_path / "profile.json"
    write_profile(path, found.profile)
    assert read_profile(path) == found.profile
    values = json.loads(path.read_text())
    assert (values["name"], values["embedder"], values["reranker"]) == ("mine", "e@1", "r@1")
    assert values["corpora"] == ["c0"]
    fitted = values["fitted"]
    assert fitted["objective"].startswith("at most 10.0% of no-match queries get a pick; skipping")
    assert (fitted["seed"], fitted["command"]) == (0, "crossgate calibrate x")
    (data,) = fitted["data"]
    assert (data["queries"], data["no_match"], data["labels"]) == (240, 80, "l0")
    for figures in (fitted["report"], fitted["before"]):
        assert (figures["matched"], figures["no_match"]) == (160, 80)
        for metric in ("recall@1", "false_positive_rate", "skipped"):
            value, low, high = figures["modes"]["gated"][metric]
            assert low <= value <= high
    # One number per line, for readers and for a diff.
    assert '  "stage1": {\n' in path.read_text()
    told = {**found.profile.fitted, "command": ""}
    again = found.profile.replace(name="calibrated", fitted=told)
    assert without_date(again) == without_date(fits["inject"].profile)


def test_command_fits_a_stored_run(
    tmp_path: Path, run: Run, fits: Mapping[str, Calibration]
) -> None:
    path, output = stored_run(tmp_path, run), tmp_path / "mine.profile.json"
    page = tmp_path / "report.html"
    arguments = (path, "--keep-recall", "0.9", "-o", output, "--html", page)
    shown = command(*arguments, home=tmp_path)
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[2] == "What changes with this profile, measured on 240 held-out queries"
    assert lines[3].startswith("queries decided rightly: +")
    (told,) = (line for line in lines if line.startswith(str(output)))
    assert told.startswith(f"{output}: at least 90.0% of recall@1 is kept")
    # A path is not cut.
    assert all(line == line.rstrip() and (len(line) <= 100 or line == told) for line in lines)
    assert any(line.startswith("shortlist: coverage 0.9 with at most 5; ") for line in lines)
    assert any(line.strip().startswith("recall@1 ") for line in lines)
    assert lines[3] in page.read_text(encoding="utf-8")
    profile = read_profile(output)
    assert profile.name == "mine"
    wanted = fits["recall"]
    assert profile.replace(fitted={}) == wanted.profile.replace(name="mine", fitted={})
    assert profile.fitted["command"].startswith("crossgate calibrate ")
    output.unlink()
    # The profile to compare with is not that of the run.
    before = tmp_path / "before.json"
    write_profile(before, Profile(name="skips all", winner=Winner(agreed=0.0)))
    printed = checked(
        command(*arguments, "--json", "--profile", before, home=tmp_path), "calibration"
    )
    assert printed["profile"]["winner"] == profile.to_dict()["winner"]
    assert printed["report"] == wanted.report.to_dict()
    assert printed["before"] != wanted.before.to_dict()
    assert printed["profile"] == json.loads(output.read_text())


@pytest.mark.parametrize(
    ("combine", "shown"),
    [
        (Combine.Weighted(1.0, 0.5, 2.0), "combine: cosine 1, bm25 0.5, rerank score 2; pool of "),
        (Combine.Rrf(60.0), "combine: reciprocal rank fusion of both stages (k 60); pool of "),
        (
            Combine.ZScore(0.5),
            "combine: standard scores of both stages, rerank score 0.5; pool of ",
        ),
        (Combine.Replace(), "combine: by rerank score alone; pool of "),
    ],
)
def test_report_shows_each_kind_of_combination(combine: Combine, shown: str) -> None:
    # With the threshold alone, a profile keeps its earlier combination.
    profile = Profile(combine=combine)
    figures = calibrating.measured(synthetic(matched=2, no_match=2), profile).figures(0)
    found = Calibration(
        profile=profile, report=figures, before=figures, change=None, shortlists={}, notes=()
    )
    lines = render_calibration(found, "", Path("a.json")).splitlines()
    assert [line for line in lines if line.startswith(shown)]


def test_report_equals_the_stored_text() -> None:
    # The profile is written by hand: a fitted one differs in its last digits between machines.
    queries = synthetic(matched=30, no_match=10)
    promise = [Promise(most=3, least_shares=[0.5] * 50)]
    profile = Profile(
        combine=Combine.Weighted(cosine=2.0, bm25=1.0, rerank_score=0.5),
        winner=Winner(agreed=0.05),
        shortlist=Shortlist(coverage=0.9, most=3, stage1=promise, stage2=promise),
    )
    figures = calibrating.measured(queries, profile).figures(0)
    lists: dict[str, Shortlists] = {
        mode: measure_shortlists(queries, decide_all(queries, profile, mode), most=3, seed=0)
        for mode in MODES
    }
    found = Calibration(
        profile=profile,
        report=figures,
        before=calibrating.measured(queries, Profile()).figures(0),
        change=Interval(-0.05, -0.1, 0.01, 40),
        shortlists=lists,
        notes=("a note for the reader",),
    )
    objective = Objective(keep_recall=0.9, coverage=0.9, max_shortlist=3).describe()
    golden("calibration.txt", render_calibration(found, objective, Path("a.json")) + "\n")
    # The page is made of the same sections; of its parts, only the first is open.
    page = html_sections("a.json", objective, calibration_sections(found))
    assert page.count("<details open>") == 1
    for part in calibration_sections(found):
        assert f"<h2>{part.title}</h2>" in page
    assert "a note for the reader" in page


def test_refused_command_writes_no_file(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    path, output = stored_run(tmp_path, run), tmp_path / "out.json"
    few = ("--max-false-positive-rate", "0.001")
    noise = tmp_path / "noise.run.jsonl"
    write_run(noise, run.header, permuted(run.queries, 0))
    stranger = tmp_path / "stranger.json"
    write_profile(stranger, Profile(embedder="e@2"))
    of_session = tmp_path / "session.run.jsonl"
    write_run(of_session, replace(run.header, profile=read_profile("session")), run.queries)
    for arguments, code, error in (
        ((path, *few, "-o", output), 2, "too_few_negatives"),
        ((noise, "-o", output), 1, "no_gate"),
        ((path, "-o", output, "--max-recall-loss", "2"), 2, "out_of_range"),
        ((path, "-o", output, "--profile", stranger), 2, "profile_mismatch"),
        ((path, "-o", output, "--profile", tmp_path / "absent.json"), 2, "profile_missing"),
        ((path, "-o", output, "--profile", "session"), 2, "unsuitable_run"),
        ((of_session, "-o", output), 2, "unsuitable_run"),
        # Before the data is read.
        (("--from-log", "x", "-o", output, "--profile", "session"), 2, "out_of_range"),
        (("nowhere", "-o", output, "--profile", "session", "--background"), 2, "out_of_range"),
        (("nowhere", "-o", output, "--profile", "session", "--coverage", "0.9"), 2, "out_of_range"),
        (("nowhere", "-o", tmp_path / "absent" / "x.json"), 3, "profile_unwritable"),
        (("nowhere", "-o", tmp_path), 3, "profile_unwritable"),
        (("nowhere", "-o", tmp_path / ("x" * 250)), 3, "profile_unwritable"),
        (("nowhere", "-o", output), 2, "source_missing"),
    ):
        done = here(*arguments, capsys=capsys)
        assert (done.code, done.out, done.error) == (code, "", error)
    for usage in (
        (path,),
        ("-o", output),
        (path, "-o", output, "--seed", "-1"),
        (path, "-o", output, "--cost-ratio", "1.0", "--keep-recall", "0.9"),
    ):
        done = here(*usage, capsys=capsys)
        assert (done.code, done.out) == (2, "")
        assert "usage: crossgate calibrate" in done.err
    assert sorted(os.listdir(tmp_path)) == [
        "a.run.jsonl",
        "noise.run.jsonl",
        "session.run.jsonl",
        "stranger.json",
    ]


def test_a_profile_for_sessions_is_moved_to_the_share_of_prompts_that_need_a_skill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "mine.json"
    done = here(
        "eval/sessions",
        "--limit",
        "60",
        "--profile",
        "session",
        "-o",
        output,
        "--json",
        capsys=capsys,
    )
    assert done.code == 0
    said = json.loads(done.out)
    former, fitted = read_profile("session"), read_profile(output)
    assert (said["prompts"], fitted.session, fitted.reranker) == (60, True, None)
    assert abs(said["any_fits"]["after"] - said["fitting"]) < abs(
        said["any_fits"]["before"] - said["fitting"]
    )
    moved, model = fitted.any_fits.stage1, former.any_fits.stage1
    assert moved is not None
    assert model is not None
    assert moved.intercept != model.intercept
    same = fitted.replace(name="session", any_fits=former.any_fits, fitted=former.fitted)
    assert same == former


@given(st.lists(st.tuples(st.floats(-20, 20), st.booleans()), min_size=1, max_size=40))
def test_the_shift_of_log_odds_has_the_least_penalised_loss(
    prompts: list[tuple[float, bool]],
) -> None:
    odds, fits = (np.array(column, float) for column in zip(*prompts, strict=True))

    def loss(value: float) -> float:
        return float((np.logaddexp(0, odds + value) - fits * (odds + value)).sum() + value**2 / 2)

    found = base_rate.shift(odds, fits)
    assert all(loss(found) <= loss(found + step) + 1e-9 for step in (-1.0, -1e-3, 1e-3, 1.0))


def test_missing_scipy_is_named_in_the_error(tmp_path: Path, run: Run) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # Python finds this module first, and it fails like one that is not installed.
    (hidden / "scipy.py").write_text("raise ModuleNotFoundError(name='scipy')")
    done = command(
        "nowhere", "-o", tmp_path / "out.json", home=tmp_path, PYTHONPATH=before_python_path(hidden)
    )
    assert (done.code, done.out, done.error) == (2, "", "dependency_missing")
    assert "pip install 'crossgate[calibrate]'" in done.err
    assert not (tmp_path / "out.json").exists()


TOPICS = (
    "merge pdf files",
    "translate text between languages",
    "resize and crop pictures",
    "clean messy csv tables",
    "write unit tests for python code",
    "squash git commits",
    "plan a trip by train",
    "draw a bar chart",
    "summarise a meeting",
    "deploy a docker container",
    "query a postgres database",
    "compress video files",
    "check the spelling of a letter",
    "convert currencies",
    "forecast the weather",
    "book a restaurant table",
    "tune a guitar",
    "identify plants from photos",
    "calculate a mortgage",
    "scan a network for open ports",
    "transcribe spoken audio",
    "design a logo",
    "review a legal contract",
    "count calories of a meal",
    "solve a sudoku puzzle",
    "schedule social media posts",
)
OFF_TOPIC = (
    "thanks, that is all",
    "who won the match yesterday",
    "tell me a joke",
    "why is the sky blue",
    "good morning",
    "what is the capital of peru",
    "how old are you",
    "i feel tired today",
    "sing me a song",
    "what does love mean",
    "never mind",
    "how tall is mount everest",
    "who wrote hamlet",
    "are you a robot",
    "name three kinds of cheese",
    "what year did the war end",
    "do fish sleep",
    "that was great",
    "who is the pope",
    "is it friday",
    "how far is the moon",
    "what do cats dream of",
    "how many bones does a shark have",
    "wait a moment",
)


def test_command_measures_a_folder_and_route_uses_the_profile(tmp_path: Path) -> None:
    texts = {f"tool-{n:02}": f"Use this to {topic}." for n, topic in enumerate(TOPICS)}
    asked = [
        (f"q{n}-{turn}", wording.format(topic), f"tool-{n:02}")
        for n, topic in enumerate(TOPICS)
        for turn, wording in enumerate(("please {}", "i want to {} for a friend"))
    ]
    rows: list[dict[str, Any]] = [{"_id": id, "text": text} for id, text, _ in asked]
    nothing = {"no_match": True, "split": "test"}
    rows += [
        {"_id": f"n{n}", "text": text, "metadata": nothing} for n, text in enumerate(OFF_TOPIC)
    ]
    folder = write_beir(
        tmp_path / "set",
        queries=rows,
        qrels={"test": [f"{id}\t{fits}\t1" for id, _, fits in asked]},
        negatives={"test": []},
        texts=texts,
    )
    output, runs = tmp_path / "set.profile.json", tmp_path / "runs"
    done = command(
        folder,
        "-o",
        output,
        "--max-false-positive-rate",
        "0.2",
        "--runs",
        runs,
        "--json",
        home=tmp_path,
    )
    assert (done.code, done.err) == (0, "")
    printed = checked(done, "calibration")
    assert printed["profile"]["embedder"].startswith("crossgate-embedder-minilm-l6@sha256:")
    assert printed["report"]["matched"] == 52
    # The stored run gives the same profile without the models.
    (stored,) = runs.iterdir()
    again = tmp_path / "again.json"
    assert command(stored, "-o", again, "--max-false-positive-rate", "0.2", home=tmp_path).code == 0
    read = [read_profile(path) for path in (output, again)]
    assert read[0].replace(name="", fitted={}) == read[1].replace(name="", fitted={})
    threshold = read[0].answer.threshold
    assert threshold is not None
    # The router uses the profile.
    source = tmp_path / "tools.jsonl"
    source.write_text(
        "".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in texts.items())
    )
    index = tmp_path / "tools.cgx"
    assert command(source, "-o", index, home=tmp_path, name="index").code == 0
    for query, wanted in (("please merge pdf files", ["tool-00"]), ("do fish sleep", [])):
        shown = command(
            "-i", index, query, "--profile", output, "--json", home=tmp_path, name="route"
        )
        assert (shown.code, shown.err) == (0 if wanted else 1, "")
        values = checked(shown, "result")
        assert values["selected"] == wanted
        assert 0 <= values["confidence"] <= 1
        assert (values["any_fits"] >= threshold) == bool(wanted)
        told = command(
            "-i", index, query, "--profile", output, "--explain", home=tmp_path, name="route"
        )
        assert f"confidence  {values['confidence']:.3f}" in told.out
    write_profile(output, read[0].replace(embedder="other@1"))
    refusal = command("-i", index, "merge", "--profile", output, home=tmp_path, name="route")
    assert (refusal.code, refusal.error) == (2, "profile_mismatch")


def test_given_objective_applies_with_everyday_prompts(
    tmp_path: Path,
    small: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Measuring a library takes long, and the text of the objective does not depend on it.
    monkeypatch.setattr(command_module, "run_of", lambda *_, **__: small)
    output = tmp_path / "out.json"
    done = here(
        tmp_path, "--background", "--cost-ratio", "2", "-o", output, "--any-corpus", capsys=capsys
    )
    assert done.code == 0
    assert (
        f"{output}: a wrong pick costs 2 missed ones; skipping costs at most 1.0% of recall@1"
        in done.out.splitlines()
    )


def test_everyday_prompts_set_the_threshold_without_labels(tmp_path: Path) -> None:
    skills(tmp_path / "skills", dict(list(LIBRARY.items())[:2]))
    output = tmp_path / "skills.profile.json"
    done = command(tmp_path / "skills", "--background", "-o", output, "--json", home=tmp_path)
    assert (done.code, done.err) == (0, "")
    printed = checked(done, "calibration")
    # Four of the 303 everyday prompts have no score of stage 2.
    assert (printed["report"]["matched"], printed["report"]["no_match"]) == (0, 299)
    assert any("only the threshold moved" in note for note in printed["notes"])
    # The threshold is never lowered, and no other setting changes.
    default, made = read_profile(DEFAULT_PROFILE), read_profile(output)
    assert made.answer.threshold is not None
    assert default.answer.threshold is not None
    assert made.answer.threshold >= default.answer.threshold
    assert (made.blend, made.combine) == (default.blend, default.combine)
