"""The bundled models still reach the committed figures, on a sample of our own sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from crossgate import Profile
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._evaluation.statistics import Interval, mean
from crossgate._reranking.cross_encoder import CrossEncoder
from crossgate._retrieval.embedding import OnnxEmbedder
from crossgate._runtime.tokenizer import Input
from crossgate._values.profile_files import profile_values, read_profile
from crossgate.evaluation import measure, read_dataset, read_run, summarize

EVAL = Path(__file__).parents[1] / "eval"
BASELINES = json.loads((EVAL / "baselines.json").read_text(encoding="utf-8"))["reports"]
SAMPLES = {"skills": 120, "chunks": 60}
"""Number of queries of each set that CI routes; `make figures` and `eval compare` use all."""
HIGHER = ("recall@1", "recall@3", "mrr@10", "ndcg@10", "abstention_recall")
LOWER = ("false_positive_rate", "wrong_pick@1")


class RememberingEmbedder(OnnxEmbedder):
    """Embeds each text once, since the corpora take most of this file's time."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, Sequence[float]] = {}

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[Sequence[float]]:
        """Return one vector per text."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, super().embed(new, progress=progress), strict=True))
        return [self._known[text] for text in texts]


class RememberingReranker(CrossEncoder):
    """Reads each pair once, since the same queries are measured with several profiles."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[int, ...], float] = {}

    def _logits(self, *inputs: Input) -> list[float]:
        """Return the logits of inputs."""
        pairs = [tuple(read.ids) for read in inputs]
        if any(pair not in self._known for pair in pairs):
            self._known.update(zip(pairs, super()._logits(*inputs), strict=True))
        return [self._known[pair] for pair in pairs]


EMBEDDER = RememberingEmbedder()
RERANKER = RememberingReranker()


def changes(before: Mapping[str, Any], profile: Profile, folder: Path) -> dict[str, Interval]:
    """Return the improvement of each metric, paired by query, with its interval."""
    name = before["header"]["dataset"]
    dataset = read_dataset(EVAL / name, limit=SAMPLES[name], seed=1)
    run = folder / "sample.run.jsonl"
    modes: tuple[Literal["never"], Literal["gated"]] = ("never", "gated")
    models: dict[str, Any] = {"embedder": EMBEDDER, "reranker": RERANKER}
    measure(dataset, run, profile=profile, modes=modes, **models)
    after = summarize(read_run(run))
    place = {id: at for at, id in enumerate(before["ids"])}
    found = {}
    for mode in modes:
        for metric in (*HIGHER, *LOWER):
            old, new = before["per_query"][mode].get(metric), after.per_query[mode].get(metric)
            if old is None or new is None:
                continue
            sign = -1.0 if metric in LOWER else 1.0
            gained = [
                np.nan if None in (was := old[place[id]], now) else sign * (now - was)
                for id, now in zip(after.ids, new, strict=True)
            ]
            interval = mean(np.array(gained), seed=0)
            if interval is not None:
                found[f"{mode} {metric}"] = interval
    return found


def fallen(found: Mapping[str, Interval]) -> list[str]:
    """Return the metrics that are worse beyond their interval."""
    return [name for name, interval in found.items() if interval.high < 0]


@pytest.mark.parametrize("before", BASELINES, ids=lambda report: report["header"]["dataset"])
def test_figures_are_not_worse_than_the_committed_baseline(
    before: Mapping[str, Any], tmp_path: Path
) -> None:
    profile = read_profile(DEFAULT_PROFILE)
    assert before["profile"] == profile_values(profile), "run `make figures`"
    found = changes(before, profile, tmp_path)
    assert len(found) >= 8
    assert fallen(found) == []


def figures(dataset: str, metric: str) -> list[float]:
    """Return a metric of the baselines without stage 2, with the gate, and with stage 2 always."""
    (report,) = (one for one in BASELINES if one["header"]["dataset"] == dataset)
    tables = {
        "ranked first": report["recall_without_thresholds"],
        "listed": {mode: of["coverage"] for mode, of in report["shortlists"].items()},
        "length": {mode: of["size"] for mode, of in report["shortlists"].items()},
        **{
            name: {mode: report["quality"][mode][name] for mode in report["modes"]}
            for name in ("recall@1", "false_positive_rate", "skipped", "precision@1")
        },
    }
    return [tables[metric][mode]["value"] for mode in ("never", "gated", "always")]


@pytest.mark.parametrize(
    ("page", "label", "dataset", "metric"),
    [
        ("README.md", "the right skill ranks first", "skills", "ranked first"),
        ("README.md", "the right skill is picked", "skills", "recall@1"),
        ("README.md", "a pick is right", "skills", "precision@1"),
        (
            "README.md",
            "it is picked, or on the shortlist of two skills on average",
            "skills",
            "listed",
        ),
        ("README.md", "no skill fits, but one is picked", "skills", "false_positive_rate"),
        ("README.md", "prompts that the cross-encoder reads", "skills", "skipped"),
        ("eval/README.md", "skills: recall@1", "skills", "ranked first"),
        ("eval/README.md", "skills: recall@1 at the default threshold", "skills", "recall@1"),
        ("eval/README.md", "skills: right picks", "skills", "precision@1"),
        ("eval/README.md", "skills: false-positive rate", "skills", "false_positive_rate"),
        ("eval/README.md", "skills: coverage of the shortlist", "skills", "listed"),
        ("eval/README.md", "skills: mean length of the shortlist", "skills", "length"),
        ("eval/README.md", "chunks, which have no bodies: recall@1", "chunks", "ranked first"),
    ],
)
def test_pages_quote_the_baselines(page: str, label: str, dataset: str, metric: str) -> None:
    values = figures(dataset, metric)
    if page == "README.md":
        never, gated, always = (
            f"{100 * (1 - value if metric == 'skipped' else value):.0f} %" for value in values
        )
        row = f"| {label} | {never} | **{gated}** | {always} |"
    else:
        digits = 2 if metric == "length" else 3
        row = f"| {label} | {', '.join(f'{value:.{digits}f}' for value in values)} |"
    assert row in (EVAL.parent / page).read_text(encoding="utf-8"), f"{page} must have: {row}"


def test_readme_quotes_the_evaluation_page() -> None:
    def row(page: str, start: str) -> list[str]:
        lines = (EVAL.parent / page).read_text(encoding="utf-8").splitlines()
        (line,) = (line for line in lines if line.startswith(start))
        return line.removesuffix(" |").split(" | ")[1:]

    search, every, stops = (
        cell.split("; ")[1] for cell in row("eval/README.md", "| `answers` test, 150 ")
    )
    published = row("eval/README.md", "| skill-triggers: recall@1 |")[0].split(", ")
    for start, shares in (
        ("| passages for RAG: 150 questions", [search, stops, every]),
        ("| 507 prompts that skill authors published", published),
    ):
        wanted = [f"{100 * float(share):.0f} %" for share in shares]
        assert row("README.md", start) == wanted


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("eval/README.md", "| `chunks` | {chunks[listed]:.3f} | {chunks[length]:.2f} |"),
        (
            "docs/design.md",
            "{skills[false_positive_rate]:.0%} of the no-match prompts of `eval/skills` get a "
            "pick, and {chunks[false_positive_rate]:.0%} of those of `eval/chunks`",
        ),
        (
            "docs/design.md",
            "recall@1 is {chunks[ranked first]:.3f} without and {chunks[recall@1]:.3f} with them",
        ),
    ],
)
def test_pages_quote_the_gated_baselines(page: str, sentence: str) -> None:
    metrics = ("ranked first", "listed", "length", "recall@1", "false_positive_rate")
    gated = {
        dataset: {metric: figures(dataset, metric)[1] for metric in metrics}
        for dataset in ("skills", "chunks")
    }
    wanted = sentence.format(**gated).replace("%", " %")
    assert wanted in " ".join((EVAL.parent / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({"threshold": 0.95}, {"never recall@1", "gated recall@1"}),  # hardly anything is answered
        (
            {"threshold": None, "rerank_threshold": None, "confidence": None},
            {"gated false_positive_rate"},
        ),  # everything is
    ],
)
def test_worse_profile_is_detected(
    answer: dict[str, float | None], wanted: set[str], tmp_path: Path
) -> None:
    profile = read_profile(DEFAULT_PROFILE)
    profile = profile.replace(answer=profile.answer.replace(**answer))
    (before,) = (baseline for baseline in BASELINES if baseline["header"]["dataset"] == "skills")
    assert wanted <= set(fallen(changes(before, profile, tmp_path)))
