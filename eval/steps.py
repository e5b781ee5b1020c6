"""Measures the effect of each step from retrieved lists to the final context.

    python eval/steps.py eval/memory eval/chunks --reranker crossgate-router-minilm-l12

The steps are those of `crossgate.pipelines.agent_memory`, and diversity: 20 per store, fused by
rank, one per source, aged, 15 read by the cross-encoder, 10 kept. First they are added one after
another; then each is left out of the whole. Both figures matter: a step may add much when it comes
first, and cost little when it is left out, because a later step does its work too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from time import perf_counter

import numpy as np

from crossgate._core import Profile, Winner
from crossgate._decision.rerank_candidates import rerank
from crossgate._evaluation import metrics, statistics
from crossgate._evaluation.sections import points, share
from crossgate._evaluation.statistics import Interval
from crossgate._pipelines.diversity import deduplicate
from crossgate._pipelines.hits import decay, time_of
from crossgate._pipelines.recipes import AGREEMENT, Retrieve, diversified, from_index, fused
from crossgate._reranking.contract import NO_DEADLINE, Deadline, PairScore, Reranker, passages_of
from crossgate._reranking.cross_encoder import CrossEncoder
from crossgate._retrieval.document_index import Index
from crossgate._runtime.model_files import PASSAGE_RERANKER
from crossgate._support.wording import counted
from crossgate._values.profile_files import check_models
from crossgate._values.results import Candidate, Passage
from crossgate.evaluation import Dataset, LabelledQuery, read_dataset

PER_STORE, POOL, LIMIT = 20, 15, 10

DUPLICATES, DECAY, CROSS_ENCODER, GATE, DIVERSITY = (
    "duplicates",
    "decay",
    "cross-encoder",
    "gate",
    "diversity",
)
_AFTER_FUSION = (DUPLICATES, DECAY, CROSS_ENCODER, GATE, DIVERSITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One combination of steps.

    Attributes:
        name: The step that was added or left out.
        recall_1: recall@1 over the queries with a match.
        recall_5: recall@5.
        ndcg_10: nDCG@10.
        change: recall@1 minus that of the row before; where a step is left out, minus that of all
            steps. None for the first row.
        no_match_picks: Share of the no-match queries with a pick; None without such queries.
        skipped: Share of the queries for which the cross-encoder was not asked; None if it is not
            part of the row.
        milliseconds: Median time of a query, including its embedding. A pair that was scored for
            an earlier row counts with the mean time of a pair of that query.
    """

    name: str
    recall_1: Interval | None
    recall_5: Interval | None
    ndcg_10: Interval | None
    change: Interval | None
    no_match_picks: Interval | None
    skipped: float | None
    milliseconds: float


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which lists are fused, and which steps follow."""

    name: str
    stores: slice
    steps: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to one query."""

    ids: list[str]
    skipped: bool
    milliseconds: float


def measure(
    dataset: Dataset, reranker: Reranker, *, profile: Profile = AGREEMENT, seed: int = 0
) -> tuple[list[Row], list[Row]]:
    """Answer every query with each combination of steps.

    Args:
        dataset: The labelled queries and the documents, with `timestamp` or `date` in their
            metadata if they have one. Ages are counted from the newest; without a date, decay is
            left out.
        reranker: The cross-encoder.
        profile: Gate, guardrails, and how logits and stage 1 are combined.
        seed: Seed of the resampling behind the intervals.

    Returns:
        One row per retriever and per step that is added, and one per step that is left out of the
        whole.
    """
    index = Index.build(dataset.documents)
    check_models(profile, embedder=index.embedder or None, reranker=reranker.identity)
    times = [time for document in dataset.documents if (time := time_of(document)) is not None]
    now = max(times, default=None)
    plans = list(_plans(dated=now is not None))
    memory = _Memory(reranker)
    memory.score("warm up", passages_of(["warm up"]))
    retrieve = from_index(index)
    words = from_index(index, by="words")
    answers: list[list[_Answer]] = []
    for query in dataset.queries:
        retrieved = _retrieved(query, retrieve, words, len(index))
        answers.append([_answer(query, retrieved, plan, memory, profile, now) for plan in plans])
    whole = (
        next(position for position, plan in enumerate(plans) if plan.name.startswith("without")) - 1
    )
    rows = [
        _row(plan.name, dataset.queries, answers, position, _reference(position, whole), plan, seed)
        for position, plan in enumerate(plans)
    ]
    return rows[: whole + 1], rows[whole + 1 :]


def render(dataset: Dataset, added: Sequence[Row], left_out: Sequence[Row]) -> str:
    """Return the rows as a table."""
    lines = [
        f"{dataset.name} {dataset.split}: {counted(len(dataset.documents), 'document')}, "
        f"{counted(len(dataset.queries), 'query')}",
        "",
        f"{'':<22}{'recall@1':>9} {'change, points':>20} {'recall@5':>9} {'nDCG@10':>8} "
        f"{'no match':>9} {'skipped':>8} {'ms':>7}",
        *map(_line, added),
        "",
        "left out of the whole",
        *map(_line, left_out),
        "",
        f"the whole: recall@1 {share(added[-1].recall_1)}; intervals of 95 %",
        "change: paired, against the row above, or if a step is left out, against the whole",
        "no match: share of the no-match queries for which something was selected",
    ]
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Print the table of each given dataset."""
    parser = argparse.ArgumentParser(description="Measures the effect of each step.")
    parser.add_argument("dataset", nargs="+", help="BEIR folder or .jsonl file")
    parser.add_argument("--limit", type=int, help="use a sample of this many queries")
    parser.add_argument("--reranker", default=PASSAGE_RERANKER, help="name or folder")
    options = parser.parse_args()
    for path in options.dataset:
        dataset = read_dataset(path, limit=options.limit)
        added, left_out = measure(dataset, CrossEncoder(options.reranker))
        print(render(dataset, added, left_out), end="\n\n\n")


def _plans(*, dated: bool) -> Iterator[_Plan]:
    steps = [step for step in _AFTER_FUSION if step != DECAY or dated]
    both = slice(0, 2)
    yield _Plan("words alone", slice(0, 1), frozenset())
    yield _Plan("meaning alone", slice(1, 2), frozenset())
    yield _Plan("fused", both, frozenset())
    for count, step in enumerate(steps, start=1):
        yield _Plan(f"+ {step}", both, frozenset(steps[:count]))
    for step in steps:
        # Without a cross-encoder there is nothing for the gate to save.
        gone = {step, GATE} if step == CROSS_ENCODER else {step}
        yield _Plan(f"without {step}", both, frozenset(steps) - gone)


def _reference(position: int, whole: int) -> int | None:
    if position > whole:
        return whole
    return position - 1 if position else None


@dataclass(frozen=True, slots=True)
class _Retrieved:
    """The hits of each store, with the time of the first store and of all stores."""

    stores: list[list[Candidate]]
    words_ms: float
    all_ms: float


def _retrieved(
    query: LabelledQuery, retrieve: Retrieve, words: Retrieve, documents: int
) -> _Retrieved:
    """Return the hits of each store that are among the query's own candidates."""
    depth = PER_STORE if query.candidates is None else documents
    start = perf_counter()
    words(query.text, depth)
    words_ms, start = _since(start), perf_counter()
    retrieved = retrieve(query.text, depth)
    all_ms = _since(start)
    wanted = None if query.candidates is None else set(query.candidates)
    lists = [[hit for hit in hits if wanted is None or hit.id in wanted] for hits in retrieved]
    return _Retrieved([hits[:PER_STORE] for hits in lists], words_ms, all_ms)


def _answer(
    query: LabelledQuery,
    retrieved: _Retrieved,
    plan: _Plan,
    memory: _Memory,
    profile: Profile,
    now: datetime | None,
) -> _Answer:
    stores = retrieved.stores[plan.stores]
    before = retrieved.words_ms if plan.stores == slice(0, 1) else retrieved.all_ms
    start, memory.saved = perf_counter(), 0.0
    hits = fused(stores)
    if DUPLICATES in plan.steps:
        hits = deduplicate(hits)
    if DECAY in plan.steps and now is not None:
        hits = decay(hits, now=now)
    if CROSS_ENCODER not in plan.steps and DIVERSITY not in plan.steps:
        return _Answer([hit.id for hit in hits[:LIMIT]], False, before + _since(start))
    if GATE not in plan.steps:  # a gate can skip the cross-encoder in two ways
        answer = profile.answer.replace(rerank_threshold=None)
        profile = profile.replace(winner=Winner(), answer=answer)
    result = rerank(
        query.text,
        hits[:POOL],
        reranker=memory if CROSS_ENCODER in plan.steps else None,
        profile=profile,
        keep_scores=True,
    )
    if DIVERSITY in plan.steps:
        result = diversified(result, limit=LIMIT)
    return _Answer(result.ids[:LIMIT], result.stage == 1, before + _since(start) + memory.saved)


def _row(
    name: str,
    queries: Sequence[LabelledQuery],
    answers: Sequence[Sequence[_Answer]],
    position: int,
    reference: int | None,
    plan: _Plan,
    seed: int,
) -> Row:
    def column(
        metric: Callable[[LabelledQuery, _Answer], float | None], position: int
    ) -> list[float]:
        values = (metric(query, row[position]) for query, row in zip(queries, answers, strict=True))
        return [float("nan") if value is None else value for value in values]

    def mean(metric: Callable[[LabelledQuery, _Answer], float | None]) -> Interval | None:
        return statistics.mean(column(metric, position), seed=seed, shares=True)

    change = None
    if reference is not None:
        here, there = column(_recall_1, position), column(_recall_1, reference)
        change = statistics.mean(np.subtract(here, there), seed=seed)
    asked = [row[position] for row in answers]
    return Row(
        name=name,
        recall_1=mean(_recall_1),
        recall_5=mean(lambda query, answer: _ranked(metrics.recall, query, answer, 5)),
        ndcg_10=mean(lambda query, answer: _ranked(metrics.ndcg, query, answer, 10)),
        change=change,
        no_match_picks=mean(
            lambda query, answer: None if query.relevant else float(bool(answer.ids))
        ),
        skipped=sum(answer.skipped for answer in asked) / len(asked)
        if CROSS_ENCODER in plan.steps
        else None,
        milliseconds=median(answer.milliseconds for answer in asked),
    )


def _recall_1(query: LabelledQuery, answer: _Answer) -> float | None:
    return _ranked(metrics.recall, query, answer, 1)


def _ranked(
    metric: Callable[..., float], query: LabelledQuery, answer: _Answer, k: int
) -> float | None:
    return metric(answer.ids, query.relevant, k) if query.relevant else None


def _line(row: Row) -> str:
    change = points(row.change)
    picks = "-" if row.no_match_picks is None else f"{row.no_match_picks.value:.0%}"
    skipped = "-" if row.skipped is None else f"{row.skipped:.0%}"
    values = ["-" if interval is None else f"{interval.value:.3f}" for interval in _quality(row)]
    return (
        f"{row.name:<22}{values[0]:>9} {change:>20} {values[1]:>9} {values[2]:>8} {picks:>9} "
        f"{skipped:>8} {row.milliseconds:>7.1f}"
    )


def _quality(row: Row) -> tuple[Interval | None, ...]:
    return row.recall_1, row.recall_5, row.ndcg_10


class _Memory:
    """A reranker that scores no pair twice, and counts the time that this saves.

    The rows need the same pairs again and again. Each pair is scored by itself, so remembering it
    changes no score.
    """

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self._known: dict[str, dict[str, PairScore | None]] = {}
        self._spent: dict[str, float] = {}
        self.saved = 0.0

    @property
    def name(self) -> str:
        return self._reranker.name

    @property
    def identity(self) -> str:
        return self._reranker.identity

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> list[PairScore | None]:
        known = self._known.setdefault(query, {})
        new = [passage for passage in passages if passage.text not in known]
        if new:
            start = perf_counter()
            scores = self._reranker.score(query, new, deadline=deadline)
            self._spent[query] = self._spent.get(query, 0.0) + _since(start)
            known |= zip([passage.text for passage in new], scores, strict=True)
        if known:
            self.saved += (len(passages) - len(new)) * self._spent[query] / len(known)
        return [known[passage.text] for passage in passages]


def _since(start: float) -> float:
    return (perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
