"""Fits the parts of a profile: weights, probabilities, the threshold of an answer, and the gate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

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
    Winner,
)
from crossgate._evaluation.stored_runs import (
    STAGES,
    StoredQuery,
    decide_all,
    reblended,
    without_thresholds,
)


def groups(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, loosely: bool = False
) -> list[int]:
    """Return the number of each query's group.

    Two queries are in one group if a chain of documents in their labels, right or wrong ones,
    connects them, or if they have the same text. The same id in two corpora means two documents.
    `loosely`, only the strongest label of each query counts: the document that fits best or, if
    nothing fits, one that is known not to fit.
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


def folds(
    queries: Sequence[StoredQuery], corpora: Sequence[str], *, count: int, seed: int
) -> list[list[int]]:
    """Return the positions of the queries in at most `count` folds, with no group in two of them.

    The groups are dealt in an order drawn by the seed, each to the fold that has the fewest queries
    of its kind. Queries with and without a match are counted separately, so that each fold has its
    share of both; a group with both kinds counts as the kind of its larger part. If labels connect
    most queries into one group, it could not be divided, so the groups are made loosely. A fold
    without a query is left out.
    """
    members: dict[int, list[int]] = defaultdict(list)
    loosely = is_chained(queries, corpora)
    for position, group in enumerate(groups(queries, corpora, loosely=loosely)):
        members[group].append(position)
    groups_dealt = list(members.values())
    order = np.random.default_rng(seed).permutation(len(groups_dealt))
    dealt: list[list[int]] = [[] for _ in range(count)]
    counts = {True: [0] * count, False: [0] * count}
    # The largest first: a large group at the end would unbalance the folds.
    for number in sorted(order, key=lambda number: -len(groups_dealt[number])):
        positions = groups_dealt[number]
        matched = sum(bool(queries[position].relevant) for position in positions)
        kind = 2 * matched >= len(positions)
        fold = counts[kind].index(min(counts[kind]))
        dealt[fold].extend(positions)
        counts[True][fold] += matched
        counts[False][fold] += len(positions) - matched
    return [sorted(fold) for fold in dealt if fold]


Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

LEAST_SHARE = 0.1
"""The smallest share of a channel in the blend."""
POOL_LOSS = 0.005
"""How much recall@1 the chosen pool may lose against the largest: every pair costs the same."""
POOLS = (4, 6, 8, 10, 12, 16, 20)
RIDGE = 1e-3
"""Of a logistic model without a prior, per row."""
_RIDGE = 1e-4
"""Of a listwise model without a prior, per query: else a feature that separates everything would
get an infinite weight."""

# Standard deviations of the prior, chosen before any fit was measured. They say how far libraries
# of one pair of models lie apart.
LEVEL = 1.0
"""Of the level of a probability, in log-odds: the shares of queries with a match differ a lot."""
SLOPE = 0.3
"""Of the factor by which all weights of a model are multiplied, less 1."""
WEIGHT = 0.2
"""Of a single weight, for its signal's standard deviation over the queries."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one query's candidates, as arrays of one number per candidate.

    Attributes:
        cosine: Cosine similarities.
        bm25: Raw BM25 scores.
        rerank_score: Raw scores of the reranker.
        evidence: What the evidence about each candidate adds to its log-odds.
        right: Whether the candidate fits.
    """

    cosine: Array
    bm25: Array
    rerank_score: Array
    evidence: Array
    right: NDArray[np.bool_]

    @classmethod
    def of(cls, query: StoredQuery, evidence: EvidenceWeights, pool: int | None = None) -> Scores:
        """Take the scores from a stored query.

        With a pool all candidates count, those beyond it with a rerank score of 0; without one only
        those that stage 2 read, in the order of their ids.
        """
        candidates: Sequence[Scored] = query.scored
        if pool is None:
            read = (candidate for candidate in candidates if candidate.id in query.pairs)
            candidates = sorted(read, key=lambda candidate: candidate.id)
        scores = {each.id: query.pairs[each.id].score for each in candidates[:pool]}
        return cls(
            cosine=np.array([candidate.cosine or 0.0 for candidate in candidates]),
            bm25=np.array([candidate.bm25 for candidate in candidates]),
            rerank_score=np.array([scores.get(candidate.id, 0.0) for candidate in candidates]),
            evidence=np.array([log_odds(candidate, evidence) for candidate in candidates]),
            right=np.array([each.id in query.relevant for each in candidates], dtype=np.bool_),
        )

    def features(self, blend: Blend) -> Array:
        """Return the columns of `Combine`: cosine, bounded BM25, rerank score; (candidates, 3)."""
        bounded = self.bm25 / (self.bm25 + blend.pivot)
        return np.stack([self.cosine, bounded, self.rerank_score], axis=1)


def log_odds(candidate: Scored, weights: EvidenceWeights) -> float:
    """Return what the evidence about a candidate adds to its log-odds."""
    pieces = candidate.evidence.to_dict()
    return math.fsum(getattr(weights, name) * value for name, value in pieces.items())


class Known(NamedTuple):
    """The shares of a model that the data decide and not the prior, each from 0 to 1.

    Attributes:
        level: Of the intercept; 0 for a listwise model, which has none.
        slope: Of the factor that all weights have in common.
        weights: Of what tells one weight from another.
    """

    level: float
    slope: float
    weights: float


class Fitted(NamedTuple):
    """The most probable weights.

    Attributes:
        weights: One for each feature; of a logistic model, the intercept comes first.
        loss: The mean loss, with the penalty of the prior.
        known: How far the data decide them; None without a prior.
        moved: How far the level moved from the prior, in log-odds at the mean of the signals,
            with the ends of a 95 % interval; 0 of a listwise model, which has no level.
    """

    weights: tuple[float, ...]
    loss: float
    known: Known | None
    moved: tuple[float, float, float] = (0.0, 0.0, 0.0)


def fit_likeliest(
    features: Sequence[Array],
    right: Sequence[Array | NDArray[np.bool_]],
    *,
    offset: Sequence[Array],
    free: int = 0,
    prior: Sequence[float] | None = None,
) -> Fitted:
    """Return the most probable weights of a listwise model, given labels and a prior.

    The loss is the softmax cross-entropy over each query's candidates, ListNet's top-one
    probability: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007.

    Args:
        features: One matrix per query, of shape (candidates, features).
        right: Whether each candidate of each query fits; at least one of each query does.
        offset: Added to the score of each candidate of each query, with a weight of 1.
        free: How many weights, the last ones, can be negative.
        prior: The weights to start from, of which `SLOPE` and `WEIGHT` are the uncertainty; None
            for a small ridge alone.
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
    # The prior must treat all features alike, whatever their units. A feature with numbers too
    # large to square has an infinite spread and no influence.
    with np.errstate(over="ignore"):
        spread = np.std(values[present], axis=0)
    spread[spread == 0] = 1.0
    values /= spread
    mean, precision = _uncertainty(prior, spread, _RIDGE, len(right))

    def loss(weights: Array) -> tuple[float, Array]:
        scores = values @ weights + given
        largest = np.max(scores, axis=1, where=present, initial=-np.inf, keepdims=True)
        likely = np.where(present, np.exp(np.where(present, scores - largest, 0.0)), 0.0)
        total = likely.sum(axis=1, keepdims=True)
        value = np.mean(largest + np.log(total)) - (scores * target).sum() / len(right)
        slope = np.einsum("qc,qcf->f", likely / total - target, values) / len(right)
        pull = precision @ (weights - mean)
        return float(value + (weights - mean) @ pull / 2), slope + pull

    # A higher score must never count against a candidate, whatever the noise in the data.
    bounds = [*([(0, None)] * (width - free)), *([(None, None)] * free)]
    start = np.ones(width) if prior is None else mean
    fitted = minimize(loss, start, jac=True, bounds=bounds)
    weights = tuple((fitted.x / spread).tolist())
    scores = np.where(present, values @ fitted.x + given, -np.inf)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    centred = values - np.einsum("qc,qcf->qf", likely, values)[:, None]
    data = np.einsum("qc,qcf,qcg->fg", likely, centred, centred) / len(right)
    known = None if prior is None else Known(0.0, *_decided(data, mean, precision))
    return Fitted(weights, float(fitted.fun), known)


def _uncertainty(
    prior: Sequence[float] | None, spread: Array, ridge: float, rows: int
) -> tuple[Array, Array]:
    """Return mean and precision of standardised weights, the precision per row of the data.

    The covariance of the prior is that of a common factor and of independent deviations.
    """
    if prior is None:
        return np.zeros(len(spread)), 2 * ridge * np.eye(len(spread))
    mean = np.array(prior) * spread
    covariance = WEIGHT**2 * np.eye(len(mean)) + SLOPE**2 * np.outer(mean, mean)
    return mean, np.linalg.inv(covariance) / rows


def _decided(data: Array, mean: Array, precision: Array) -> tuple[float, float]:
    """Return the shares of the slope and of the other directions that the data decide.

    The curvature of the data is compared with that of the prior, as in the number of
    well-determined parameters of MacKay, "Bayesian Interpolation", 1992.
    """
    along = mean[None] / max(float(np.linalg.norm(mean)), 1e-12)
    across = np.linalg.svd(along)[2][1:]

    def share(directions: Array) -> float:
        of_data, of_prior = (
            float(np.einsum("df,fg,dg->", directions, each, directions))
            for each in (data, precision)
        )
        return of_data / (of_data + of_prior) if of_data > 0 else 0.0

    return share(along), share(across)


def fit_pool(rows: Sequence[Scores], profile: Profile) -> int:
    """Return the smallest pool whose recall@1 is within `POOL_LOSS` of that of the largest.

    Each query has a candidate that fits, and the profile a blend and weights of a combination.
    """
    combine, blend = profile.combine, profile.blend
    weights = np.array([getattr(combine, name) for name in ("cosine", "bm25", "rerank_score")])
    shares = np.array([blend.cosine_weight, blend.bm25_weight])

    def recall(size: int) -> float:
        right = 0
        for row in rows:
            features = row.features(blend)
            scores = features @ weights + row.evidence
            read = features[:, :2] @ shares + row.evidence / blend.log_odds
            scores[np.argsort(-read, kind="stable")[size:]] = -np.inf
            right += bool(row.right[np.argmax(scores)])
        return right / len(rows)

    enough = recall(POOLS[-1]) - POOL_LOSS
    return next(size for size in POOLS if recall(size) >= enough)


def rounded(value: float) -> float:
    """Return a fitted number with five significant digits, enough for a reader of the profile."""
    return float(f"{value:.5g}")


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

    The queries have a candidate, and logits of the whole pool. Only the profile's blend, pool,
    combination and evidence are used.
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
    signals: Array,
    labels: Array,
    *,
    offset: Array | float = 0.0,
    prior: Sequence[float] | None = None,
) -> Fitted:
    """Return intercept and non-negative weights of a logistic model, given labels and a prior.

    No weight is below 0, so that noise in the data can never make a stronger signal count against
    an answer.

    Args:
        signals: The signals, of shape (rows, signals).
        labels: 1 or 0 for each row.
        offset: Added to the log-odds, with a weight of 1, of shape (rows,).
        prior: The intercept and the weights to start from, of which `LEVEL`, `SLOPE` and `WEIGHT`
            are the uncertainty; None for a small ridge alone.
    """
    centre, spread = signals.mean(axis=0), signals.std(axis=0)
    spread[spread == 0] = 1.0
    standard = np.column_stack([np.ones(len(signals)), (signals - centre) / spread])
    width = signals.shape[1]
    mean, precision = np.zeros(width + 1), np.zeros((width + 1, width + 1))
    weights = None if prior is None else prior[1:]
    mean[1:], precision[1:, 1:] = _uncertainty(weights, spread, RIDGE, len(labels))
    if prior is not None:
        # The level at the mean of the signals is what the prior knows, whatever their weights.
        mean[0] = prior[0] + np.array(prior[1:]) @ centre
        precision[0, 0] = 1 / LEVEL**2 / len(labels)

    def loss(weights: Array) -> tuple[float, Array]:
        odds = standard @ weights + offset
        pull = precision @ (weights - mean)
        value = np.mean(np.logaddexp(0, odds) - labels * odds) + (weights - mean) @ pull / 2
        return float(value), standard.T @ (expit(odds) - labels) / len(labels) + pull

    bounds = [(None, None), *([(0, None)] * width)]
    fitted = minimize(loss, mean, jac=True, bounds=bounds)
    weights_found = fitted.x[1:] / spread
    likely = expit(standard @ fitted.x + offset)
    data = (standard.T * (likely * (1 - likely))) @ standard / len(labels)
    known = None
    if prior is not None:
        level = float(data[0, 0] / (data[0, 0] + precision[0, 0]))
        known = Known(level, *_decided(data[1:, 1:], mean[1:], precision[1:, 1:]))
    found = (fitted.x[0] - weights_found @ centre, *weights_found)
    moved = float(fitted.x[0] - mean[0])
    error = 1.96 * float(np.linalg.inv(len(labels) * (data + precision))[0, 0]) ** 0.5
    return Fitted(
        weights=tuple(rounded(float(weight)) for weight in found),
        loss=float(fitted.fun),
        known=known,
        moved=(moved, moved - error, moved + error),
    )


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
        level: The share of no-match queries that may be answered, in (0, 1). Fewer of them than
            `negatives_needed` give the threshold that answers none; without any, it is 1.
    """
    if not len(empty):
        return 1.0
    k = max(1, math.floor(_decimal(level) * (len(empty) + 1)))
    return float(_above(np.sort(empty)[-k:][:1])[0])


def negatives_needed(level: float) -> int:
    """Return how many no-match queries the threshold needs: ceil(1 / level) - 1."""
    return math.ceil(1 / _decimal(level)) - 1


def least_for_recall(
    probability: Array, right: Flags, corpora: Sequence[str], share: float
) -> float:
    """Return the highest threshold that keeps a share of the right picks of every corpus.

    The share is in (0, 1); without a right pick, the threshold is 0.
    """
    names = np.array(corpora)
    of_right = [probability[right & (names == name)] for name in sorted(set(corpora))]
    thresholds = [
        np.sort(values)[math.floor((1 - _decimal(share)) * len(values))]
        for values in of_right
        if len(values)
    ]
    return math.floor(float(min(thresholds, default=0.0)) * 1e6) / 1e6


def _decimal(level: float) -> Fraction:
    """Return a share as the decimal fraction that was written: 0.1 is exactly a tenth."""
    return Fraction(str(float(level)))


def _above(probability: Array) -> Array:
    """Return the next larger number with six digits, since a threshold passes its own value."""
    above = (np.floor(probability * 1e6) + 1) / 1e6
    return np.where(above > probability, above, (np.floor(probability * 1e6) + 2) / 1e6)


def fit_weights(
    queries: Sequence[StoredQuery], before: Profile, *, prior: bool
) -> tuple[Profile, Known | None]:
    """Fit how the candidates of a query are ordered and weighed, after each stage.

    Only queries count for which stage 1 finds a fitting document. They are ordered by the profile,
    and have the rerank scores of its pool. With `prior`, the weights of the profile to start from
    are the prior; without it, its pool is chosen, too.
    """
    if not prior:
        before = _fit_pool(queries, before)
        queries = [reblended(query, before) for query in queries]
    rows = [Scores.of(query, before.evidence, before.pool) for query in queries]
    rows = [row for row in rows if row.right.any()]
    if not rows:
        return before, None
    right, offset = [row.right for row in rows], [row.evidence for row in rows]
    stage1, stage2 = before.relevance.stage1, before.relevance.stage2
    old1 = old2 = None
    if prior and stage1 is not None and stage2 is not None:
        old1 = stage1.cosine, stage1.bm25
        old2 = stage2.cosine, stage2.bm25, stage2.rerank_score, stage2.unread
    features = [row.features(before.blend) for row in rows]
    first = fit_likeliest([each[:, :2] for each in features], right, offset=offset, prior=old1)
    # An unread candidate can be better or worse than one with a rerank score of 0.
    features = [np.column_stack([each, np.arange(len(each)) >= before.pool]) for each in features]
    second = fit_likeliest(features, right, offset=offset, free=1, prior=old2)
    weights1, weights2 = map(rounded, first.weights), map(rounded, second.weights)
    relevance = Relevance(
        stage1=Stage1Relevance(**dict(zip(("cosine", "bm25"), weights1, strict=True))),
        stage2=Stage2Relevance(
            **dict(zip(("cosine", "bm25", "rerank_score", "unread"), weights2, strict=True))
        ),
        threshold=before.relevance.threshold,
    )
    # The order follows what the labels changed.
    blend, combine = before.blend, before.combine
    unit = blend.log_odds
    of_blend = np.array([unit * blend.cosine_weight, unit * blend.bm25_weight])
    of_combine = np.array(second.weights[:3])
    if old1 is None or old2 is None:
        of_blend = np.array(first.weights)
    else:
        of_blend = np.maximum(of_blend + np.array(first.weights) - old1, 0)
        if isinstance(combine, Combine.Weighted):
            known = np.array([combine.cosine, combine.bm25, combine.rerank_score])
            of_combine = np.maximum(known + np.array(second.weights[:3]) - old2[:3], 0)
    profile = before.replace(
        blend=_blend(blend, of_blend),
        combine=Combine.Weighted(*(rounded(float(weight)) for weight in of_combine)),
        relevance=relevance,
    )
    return profile, second.known


def _blend(blend: Blend, weights: Array) -> Blend:
    """Return a blend in which two weights have their shares, unless neither is above 0."""
    total = float(weights.sum())
    if not total:
        return Blend(pivot=blend.pivot, body_weight=blend.body_weight)
    # Data of one kind must not switch off the other channel entirely.
    share = round(min(max(float(weights[0]) / total, LEAST_SHARE), 1 - LEAST_SHARE), 2)
    return blend.replace(
        cosine_weight=share, bm25_weight=round(1 - share, 2), log_odds=rounded(total)
    )


def _fit_pool(queries: Sequence[StoredQuery], before: Profile) -> Profile:
    """Return a profile with the pool that queries need, in the order that they make likeliest."""
    rows = [Scores.of(query, before.evidence) for query in queries]
    rows = [row for row in rows if row.right.any()]
    if not rows:
        return before
    right, offset = [row.right for row in rows], [row.evidence for row in rows]
    features = [row.features(before.blend) for row in rows]
    first = fit_likeliest([each[:, :2] for each in features], right, offset=offset)
    second = fit_likeliest(features, right, offset=offset)
    ranking = before.replace(
        blend=_blend(before.blend, np.array(first.weights)),
        combine=Combine.Weighted(*second.weights),
    )
    return ranking.replace(pool=fit_pool(rows, ranking), anytime=fit_anytime(rows))


def fit_any_fits(
    queries: Sequence[StoredQuery], profile: Profile, *, prior: bool
) -> tuple[AnyFits, Fitted | None]:
    """Fit the models of both stages of the probability that any candidate fits.

    The queries have a candidate, and the rerank scores of the pool. With `prior`, the models of the
    profile are the prior.

    Returns:
        The models, and the fit of that of stage 2. If the queries do not show both
        outcomes, the models are those of the profile with a prior, and none without one.
    """
    before = profile.any_fits if prior else AnyFits()
    if not 0 < sum(bool(query.relevant) for query in queries) < len(queries):
        return before, None
    fitted = None
    rows = np.array([_signals(query, profile) for query in queries])
    fits = np.array(
        [float(any(scored.id in query.relevant for scored in query.scored)) for query in queries]
    )
    # Evidence is in log-odds that a candidate fits, so its weight is 1 and not part of the fit.
    models: list[dict[str, float | None]] = []
    for model, columns, evidence in ((before.stage1, [0, 4], 1), (before.stage2, [2, 4, 5], 3)):
        names = ("intercept", "log_mean", "cosine", "rerank_score")[: len(columns) + 1]
        need = None if model is None else model.need
        fitted = fit_logistic(
            rows[:, columns],
            fits,
            offset=rows[:, evidence] + [_doubt(query.need, need) for query in queries],
            prior=None if model is None else [getattr(model, name) for name in names],
        )
        models.append({**dict(zip(names, fitted.weights, strict=True)), "need": need})
    return AnyFits(stage1=Stage1AnyFits(**models[0]), stage2=Stage2AnyFits(**models[1])), fitted


_MOST_NEED = 12.0
"""The largest log-odds of a need that count, as in the core."""


def _doubt(need: float | None, weight: float | None) -> float:
    """Return what the probability that a query needs a document adds to the log-odds of a fit."""
    if need is None:
        return 0.0
    if weight is None:
        return _core.need_log_odds(need)
    return weight * float(np.clip(logit(need), -_MOST_NEED, _MOST_NEED))


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


def fit_skipping(
    seen: Outcomes,
    any_fits: Array,
    answered: tuple[Flags, Flags],
    threshold: float,
    corpora: Sequence[str],
    loss: float,
) -> tuple[float | None, Winner]:
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

    Returns:
        The `rerank_threshold`, None for no limit; and the least leads of a winner.
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
    margin = seen.stage1_margin
    clear = ~below & answered[0]
    worse = gained2.astype(int) - gained1
    worse_in_order = seen.stage2_right.astype(int) - seen.stage1_right
    spent = (member & below & gained2).sum(axis=1)
    best = (0, 0, math.inf, math.inf)
    for agreed, disagreed in product(_leads(margin[agrees]), _leads(margin[~agrees])):
        # A winner on which the channels disagree never needs a smaller lead.
        if disagreed < agreed:
            continue
        leads = (margin > 0) & (margin >= np.where(agrees, agreed, disagreed))
        skipped = clear & leads
        lost = member @ (worse * skipped)
        lost_in_order = member @ (worse_in_order * leads)
        if np.all(lost + spent <= allowed) and np.all(lost_in_order <= allowed):
            gain = (int(skipped.sum()), -int(lost.sum()), agreed, disagreed)
            best = max(best, gain, key=lambda tried: tried[:2])
    leads_of = [None if lead == math.inf else lead for lead in best[2:]]
    return least or None, Winner(agreed=leads_of[0], disagreed=leads_of[1])


def _least(of_right: Array, lost: int) -> float:
    """Return the highest threshold with at most `lost` of these probabilities below it."""
    return float(np.sort(of_right)[lost]) if lost < len(of_right) else 1.0


def _leads(leads: Array) -> list[float]:
    """Return the leads to try; infinity is for no winner."""
    if not len(leads):
        return [math.inf]
    tried = np.quantile(leads, np.linspace(0, 1, STEPS))
    return [math.inf, *sorted({rounded(float(lead)) for lead in tried})]


STOP = 0.02
"""Reading stops below this probability that an unread candidate becomes the first pick."""

LEAST_PAIRS = 100
"""Fewest pairs for a fit."""


def fit_anytime(rows: Sequence[Scores]) -> Anytime | None:
    """Fit a linear model of rerank scores, or return None for fewer than 100 pairs.

    The weights are those of least squares. The share of the residuals' variance that belongs to a
    query is the mean product of two residuals of one query, divided by the variance.
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
