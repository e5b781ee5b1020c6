"""Prints what the prompt hook shows, right and wrong, by its thresholds.

    python eval/hook_bar.py eval/skills eval/skills:conversation
    python eval/hook_bar.py eval/skills:conversation --over SKILLS

The hook names one skill if its confidence reaches `--min-confidence`; otherwise it offers the
shortlist if the probability that any skill fits reaches `--min-any-fits`. The script measures both
kinds of answers: that of stage 1 alone, since the default budget leaves no more time in a new
process, and that of the whole cascade. Of the prompts with a match: `named right`, `named wrong`,
`shown right` (named or on the offered shortlist) and `mean shown`, the mean number of skills shown.
Of the prompts without a match, by kind if there are several: `named` and `shown`. With `--over`,
the prompts without a match are routed over other documents, for which the other prompts have no
labels.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from crossgate import Index, Router
from crossgate._agents.hook.options import MAX_SHORTLIST, MIN_ANY_FITS, MIN_CONFIDENCE
from crossgate.evaluation import LabelledQuery, read_dataset

CONFIDENCES = sorted({0.5, 0.6, 0.7, 0.8, MIN_CONFIDENCE})
ANY_FITS = sorted({0.3, 0.4, 0.5, 0.6, 0.7, 0.8, MIN_ANY_FITS})


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decision gives the hook.

    Attributes:
        kind: The kind of the prompt.
        confidence: The confidence of the first pick; 0 without a pick.
        is_right: Whether the first pick fits.
        any_fits: The probability that any skill fits.
        listed: Length of the shortlist.
        is_listed: Whether a fitting skill is on it.
    """

    kind: str
    confidence: float
    is_right: bool
    any_fits: float
    listed: int
    is_listed: bool

    def shown(self, confidence: float, any_fits: float) -> tuple[int, bool, bool]:
        """Return how many skills are shown, whether one is named, and whether one fits."""
        if self.confidence >= confidence:
            return 1, True, self.is_right
        if self.any_fits >= any_fits:
            return self.listed, False, self.is_listed
        return 0, False, False


def decided(
    router: Router, queries: Sequence[LabelledQuery], budget: float | None
) -> list[Decided]:
    """Return what the router decides about queries."""
    found = []
    for query in queries:
        result = router.route(query.text, limit=1, budget_ms=budget, max_shortlist=MAX_SHORTLIST)
        found.append(
            Decided(
                kind=query.kind,
                confidence=(result.confidence or 0.0) if result.selected else 0.0,
                is_right=bool(result.selected) and result.ids[0] in query.relevant,
                any_fits=result.any_fits or 0.0,
                listed=len(result.shortlist),
                is_listed=any(hit.id in query.relevant for hit in result.shortlist),
            )
        )
    return found


def rows(
    asked: Sequence[Decided], unasked: Sequence[Decided], confidence: float, any_fits: float
) -> list[str]:
    """Return the cells of one line."""
    cells = []
    if asked:
        shown = [of.shown(confidence, any_fits) for of in asked]
        named = [right for _, is_named, right in shown if is_named]
        count = len(shown)
        cells += [
            f"named right {sum(named) / count:.3f}",
            f"named wrong {(len(named) - sum(named)) / count:.3f}",
            f"shown right {sum(right for _, _, right in shown) / count:.3f}",
            f"mean shown {sum(number for number, _, _ in shown) / count:.2f}",
        ]
    for kind in sorted({of.kind for of in unasked}):
        shown = [of.shown(confidence, any_fits) for of in unasked if of.kind == kind]
        named_share = sum(is_named for _, is_named, _ in shown) / len(shown)
        shown_share = sum(number > 0 for number, _, _ in shown) / len(shown)
        cells.append(f"{kind or 'no match'} named {named_share:.3f} shown {shown_share:.3f}")
    return cells


def main() -> None:
    """Measure the given datasets."""
    parser = argparse.ArgumentParser(description="Prints what the hook shows by its thresholds.")
    parser.add_argument("dataset", nargs="+", help="FOLDER or FOLDER:SPLIT, in BEIR's layout")
    parser.add_argument("--over", help="a folder whose documents are routed over instead")
    options = parser.parse_args()
    for argument in options.dataset:
        folder, _, split = argument.partition(":")
        dataset = read_dataset(folder, split=split or None)
        matched = [query for query in dataset.queries if query.relevant and not options.over]
        others = [query for query in dataset.queries if not query.relevant]
        print(f"{argument}: {len(matched)} prompts with a match, {len(others)} without")
        searched = read_dataset(options.over) if options.over else dataset
        router = Router(Index.build(searched.documents))
        for name, budget in (("stage 1", 0.0), ("cascade", None)):
            asked, unasked = (decided(router, queries, budget) for queries in (matched, others))
            for confidence in CONFIDENCES:
                for any_fits in ANY_FITS:
                    default = (confidence, any_fits) == (MIN_CONFIDENCE, MIN_ANY_FITS)
                    cells = "  ".join(rows(asked, unasked, confidence, any_fits))
                    mark = "  default" if default else ""
                    print(
                        f"  {name}  confidence {confidence:.2f} any {any_fits:.2f}  {cells}{mark}"
                    )


if __name__ == "__main__":
    main()
