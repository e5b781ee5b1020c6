"""Prints what the prompt hook tells at which bar: rightly, wrongly, and by kind of prompt.

    python eval/hook_bar.py eval/skills eval/skills:conversation

A hook tells one skill at most. Measured are the two answers that it can come to: stage 1 alone,
which is all that the default budget leaves time for in a new process, and the whole cascade.

| column | share of | that |
| --- | --- | --- |
| nothing fits | the prompts without a match | get a skill all the same |
| kept | `route`'s right first picks | are told |
| wrong, of all | all prompts | get a skill that does not fit, whether or not another one would |
| wrong, of told | the prompts that get a skill | get one that does not fit |

A bar is a least confidence, and a least blend beside it. At the end stands, for all sets together
and for smaller libraries, what the default comes to, and which bar keeps most of those by which a
skill is told for at most 3 % of the prompts that nothing fits. After a new fit, two numbers follow
from these best blends: those of `least_blend` in `crossgate._hook.options`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from crossgate import Index, Router
from crossgate._hook.options import MIN_CONFIDENCE, least_blend
from crossgate.evaluation import Dataset, LabelledQuery, read_dataset

CONFIDENCES = (0.0, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
SIZES = (8, 24)
MOST_WRONG = 0.03

Bar = tuple[float, float]
"""The least confidence and the least blend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a prompt gets without a bar of the hook.

    Attributes:
        kind: The kind of the prompt.
        matched: Whether anything fits it.
        picked: Whether there is a pick.
        right: Whether the pick fits.
        confidence: Of the pick.
        blend: Of the pick.
    """

    kind: str
    matched: bool
    picked: bool = False
    right: bool = False
    confidence: float = 0.0
    blend: float = 0.0

    def is_told(self, bar: Bar) -> bool:
        """Return whether the hook tells the pick."""
        return self.picked and self.confidence >= bar[0] and self.blend >= bar[1]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the prompts of a set get, and how many first picks of `route` are right."""

    prompts: list[Answer]
    routed: int

    def told(self, bar: Bar) -> list[Answer]:
        """Return what is told."""
        return [one for one in self.prompts if one.is_told(bar)]

    def nothing_fits(self, bar: Bar) -> float:
        """Return the share of the prompts without a match that get a skill."""
        others = sum(not one.matched for one in self.prompts)
        return sum(not one.matched for one in self.told(bar)) / max(1, others)

    def kept(self, bar: Bar) -> float:
        """Return the share of `route`'s right first picks that are told."""
        return sum(one.right for one in self.told(bar)) / max(1, self.routed)

    def row(self, bar: Bar) -> str:
        """Return the figures at a bar."""
        told = self.told(bar)
        wrong = sum(not one.right for one in told)
        of_all, of_told = wrong / len(self.prompts), wrong / max(1, len(told))
        return (
            f"confidence {bar[0]:.2f}  blend {bar[1]:.2f}  "
            f"nothing fits {self.nothing_fits(bar):6.1%}  kept {self.kept(bar):6.1%}  "
            f"wrong: of all {of_all:5.1%}, of told {of_told:5.1%}"
        )

    def by_kind(self, bar: Bar) -> str:
        """Return for each kind of prompt without a match how many get a skill."""
        told = Counter(one.kind for one in self.told(bar) if not one.matched)
        all_ = Counter(one.kind for one in self.prompts if not one.matched)
        return ", ".join(f"{kind} {told[kind]} of {count}" for kind, count in all_.items())


def answers(router: Router, queries: Iterable[LabelledQuery], budget: float | None) -> list[Answer]:
    """Route the prompts."""
    found = []
    for query in queries:
        result = router.route(query.text, limit=1, budget_ms=budget)
        kind, matched = query.kind or "prompts", bool(query.relevant)
        if result.selected:
            (hit,) = result.selected
            right = hit.id in query.relevant
            sure = result.confidence or 0.0
            found.append(Answer(kind, matched, True, right, sure, hit.blend or 0.0))
        else:
            found.append(Answer(kind, matched))
    return found


def routed(router: Router, queries: list[LabelledQuery]) -> Answers:
    """Route the prompts by stage 1, which counts as `route` itself."""
    found = answers(router, queries, 0.0)
    return Answers(found, sum(one.right for one in found))


def smaller(datasets: list[Dataset], index: Index, size: int) -> Answers:
    """Return what the prompts get from libraries of so many documents, drawn a few times.

    A prompt whose matches are not drawn takes no part.
    """
    random = Random(size)
    prompts: list[Answer] = []
    for _ in range(max(1, 48 // size)):
        documents = random.sample(list(datasets[0].documents), size)
        ids = {one.id for one in documents}
        queries = [
            replace(
                query, relevant={id: grade for id, grade in query.relevant.items() if id in ids}
            )
            for dataset in datasets
            for query in dataset.queries
            if not query.relevant or ids & query.relevant.keys()
        ]
        prompts += routed(Router(Index.build(documents, reuse=index)), queries).prompts
    return Answers(prompts, sum(one.right for one in prompts))


def best(found: Answers, blends: Iterable[float], confidences: Iterable[float]) -> Bar:
    """Return the bar that keeps most of those by which little is told where nothing fits."""
    bars = [(least, blend) for blend in blends for least in confidences]
    return max((bar for bar in bars if found.nothing_fits(bar) <= MOST_WRONG), key=found.kept)


def main() -> None:
    """Measure the datasets that are named, `FOLDER` or `FOLDER:SPLIT`, all of one library."""
    datasets = []
    for argument in sys.argv[1:]:
        folder, _, split = argument.partition(":")
        datasets.append(read_dataset(folder, split=split or None))
    index = Index.build(datasets[0].documents)
    router = Router(index)
    default = (MIN_CONFIDENCE, least_blend(len(index)))
    all_prompts: list[Answer] = []
    all_routed = 0
    for argument, dataset in zip(sys.argv[1:], datasets, strict=True):
        cascade = answers(router, dataset.queries, None)
        right = sum(one.right for one in cascade)
        stage1 = answers(router, dataset.queries, 0.0)
        print(f"{argument}: {len(stage1)} prompts")
        for name, prompts in (("stage 1", stage1), ("cascade", cascade)):
            found = Answers(prompts, right)
            for confidence in CONFIDENCES:
                print(f"  {name}  {found.row((confidence, 0.0))}")
            print(f"  {name}  {found.row(default)}  default")
            print(f"  {name}, nothing fits, at the default: {found.by_kind(default)}")
        all_prompts += stage1
        all_routed += right
    libraries = {size: smaller(datasets, index, size) for size in SIZES if size < len(index)}
    libraries[len(index)] = Answers(all_prompts, all_routed)
    blends = [step / 200 for step in range(100)]
    for size, found in libraries.items():
        print(f"all sets together, {size} documents, stage 1")
        for name, bar in (
            ("default", (MIN_CONFIDENCE, least_blend(size))),
            ("best by confidence", best(found, [0.0], [step / 100 for step in range(100)])),
            ("best blend beside it", best(found, blends, [MIN_CONFIDENCE])),
        ):
            print(f"  {name:20}  {found.row(bar)}")


if __name__ == "__main__":
    main()
