"""Metrics against ir-measures and against their definitions; intervals, noise and AUC."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossgate._evaluation import metrics, statistics
from crossgate._evaluation.economics import Reliability, ReliabilityBin

Ranking = Sequence[str]
Metric = Callable[[Ranking, Mapping[str, int], int], float]

IDS = [f"d{place}" for place in range(12)]
RANKINGS = st.lists(st.sampled_from(IDS), unique=True, max_size=12)
GRADES = st.dictionaries(st.sampled_from(IDS), st.integers(1, 4), min_size=1)
CUTOFFS = st.integers(1, 15)
EVERY: list[Metric] = [
    metrics.recall,
    metrics.reciprocal_rank,
    metrics.ndcg,
]


@given(st.lists(st.tuples(RANKINGS, GRADES), min_size=1, max_size=4), CUTOFFS)
def test_metrics_equal_ir_measures(queries: list[tuple[list[str], dict[str, int]]], k: int) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    names = {"recall": "R", "reciprocal_rank": "RR", "ndcg": "nDCG"}
    # ir-measures leaves out a query without a ranking; our metrics score it 0.
    ranked = [(ranking, grades) for ranking, grades in queries if ranking]
    qrels = {str(place): grades for place, (_, grades) in enumerate(ranked)}
    run = {
        str(place): {id: 100.0 - rank for rank, id in enumerate(ranking)}
        for place, (ranking, _) in enumerate(ranked)
    }
    wanted = [getattr(ir_measures, short) @ k for short in names.values()]
    found = {
        (score.query_id, str(score.measure)): score.value
        for score in ir_measures.iter_calc(wanted, qrels, run)
    }
    for place, (ranking, grades) in enumerate(ranked):
        for name, measure in zip(names, wanted, strict=True):
            ours = getattr(metrics, name)(ranking, grades, k)
            assert ours == pytest.approx(found[str(place), str(measure)], abs=1e-6), name


@pytest.mark.parametrize("metric", EVERY)
def test_empty_rankings_and_labels_are_defined(metric: Metric) -> None:
    assert metric([], {"a": 1}, 5) == 0.0
    assert metric(["b"], {"a": 1}, 5) == 0.0
    for relevant in ({}, {"a": 0}):
        with pytest.raises(ValueError, match="documents that fit"):
            metric(["a"], relevant, 5)
    with pytest.raises(ValueError, match="at least 1"):
        metric(["a"], {"a": 1}, 0)


def test_interval_covers_the_true_value_at_its_level() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for trial in range(200):
        found = statistics.mean(generator.random(60) < 0.3, seed=trial, rounds=300)
        assert found is not None
        covered += found.low <= 0.3 <= found.high
    assert 0.88 <= covered / 200 <= 0.99


def test_interval_depends_on_the_seed() -> None:
    values = np.random.default_rng(1).random(50)
    same = [statistics.mean(values, seed=seed) for seed in (3, 3, 4)]
    assert same[0] == same[1] != same[2]


def test_columns_share_the_resampled_queries() -> None:
    values = np.random.default_rng(1).random(50)
    first, second, difference = statistics.means(
        np.stack([values, values + 0.25, values - values], axis=1), seed=0
    )
    assert first is not None
    assert second is not None
    assert second.low == pytest.approx(first.low + 0.25)
    assert second.high == pytest.approx(first.high + 0.25)
    assert difference is not None
    assert (difference.low, difference.high) == (0.0, 0.0)


def test_nan_values_are_left_out() -> None:
    nan = math.nan
    mixed, none = statistics.means([[1.0, nan], [nan, nan], [0.0, nan], [1.0, nan]], seed=0)
    assert mixed is not None
    assert mixed.value == pytest.approx(2 / 3)
    assert mixed.count == 3
    assert 0.0 <= mixed.low <= mixed.value <= mixed.high <= 1.0
    assert none is None
    assert statistics.noise_floor([nan, nan], seed=0) is None


def test_shares_of_0_and_1_have_exact_bounds() -> None:
    none = statistics.mean([0.0] * 20, seed=0, shares=True)
    every = statistics.mean([1.0] * 20, seed=0, shares=True)
    assert none is not None
    assert every is not None
    # Clopper and Pearson for 0 of 20, from their tables.
    assert none.low == 0.0
    assert none.high == pytest.approx(0.1684, abs=1e-4)
    assert every.low == pytest.approx(0.8316, abs=1e-4)
    assert every.high == 1.0


def test_interval_of_many_queries_is_computed_in_blocks() -> None:
    values = np.tile([0.0, 1.0], 6_000)
    found = statistics.mean(values, seed=0, rounds=700)  # more than one block of weights
    assert found is not None
    half = 1.96 * 0.5 / math.sqrt(12_000)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half), abs=2e-3)


def test_noise_floor_equals_the_difference_of_two_samples() -> None:
    values = np.tile([0.0, 1.0], 200)
    floor = statistics.noise_floor(values, seed=0)
    assert floor == pytest.approx(1.96 * 0.5 * math.sqrt(2 / 400), rel=0.15)
    assert statistics.noise_floor([1.0] * 30, seed=0) == 0.0


SCORES = st.lists(st.tuples(st.integers(-3, 3).map(float), st.booleans()), min_size=1, max_size=30)


@given(SCORES)
def test_area_is_the_probability_of_a_higher_positive_score(
    pairs: list[tuple[float, bool]],
) -> None:
    positives = [score for score, positive in pairs if positive]
    negatives = [score for score, positive in pairs if not positive]
    found = statistics.area_under_curve(
        [score for score, _ in pairs], [positive for _, positive in pairs]
    )
    if not positives or not negatives:
        assert found is None
        return
    wins = sum(
        (positive > other) + (positive == other) / 2
        for positive in positives
        for other in negatives
    )
    assert found == pytest.approx(wins / (len(positives) * len(negatives)))


def test_area_has_an_interval() -> None:
    generator = np.random.default_rng(5)
    positive = generator.random(120) < 0.5
    scores = generator.normal(size=120) + positive
    found = statistics.area_interval(scores, positive, seed=0)
    assert found is not None
    assert found.value == statistics.area_under_curve(scores, positive)
    # d' of 1: the area is that of the normal distribution at 1 / sqrt(2).
    assert found.low < 0.7602 < found.high
    assert 0.02 < found.high - found.low < 0.35
    assert statistics.area_interval([1.0, 2.0], [True, True], seed=0) is None


def test_calibration_error_weighs_bins_by_count() -> None:
    bins = [
        ReliabilityBin(count=3, stated=0.1, observed=0.3),
        ReliabilityBin(count=1, stated=0.9, observed=0.5),
    ]
    known = Reliability(rank=1, bins=tuple(bins))
    assert known.error == pytest.approx((3 * 0.2 + 1 * 0.4) / 4)
    assert known.count == 4
    assert known.stated == pytest.approx((3 * 0.1 + 0.9) / 4)
    assert known.observed == pytest.approx((3 * 0.3 + 0.5) / 4)
