"""Prints what the profile for sessions does on real prompts with labels, library by library.

    python eval/real_sessions.py DATA [--split dev] [--profile session] [--projects]

DATA holds `sessions` and `skill-bodies` in the layout of the public sets. "needless" counts prompts
that need nothing, "right" skills that a reader called must or may.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossgate import Context, Document, Index, Router
from crossgate._agents.hook.options import MAX_SHORTLIST, MIN_ANY_FITS, MIN_CONFIDENCE
from crossgate._decision.context import MOST_TECHNOLOGIES
from crossgate._sources.projects import technologies_of

LIBRARIES = ("specialists", "workflows", "everything")
BINS = 10


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True, slots=True)
class Decision:
    """One prompt in one library.

    Attributes:
        ids: The candidates, best first.
        confidence: Probability that the first one fits.
        any_fits: Probability that any fits.
        need: Probability that the prompt needs any skill.
        offered: Probability that any of the first `MAX_SHORTLIST` candidates fits.
        must: Skills that an expert would open.
        right: These, and those that are arguably useful.
    """

    ids: Sequence[str]
    confidence: float
    any_fits: float
    need: float
    offered: float
    must: set[str]
    right: set[str]

    @property
    def named(self) -> bool:
        """Whether the hook names the first candidate."""
        return bool(self.ids) and self.confidence >= MIN_CONFIDENCE

    @property
    def listed(self) -> bool:
        """Whether the hook offers a list of a parked library."""
        return not self.named and self.offered >= MIN_ANY_FITS

    @property
    def shortlist(self) -> Sequence[str]:
        """The candidates of such a list."""
        return self.ids[:MAX_SHORTLIST]


def technologies(project: dict[str, Any]) -> tuple[str, ...]:
    """Return the technologies of a project, from its manifests and the endings of its files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in project.get("content", {}).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for ending in project.get("languages", {}):
            Path(folder, f"main{ending}").touch()
        return technologies_of(folder)[:MOST_TECHNOLOGIES]


def contexts(
    prompts: Sequence[dict[str, Any]], projects: dict[str, tuple[str, ...]]
) -> Iterator[Context]:
    """Yield the project of each prompt, and the prompt before it in its session."""
    before: dict[str, str] = {}
    for prompt in prompts:
        earlier = before.get(prompt["session"])
        history = () if earlier is None else (earlier,)
        yield Context(history=history, technologies=projects.get(prompt["repo"], ()))
        before[prompt["session"]] = prompt["text"][:4000]


def decide(data: Path, library: str, options: argparse.Namespace) -> list[Decision]:
    """Return the decisions over one library."""
    sessions = data / "sessions"
    bodies = {
        row["_id"]: row["body"]
        for path in sorted((data / "skill-bodies").glob("*.jsonl"))
        for row in rows(path)
    }
    documents = [
        Document(
            id=row["_id"], title=row["title"], text=row["text"], body=bodies.get(row["_id"], "")
        )
        for row in rows(sessions / "libraries" / f"{library}.jsonl")
    ]
    reranker = None if options.profile == "session" else "default"
    router = Router(Index.build(documents), profile=options.profile, reranker=reranker)
    labels = {row["id"]: row for row in rows(sessions / "labels" / f"{library}.jsonl")}
    prompts = [row for row in rows(sessions / "prompts.jsonl") if row["split"] == options.split]
    found = []
    projects = {}
    if options.projects:
        of_repositories = json.loads((sessions / "projects.json").read_text(encoding="utf-8"))
        projects = {name: technologies(of) for name, of in of_repositories.items()}
    for prompt, context in zip(prompts, contexts(prompts, projects), strict=True):
        label = labels[prompt["id"]]
        result = router.route(prompt["text"][:65_536], limit=1, context=context)
        found.append(
            Decision(
                ids=[hit.id for hit in result.hits],
                confidence=result.confidence or 0.0,
                any_fits=result.any_fits or 0.0,
                need=(result.trace or {})["request"]["needs_document"] or 0.0,
                offered=sum(hit.relevance or 0.0 for hit in result.hits[:MAX_SHORTLIST]),
                must=set(label["must"]),
                right={*label["must"], *label["may"]},
            )
        )
    return found


def binned(pairs: Sequence[tuple[float, bool]]) -> dict[int, list[tuple[float, bool]]]:
    """Return the pairs in ten bins of equal width."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for probability, right in pairs:
        bins[min(int(probability * BINS), BINS - 1)].append((probability, right))
    return bins


def calibration_error(pairs: Sequence[tuple[float, bool]]) -> float:
    """Return the expected calibration error in ten bins of equal width."""
    bins = binned(pairs)
    gaps = [abs(sum(p for p, _ in each) - sum(r for _, r in each)) for each in bins.values()]
    return sum(gaps) / len(pairs)


def area(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Return the area under the ROC curve: how often a positive value is the larger one."""
    wins = sum((high > low) + (high == low) / 2 for high in positive for low in negative)
    return wins / (len(positive) * len(negative))


def table(decisions: Sequence[Decision]) -> dict[str, float]:
    """Return the figures of some decisions."""
    needed = [one for one in decisions if one.must]
    useless = [one for one in decisions if not one.right]
    named = [one for one in decisions if one.named]
    listed = [one for one in decisions if one.listed]
    shown = [one for one in needed if one.named and one.ids[0] in one.must]
    offered = [one for one in needed if one.listed and one.must & set(one.shortlist)]

    def share(part: Sequence[Any], whole: Sequence[Any]) -> float:
        return round(len(part) / len(whole), 3) if whole else float("nan")

    return {
        "must first": share([one for one in needed if {*one.ids[:1]} & one.must], needed),
        "must in five": share([one for one in needed if {*one.ids[:5]} & one.must], needed),
        "AUC of need, must or none": round(
            area([one.need for one in needed], [one.need for one in useless]), 3
        ),
        "AUC of any_fits, must or none": round(
            area([one.any_fits for one in needed], [one.any_fits for one in useless]), 3
        ),
        "named": len(named),
        "named right": share([one for one in named if one.ids[0] in one.right], named),
        "named must": share([one for one in named if one.ids[0] in one.must], named),
        "musts named": share(shown, needed),
        "needless, visible": share([one for one in useless if one.named], useless),
        "lists": len(listed),
        "lists with a right one": share(
            [one for one in listed if one.right & set(one.shortlist)], listed
        ),
        "musts named or listed": share([*shown, *offered], needed),
        "needless, parked": share([one for one in useless if one.named or one.listed], useless),
        "calibration error, confidence": round(
            calibration_error(of_confidence(decisions)),
            3,
        ),
        "calibration error, any_fits": round(calibration_error(of_any_fits(decisions)), 3),
    }


def of_confidence(decisions: Sequence[Decision]) -> list[tuple[float, bool]]:
    """Return the confidence of each decision, and whether the first candidate is right."""
    return [(one.confidence, {*one.ids[:1]} <= one.right) for one in decisions if one.ids]


def of_any_fits(decisions: Sequence[Decision]) -> list[tuple[float, bool]]:
    """Return the probability that any skill fits, and whether one does."""
    return [(one.any_fits, bool(one.right)) for one in decisions]


def print_reliability(name: str, pairs: Sequence[tuple[float, bool]]) -> None:
    """Print number, mean probability and share of right ones for each bin."""
    print(f"\n{name:30}{'prompts':>13}{'mean':>13}{'right':>13}")
    for number, each in sorted(binned(pairs).items()):
        mean, right = (sum(pair[place] for pair in each) / len(each) for place in (0, 1))
        bounds = f"{number / BINS:g} to {(number + 1) / BINS:g}"
        print(f"{bounds:30}{len(each):>13}{mean:>13.2f}{right:>13.2f}")


def main() -> None:
    """Read the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--profile", default="session", help="a profile's name or file")
    parser.add_argument("--projects", action="store_true", help="pass each project's technologies")
    options = parser.parse_args()
    by_library = {name: decide(options.data, name, options) for name in LIBRARIES}
    pooled = [one for decisions in by_library.values() for one in decisions]
    tables = {name: table(decisions) for name, decisions in {**by_library, "all": pooled}.items()}
    print(f"{'':30}" + "".join(f"{name:>13}" for name in tables))
    for row in tables["all"]:
        print(f"{row:30}" + "".join(f"{values[row]:>13}" for values in tables.values()))
    print_reliability("confidence", of_confidence(pooled))
    print_reliability("any_fits", of_any_fits(pooled))


if __name__ == "__main__":
    main()
