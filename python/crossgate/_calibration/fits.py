"""Fits the parts of a profile: weights, probabilities, the threshold of an answer, and the gate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

import crossgate._core as _core
from crossgate._core import (
    AnyFits,
    Anytime,
    Blend,
    Combine,
    EvidenceWeights,
    Profile,
    Relevance,
    Scored,
    Stage1AnyFits,
    Stage1Relevance,
    Stage2AnyFits,
    Stage2Relevance,
)
from crossgate._evaluation.stored_runs import STAGES, StoredQuery, decide_all, without_thresholds


def groups(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, loosely: bool = False
) -> list[int]:
    """Return the number of each query's group.

    Two queries are in one group if a chain of documents in their labels, right or wrong ones,
    connects them, or if they have the same text.

    Args:
        queries: The queries.
        corpora: The corpus of each; the same id in two corpora means two documents.
        loosely: Whether only the strongest label of each query counts: the document that fits best
            or, if nothing fits, one that is known not to fit.
    """
    root: dict[tuple[str, ...], tuple[str, ...]] = {}

    def find(node: tuple[str, ...]) -> tuple[str, ...]:
        while root.setdefault(node, node) != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for query, corpus in zip(queries, corpora, strict=True):
        fitting = sorted(query.relevant, key=lambda id: (-query.relevant[id], id))
        labels = [*fitting, *sorted(query.wrong)]
        for document in labels[:1] if loosely else labels:
            root[find((corpus, document))] = find((query.text,))
    names = [find((query.text,)) for query in queries]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def is_chained(queries: Sequence[StoredQuery], corpora: Sequence[str]) -> bool:
    """Return whether labels connect more than half of the queries into one group."""
    numbers = groups(queries, corpora)
    return 2 * max((numbers.count(number) for number in set(numbers)), default=0) > len(numbers)


def split(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, seed: int
) -> tuple[list[int], list[int]]:
    """Return the positions of two halves of the queries, with no group in both.

    The groups are dealt in an order drawn by the seed, each to the half that has fewer queries of
    its kind. Queries with and without a match are counted separately, so that both halves have
    their share of each; a group with both kinds counts as the kind of its larger part. If labels
    connect most queries into one group, it could not be halved, so the groups are made loosely.

    Args:
        queries: The queries; their order matters.
        corpora: The corpus of each, as for `groups`.
        seed: Seed of the order in which groups are dealt.
    """
    members: dict[int, list[int]] = defaultdict(list)
    loosely = is_chained(queries, corpora)
    for position, group in enumerate(groups(queries, corpora, loosely=loosely)):
        members[group].append(position)
    groups_dealt = list(members.values())
    order = np.random.default_rng(seed).permutation(len(groups_dealt))
    halves: tuple[list[int], list[int]] = ([], [])
    counts = {True: [0, 0], False: [0, 0]}
    # The largest first: a large group at the end would unbalance the halves.
    for number in sorted(order, key=lambda number: -len(groups_dealt[number])):
        positions = groups_dealt[number]
        matched = sum(bool(queries[position].relevant) for position in positions)
        kind = 2 * matched >= len(positions)
        half = int(counts[kind][1] < counts[kind][0])
        halves[half].extend(positions)
        counts[True][half] += matched
        counts[False][half] += len(positions) - matched
    return sorted(halves[0]), sorted(halves[1])


Array = NDArray[np.float64]

PIVOTS = (4.0, 8.0, 16.0, 32.0)
"""The pivots to choose from: BM25 scores that are mapped to 0.5.

Above 32 the order hardly changes, and leads of long and short queries become less and less
comparable, although the confidence depends on them.
"""
LEAST_SHARE = 0.1
"""The smallest share of a channel in the blend."""
POOL_LOSS = 0.005
"""How much recall@1 the chosen pool may lose against the largest: every pair costs the same."""
POOLS = (4, 6, 8, 10, 12, 16, 20)

_RIDGE = 1e-4


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one query's candidates, as arrays of one number per candidate.

    Attributes:
        cosine: Cosine similarities.
        bm25: Raw BM25 scores.
        rerank_score: Raw scores of the reranker.
        evidence: What the evidence about each candidate adds to its log-odds.
        right: Whether the candidate fits.
        reweighed: The BM25 scores under other weights of the body, by weight; empty if no candidate
            has a body.
    """

    cosine: Array
    bm25: Array
    rerank_score: Array
    evidence: Array
    right: NDArray[np.bool_]
    reweighed: Mapping[float, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, query: StoredQuery, evidence: EvidenceWeights) -> Scores:
        """Take the scores from a stored query, without candidates that stage 2 did not read."""
        read = sorted(
            (candidate for candidate in query.scored if candidate.id in query.pairs),
            key=lambda candidate: candidate.id,
        )
        return cls(
            cosine=np.array([candidate.cosine or 0.0 for candidate in read]),
            bm25=np.array([candidate.bm25 for candidate in read]),
            rerank_score=np.array([query.pairs[candidate.id].score for candidate in read]),
            evidence=np.array([log_odds(candidate, evidence) for candidate in read]),
            right=np.array([candidate.id in query.relevant for candidate in read], dtype=np.bool_),
            reweighed={
                weight: np.array([scores[candidate.id] for candidate in read])
                for weight, scores in query.reweighed.items()
            },
        )

    def blended(self, blend: Blend) -> Array:
        """Return the stage-1 score of each candidate."""
        total = blend.cosine_weight + blend.bm25_weight
        bounded = self._bounded_bm25(blend)
        return (blend.cosine_weight * self.cosine + blend.bm25_weight * bounded) / total

    def features(self, blend: Blend) -> Array:
        """Return the columns of `Combine`: cosine, bounded BM25, rerank score; (candidates, 3)."""
        return np.stack([self.cosine, self._bounded_bm25(blend), self.rerank_score], axis=1)

    def _bounded_bm25(self, blend: Blend) -> Array:
        bm25 = self.reweighed.get(blend.body_weight, self.bm25)
        return bm25 / (bm25 + blend.pivot)


def fit_blend(rows: Sequence[Scores]) -> Blend:
    """Return the blend under which the right candidates are most likely.

    The pivot and the weight of the body are chosen by likelihood too: the pivot from `PIVOTS`, the
    weight from those that all rows with bodies have. With a larger pivot, BM25 counts more for
    queries of many rare words, which often name the document that they need.

    Args:
        rows: The scores of queries, each with at least one candidate that fits.
    """
    weights = [set(row.reweighed) for row in rows if row.reweighed]
    body_weights = set.intersection(*weights) if weights else {Blend().body_weight}
    blends = []
    for body_weight, pivot in product(sorted(body_weights), PIVOTS):
        blend = Blend(pivot=pivot, body_weight=body_weight)
        loss, (cosine, bm25) = fit_likeliest(
            [row.features(blend)[:, :2] for row in rows],
            [row.right for row in rows],
            offset=[row.evidence for row in rows],
        )
        blends.append((loss, pivot, body_weight, cosine, bm25))
    _, pivot, body_weight, cosine, bm25 = min(blends)
    if not cosine + bm25:  # neither separates right from wrong
        return Blend()
    # Data of one kind must not switch off the other channel entirely.
    share = round(min(max(cosine / (cosine + bm25), LEAST_SHARE), 1 - LEAST_SHARE), 2)
    return Blend(
        cosine_weight=share,
        bm25_weight=round(1 - share, 2),
        pivot=pivot,
        body_weight=body_weight,
        log_odds=rounded(cosine + bm25),
    )


def fit_combine(rows: Sequence[Scores], blend: Blend) -> Combine.Weighted:
    """Return the weights under which the right candidates are most likely.

    Args:
        rows: The scores of queries, each with at least one candidate that fits.
        blend: How BM25 is bounded.
    """
    _, weights = fit_likeliest(
        [row.features(blend) for row in rows],
        [row.right for row in rows],
        offset=[row.evidence for row in rows],
    )
    cosine, bm25, rerank_score = (rounded(weight) for weight in weights)
    return Combine.Weighted(cosine=cosine, bm25=bm25, rerank_score=rerank_score)


def log_odds(candidate: Scored, weights: EvidenceWeights) -> float:
    """Return what the evidence about a candidate adds to its log-odds."""
    pieces = candidate.evidence.to_dict()
    return math.fsum(getattr(weights, name) * value for name, value in pieces.items())


def fit_likeliest(
    features: Sequence[Array],
    right: Sequence[Array | NDArray[np.bool_]],
    *,
    offset: Sequence[Array],
    free: int = 0,
) -> tuple[float, tuple[float, ...]]:
    """Return the smallest loss, and the weights of the features that give it.

    The loss is the softmax cross-entropy over each query's candidates, ListNet's top-one
    probability: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007.

    Args:
        features: One matrix per query, of shape (candidates, features).
        right: Whether each candidate of each query fits; at least one of each query does.
        offset: Added to the score of each candidate of each query, with a weight of 1.
        free: How many weights, the last ones, can be negative.
    """
    width = features[0].shape[1]
    shape = len(right), max(len(row) for row in right)
    values, target = np.zeros((*shape, width)), np.zeros(shape)
    present, given = np.zeros(shape, dtype=np.bool_), np.zeros(shape)
    for position, (row, matrix) in enumerate(zip(right, features, strict=True)):
        size = len(row)
        values[position, :size] = matrix
        target[position, :size] = row / row.sum()
        present[position, :size], given[position, :size] = True, offset[position]
    # The ridge must treat all features alike, whatever their units. A feature with numbers too
    # large to square has an infinite spread and no influence.
    with np.errstate(over="ignore"):
        spread = np.std(values[present], axis=0)
    spread[spread == 0] = 1.0
    values /= spread

    def loss(weights: Array) -> tuple[float, Array]:
        scores = values @ weights + given
        largest = np.max(scores, axis=1, where=present, initial=-np.inf, keepdims=True)
        likely = np.where(present, np.exp(np.where(present, scores - largest, 0.0)), 0.0)
        total = likely.sum(axis=1, keepdims=True)
        value = np.mean(largest + np.log(total)) - (scores * target).sum() / len(right)
        slope = np.einsum("qc,qcf->f", likely / total - target, values) / len(right)
        # Without the ridge, a feature that separates everything would get an infinite weight.
        return float(value + _RIDGE * weights @ weights), slope + 2 * _RIDGE * weights

    # A higher score must never count against a candidate, whatever the noise in the data.
    bounds = [*([(0, None)] * (width - free)), *([(None, None)] * free)]
    fitted = minimize(loss, np.ones(width), jac=True, bounds=bounds)
    return float(fitted.fun), tuple((fitted.x / spread).tolist())


def fit_pool(rows: Sequence[Scores], blend: Blend, combine: Combine.Weighted) -> int:
    """Return the smallest pool whose recall@1 is within `POOL_LOSS` of that of the largest."""
    weights = np.array([combine.cosine, combine.bm25, combine.rerank_score])

    def recall(size: int) -> float:
        scores_kept = []
        for row in rows:
            scores = row.features(blend) @ weights + row.evidence
            scores[np.argsort(-row.blended(blend), kind="stable")[size:]] = -np.inf
            scores_kept.append(scores)
        return _first_right(rows, scores_kept)

    enough = recall(POOLS[-1]) - POOL_LOSS
    return next(size for size in POOLS if recall(size) >= enough)


def rounded(value: float) -> float:
    """Return a fitted number with five significant digits, enough for a reader of the profile."""
    return float(f"{value:.5g}")


def _first_right(rows: Sequence[Scores], scores: Sequence[Array]) -> float:
    return float(
        np.mean(
            [row.right[np.argmax(row_scores)] for row, row_scores in zip(rows, scores, strict=True)]
        )
    )


Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One value per query, in the order of the queries.

    Attributes:
        agreement: Whether cosine, BM25 and blend agree on the first candidate.
        stage1_right: Whether stage 1's first candidate fits.
        stage2_right: Whether stage 2's first candidate fits.
        matched: Whether any document fits.
        chance: The share of the pool that fits: the probability that a random pick is right.
        stage1_margin: The margin of stage 1's first candidate over its second, in blend.
        stage1_second: Whether that second candidate fits.
        stage2_margin: The margin of stage 2's first candidate over its second, in combined score.
        stage2_second: Whether that second candidate fits.
    """

    agreement: Flags
    stage1_right: Flags
    stage2_right: Flags
    matched: Flags
    chance: Array
    stage1_margin: Array
    stage1_second: Flags
    stage2_margin: Array
    stage2_second: Flags

    def __len__(self) -> int:
        return len(self.matched)


def outcomes(queries: Sequence[StoredQuery], ranking: Profile) -> Outcomes:
    """Rank the candidates of each query by a profile's weights, with the router's functions.

    Args:
        queries: Queries with at least one candidate and with the logits of the whole pool.
        ranking: A profile; only its blend, pool, combination and evidence are used.
    """
    rows = [_outcome(query, ranking) for query in queries]
    return Outcomes(*(np.array(column) for column in zip(*rows, strict=True)))


def _outcome(query: StoredQuery, ranking: Profile) -> tuple[bool | float, ...]:
    """Return the values of one query in the order of `Outcomes`."""
    signals = _core.signals(query.scored)
    pool = query.scored[: ranking.pool]
    _, ranks, reading = _core.combine(
        pool, [query.pairs[scores.id].score for scores in pool], ranking
    )
    if signals is None or reading is None:
        raise ValueError(f"query {query.id!r} has no candidates")
    ordered = sorted(zip(ranks, pool, strict=True), key=lambda ranked: ranked[0])
    first, second = ordered[0][1].id, ordered[1][1].id if len(ordered) > 1 else ""
    runner_up = query.scored[1].id if len(query.scored) > 1 else ""
    return (
        signals.agreement,
        query.scored[0].id in query.relevant,
        first in query.relevant,
        bool(query.relevant),
        sum(scores.id in query.relevant for scores in pool) / len(pool),
        signals.margin,
        runner_up in query.relevant,
        reading.score_margin,
        second in query.relevant,
    )


@dataclass(frozen=True, slots=True)
class Stated:
    """The probabilities that a profile states for each query, after one stage.

    Attributes:
        any_fits: That any candidate fits; 1 if the profile has no model of it.
        confidence: That the first candidate fits.
    """

    any_fits: Array
    confidence: Array


def stated(queries: Sequence[StoredQuery], profile: Profile) -> tuple[Stated, Stated]:
    """Return the probabilities after stage 1 and after stage 2, as the router computes them."""
    open_profile = without_thresholds(profile)
    return tuple(  # type: ignore[return-value]
        Stated(
            any_fits=np.array([_known(result.any_fits) for result in results]),
            confidence=np.array([_known(result.confidence) for result in results]),
        )
        for results in (decide_all(queries, open_profile, mode) for mode in STAGES)
    )


def _known(probability: float | None) -> float:
    return 1.0 if probability is None else probability


def fit_logistic(
    signals: Array, labels: Array, ridge: float, *, offset: Array | float = 0.0
) -> tuple[float, list[float]]:
    """Return intercept and non-negative weights of a logistic model.

    No weight is below 0, so that noise in the data can never make a stronger signal count against
    an answer.

    Args:
        signals: The signals, of shape (rows, signals).
        labels: 1 or 0 for each row.
        ridge: Factor of the sum of squared weights of the standardised signals, added to the mean
            loss of a row.
        offset: Added to the log-odds, with a weight of 1, of shape (rows,).
    """
    mean, spread = signals.mean(axis=0), signals.std(axis=0)
    spread[spread == 0] = 1.0
    standard = (signals - mean) / spread

    def loss(weights: Array) -> tuple[float, Array]:
        odds = weights[0] + standard @ weights[1:] + offset
        error = expit(odds) - labels
        value = np.mean(np.logaddexp(0, odds) - labels * odds) + ridge * np.sum(weights[1:] ** 2)
        slope = standard.T @ error / len(labels) + 2 * ridge * weights[1:]
        return float(value), np.concatenate([[error.mean()], slope])

    width = signals.shape[1]
    bounds = [(None, None), *([(0, None)] * width)]
    fitted = minimize(loss, np.zeros(width + 1), jac=True, bounds=bounds).x
    weights = fitted[1:] / spread
    return rounded(float(fitted[0] - weights @ mean)), [
        rounded(float(weight)) for weight in weights
    ]


def least_for_false_positives(empty: Array, level: float) -> float:
    """Return the threshold that bounds the false-positive rate.

    Split conformal prediction: with k = floor(level (n + 1)), only queries above the k-th largest
    of n probabilities are answered. Then a further no-match query is answered with a probability
    of at most k / (n + 1), for any distribution, if it is exchangeable with these n. The bound
    holds on average over samples, not for each sample. Vovk, Gammerman and Shafer,
    "Algorithmic Learning in a Random World", 2005; as a test for outliers: Bates, Candès, Lei,
    Romano and Sesia, "Testing for outliers with conformal p-values", Annals of Statistics 51, 2023.

    Args:
        empty: The highest probability that any stage gives to each no-match query, of shape (n,);
            none of these queries was used to fit the model.
        level: The share of no-match queries that may be answered, in (0, 1).

    Raises:
        ValueError: If there are fewer than `negatives_needed` of them.
    """
    k = math.floor(_decimal(level) * (len(empty) + 1))
    if k < 1:
        raise ValueError(f"{len(empty)} are too few for {level}: {negatives_needed(level)} needed")
    return float(_above(np.sort(empty)[-k:][:1])[0])


def negatives_needed(level: float) -> int:
    """Return how many no-match queries the threshold needs: ceil(1 / level) - 1."""
    return math.ceil(1 / _decimal(level)) - 1


def least_for_recall(
    probability: Array, right: Flags, corpora: Sequence[str], share: float
) -> float:
    """Return the highest threshold that keeps a share of the right picks of every corpus.

    Args:
        probability: The probability of each pick.
        right: Whether it fits.
        corpora: The corpus of each query.
        share: The share of the right picks to keep, in (0, 1).
    """
    names = np.array(corpora)
    of_right = [probability[right & (names == name)] for name in sorted(set(corpora))]
    thresholds = [
        np.sort(values)[math.floor((1 - _decimal(share)) * len(values))]
        for values in of_right
        if len(values)
    ]
    return math.floor(float(min(thresholds)) * 1e6) / 1e6


def least_for_cost(probability: Array, right: Flags, ratio: float) -> float:
    """Return the threshold with the lowest cost on these queries.

    Args:
        probability: The probability of each pick.
        right: Whether it fits.
        ratio: The cost of a wrong pick; a missed right pick costs 1.
    """
    thresholds = np.concatenate([[0.0], _above(np.unique(probability))])
    picked = (~right).sum() - np.searchsorted(np.sort(probability[~right]), thresholds)
    missed = np.searchsorted(np.sort(probability[right]), thresholds)
    return float(thresholds[np.argmin(ratio * picked + missed)])


def _decimal(level: float) -> Fraction:
    """Return a share as the decimal fraction that was written: 0.1 is exactly a tenth."""
    return Fraction(str(float(level)))


def _above(probability: Array) -> Array:
    """Return the next larger number with six digits, since a threshold passes its own value."""
    above = (np.floor(probability * 1e6) + 1) / 1e6
    return np.where(above > probability, above, (np.floor(probability * 1e6) + 2) / 1e6)


RIDGE = 1e-3


def fit_relevance(queries: Sequence[StoredQuery], ranking: Profile) -> Relevance:
    """Return the weights under which the fitting candidates have the largest shares.

    Args:
        queries: Queries with the rerank scores of the pool; only those count for which stage 1
            finds a fitting document.
        ranking: A profile; only its blend, pool and evidence are used.
    """
    rows = [_features(query, ranking) for query in queries]
    rows = [row for row in rows if row.right.any()]
    right, offset = [row.right for row in rows], [row.evidence for row in rows]
    features = [row.features[:, :2] for row in rows]
    _, (cosine, bm25) = fit_likeliest(features, right, offset=offset)
    stage1 = Stage1Relevance(cosine=rounded(cosine), bm25=rounded(bm25))
    # An unread candidate can be better or worse than one with a rerank score of 0.
    features = [row.features for row in rows]
    _, weights = fit_likeliest(features, right, offset=offset, free=1)
    cosine, bm25, rerank_score, unread = map(rounded, weights)
    stage2 = Stage2Relevance(cosine=cosine, bm25=bm25, rerank_score=rerank_score, unread=unread)
    return Relevance(stage1=stage1, stage2=stage2)


class _Rows(NamedTuple):
    """One row for each candidate of a query.

    Attributes:
        features: What the weights of stage 2 are for, of shape (candidates, 4).
        right: 1 for a candidate that fits, else 0.
        evidence: What the evidence about the candidate adds to its log-weight.
    """

    features: Array
    right: Array
    evidence: Array


def _features(query: StoredQuery, ranking: Profile) -> _Rows:
    pivot = ranking.blend.pivot
    rows = []
    for position, candidate in enumerate(query.scored):
        read = position < ranking.pool
        rows.append(
            (
                candidate.cosine or 0.0,
                candidate.bm25 / (candidate.bm25 + pivot),
                query.pairs[candidate.id].score if read else 0.0,
                float(not read),
            )
        )
    return _Rows(
        features=np.array(rows),
        right=np.array([float(candidate.id in query.relevant) for candidate in query.scored]),
        evidence=np.array([log_odds(candidate, ranking.evidence) for candidate in query.scored]),
    )


def fit_any_fits(queries: Sequence[StoredQuery], profile: Profile) -> AnyFits:
    """Fit the models of both stages, or none without a query that nothing fits.

    Args:
        queries: Queries with at least one candidate and with the rerank scores of the pool.
        profile: The profile, with its weights of relevance.
    """
    if all(query.relevant for query in queries):
        return AnyFits()
    rows = np.array([_signals(query, profile) for query in queries])
    fits = np.array(
        [float(any(scored.id in query.relevant for scored in query.scored)) for query in queries]
    )
    doubt = np.array(
        [0.0 if query.need is None else _core.need_log_odds(query.need) for query in queries]
    )
    # Evidence is in log-odds that a candidate fits, so its weight is 1 and not part of the fit.
    first, second = (
        fit_logistic(rows[:, columns], fits, RIDGE, offset=doubt + rows[:, evidence])
        for columns, evidence in (([0, 4], 1), ([2, 4, 5], 3))
    )
    (log_mean, cosine), (log_mean2, cosine2, rerank_score) = first[1], second[1]
    return AnyFits(
        stage1=Stage1AnyFits(intercept=first[0], log_mean=log_mean, cosine=cosine),
        stage2=Stage2AnyFits(
            intercept=second[0], log_mean=log_mean2, cosine=cosine2, rerank_score=rerank_score
        ),
    )


def _signals(query: StoredQuery, profile: Profile) -> tuple[float, ...]:
    """Return the signals of `any_fits`.

    For each stage the log-mean without evidence and what evidence adds to it, then the best cosine,
    and the rerank score of the first candidate.
    """
    pool = query.scored[: profile.pool]
    scores = {candidate.id: query.pairs[candidate.id].score for candidate in pool}
    signals = _core.signals(query.scored)
    _, _, reading = _core.combine(pool, list(scores.values()), profile)
    documents = query.documents or len(query.scored)
    means = (_core.log_mean(query.scored, read, documents, profile) for read in (None, scores))
    first, second = ((0.0, 0.0) if known is None else known for known in means)
    if signals is None or reading is None:
        raise ValueError(f"query {query.id!r} has no candidates")
    return *first, *second, signals.cosine or 0.0, reading.rerank_score


STEPS = 24
"""How many leads are tried, for agreement and disagreement each."""
CAUTION = 0.5
"""Share of the allowed loss that a fit uses: a choice looks better on the data it was made on."""


@dataclass(frozen=True, slots=True)
class Skipping:
    """When stage 2 is not asked.

    Attributes:
        rerank_threshold: Below this probability after stage 1 that any candidate fits, nothing is
            relevant; None for no limit.
        agreed: The least lead of a winner on which cosine and BM25 agree; None for never.
        disagreed: The same if they disagree.
    """

    rerank_threshold: float | None
    agreed: float | None
    disagreed: float | None


def fit_skipping(
    seen: Outcomes,
    any_fits: Array,
    answered: tuple[Flags, Flags],
    threshold: float,
    corpora: Sequence[str],
    loss: float,
) -> Skipping:
    """Return the thresholds that skip the most queries within a loss of recall@1 in every corpus.

    A quarter of the loss that may be used goes to `rerank_threshold`, the rest to the leads. What
    the leads lose is counted both with and without the threshold, since many users ask for the
    best hit however weak: queries of weak answers are where stage 2 gains most.

    Args:
        seen: The outcomes of the queries.
        any_fits: The probability after stage 1 that any candidate fits.
        answered: Whether the answer of each stage reaches the thresholds.
        threshold: The least probability that any candidate fits of an answer.
        corpora: The corpus of each query.
        loss: The recall@1 that may be lost compared with reranking everything.
    """
    names = sorted(set(corpora))
    member = np.array([[name == corpus for corpus in corpora] for name in names])
    allowed = CAUTION * loss * (member & seen.matched).sum(axis=1)
    gained1 = seen.stage1_right & answered[0]
    gained2 = seen.stage2_right & answered[1]
    least = min(
        threshold,
        *(
            _least(any_fits[gained2 & of_corpus], int(most / 4))
            for of_corpus, most in zip(member, allowed, strict=True)
        ),
    )
    least = math.floor(least * 1e6) / 1e6
    below = any_fits < least
    agrees = seen.agreement
    lead = seen.stage1_margin
    clear = ~below & answered[0]
    worse = gained2.astype(int) - gained1
    worse_in_order = seen.stage2_right.astype(int) - seen.stage1_right
    spent = (member & below & gained2).sum(axis=1)
    best: tuple[int, int, float | None, float | None] = (0, 0, None, None)
    for agreed, disagreed in product(_leads(lead[agrees]), _leads(lead[~agrees])):
        # A winner on which the channels disagree never needs a smaller lead.
        if _or_never(disagreed) < _or_never(agreed):
            continue
        leads = (lead > 0) & (lead >= np.where(agrees, _or_never(agreed), _or_never(disagreed)))
        skipped = clear & leads
        lost = member @ (worse * skipped)
        lost_in_order = member @ (worse_in_order * leads)
        if np.all(lost + spent <= allowed) and np.all(lost_in_order <= allowed):
            gain = (int(skipped.sum()), -int(lost.sum()), agreed, disagreed)
            best = max(best, gain, key=lambda tried: tried[:2])
    return Skipping(rerank_threshold=least or None, agreed=best[2], disagreed=best[3])


def _least(of_right: Array, lost: int) -> float:
    """Return the highest threshold with at most `lost` of these probabilities below it."""
    return float(np.sort(of_right)[lost]) if lost < len(of_right) else 1.0


def _leads(leads: Array) -> list[float | None]:
    """Return the leads to try, with None for no winner."""
    if not len(leads):
        return [None]
    tried = np.quantile(leads, np.linspace(0, 1, STEPS))
    return [None, *sorted({rounded(float(lead)) for lead in tried})]


def _or_never(lead: float | None) -> float:
    return np.inf if lead is None else lead


STOP = 0.02
"""Reading stops below this probability that an unread candidate becomes the first pick."""

LEAST_PAIRS = 100
"""Fewest pairs for a fit."""


def fit_anytime(rows: Sequence[Scores]) -> Anytime | None:
    """Fit a linear model of rerank scores, or return None for fewer than 100 pairs.

    The weights are those of least squares. The share of the residuals' variance that belongs to a
    query is the mean product of two residuals of one query, divided by the variance.

    Args:
        rows: The scores of queries, with or without a match.
    """
    rows = [row for row in rows if len(row.rerank_score)]
    if sum(len(row.rerank_score) for row in rows) < LEAST_PAIRS:
        return None
    features = [
        np.stack([np.ones_like(row.cosine), row.cosine, np.log1p(row.bm25)], axis=1) for row in rows
    ]
    scores = np.concatenate([row.rerank_score for row in rows])
    weights, *_ = np.linalg.lstsq(np.concatenate(features), scores, rcond=None)
    residuals = [row.rerank_score - x @ weights for row, x in zip(rows, features, strict=True)]
    variance = float(np.mean(np.concatenate(residuals) ** 2))
    if variance <= 0:
        return None
    products = sum(float(r.sum() ** 2 - (r**2).sum()) for r in residuals)
    number = sum(len(r) * (len(r) - 1) for r in residuals)
    shared = products / number / variance if number else 0.0
    intercept, cosine, bm25 = (round(float(weight), 5) for weight in weights)
    return Anytime(
        intercept=intercept,
        cosine=cosine,
        bm25=bm25,
        deviation=round(variance**0.5, 5),
        shared=round(min(max(shared, 0.0), 1.0), 5),
        stop=STOP,
    )
