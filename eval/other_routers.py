"""Compares the first picks of other routers on PyPI with those of crossgate's stage 1.

    python eval/other_routers.py eval/skills
    python eval/other_routers.py WITH_BODIES/skill-triggers:dev METATOOL:dev --limit 1000

A dataset is a BEIR folder, with the split after a colon unless it is `test`. Prompts that name
their document are left out. A package that is not installed is skipped; the line says how to
install it. For each router and dataset, the script prints

- `first`: the share of prompts with a match for which a fitting document ranks first;
- `picked`: the share for which that document also passes the package's default threshold;
- `false positives`: the share of prompts without a match that get a pick all the same.

The last two are blank for packages that return the nearest documents and have no way to pick none.
Every package runs with its own defaults and without a model that must be downloaded. It gets names
and descriptions, and packages that read folders of skills, bm25s and crossgate get bodies, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import crossgate
from crossgate.evaluation import LabelledQuery, read_dataset

Answer = tuple[str | None, bool | None]
"""Name of the document that ranks first, and whether it is picked; None if the router decides
nothing."""


@dataclass(frozen=True, slots=True)
class Library:
    """The documents of a dataset.

    Attributes:
        documents: The documents by a unique name: the title, with a number if it occurs twice.
        folder: Holds a SKILL.md for each document.
    """

    documents: Mapping[str, crossgate.Document]
    folder: Path

    @property
    def descriptions(self) -> list[tuple[str, str]]:
        """Name and description of each document."""
        return [(name, document.text) for name, document in self.documents.items()]


def ask_crossgate(library: Library, prompts: list[str]) -> list[Answer]:
    """Stage 1 with the bundled profile."""
    names = {document.id: name for name, document in library.documents.items()}
    index = crossgate.Index.build(library.documents.values())
    results = crossgate.Router(index, reranker=None).route_many(prompts, progress=False)
    return [(first(names[hit.id] for hit in result.hits), bool(result.ids)) for result in results]


def ask_bm25s(library: Library, prompts: list[str]) -> list[Answer]:
    """BM25 over names, descriptions and bodies."""
    import bm25s

    names = list(library.documents)
    texts = [f"{name} {found.text} {found.body}" for name, found in library.documents.items()]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(prompts, show_progress=False, return_ids=False)
    scores = [index.get_scores(words) for words in tokens]
    return [(names[row.argmax()] if row.max() > 0 else None, None) for row in scores]


def ask_lockkeeper(library: Library, prompts: list[str]) -> list[Answer]:
    """The ranking of the registry; a pick is a prompt to which the prompt hook adds a skill."""
    import capability_registry as registry
    import route_hook

    records = []
    for path in sorted(library.folder.rglob("SKILL.md")):
        name, text = registry.parse_frontmatter(path)
        head = (name, "skill", name, text, str(path), "discoverable", ["claude"], 1)
        records.append(registry.capability_record(*head))
    registry.assign_body_keywords(records)
    size = registry.configured_bundle_size()

    def ask(prompt: str) -> Answer:
        query, _ = registry.focus_query(prompt)
        ranked = registry.ranked_records(records, query, "claude", library.folder)
        bundle = registry.bundle(records, query, "claude", "", size, library.folder)
        picks = route_hook.worth_routing(query) and bool(route_hook.context_text(bundle))
        return first(record["id"] for _, record in ranked), picks

    return [ask(prompt) for prompt in prompts]


def ask_ratel(library: Library, prompts: list[str]) -> list[Answer]:
    """BM25, the default of its skill catalog."""
    import ratel_ai

    skills = [
        ratel_ai.Skill(id=name, name=name, description=text) for name, text in library.descriptions
    ]

    async def ask() -> list[Answer]:
        catalog = ratel_ai.SkillCatalog()
        await catalog.register(skills)
        found = [catalog.search(prompt, 1) for prompt in prompts]
        return [(first(hit.skill_id for hit in hits), None) for hits in found]

    return asyncio.run(ask())


def ask_callbus(library: Library, prompts: list[str]) -> list[Answer]:
    """Its BM25 scorer, with stems; the other scorers need a model on a server."""
    from callbus.adapters.bm25 import BM25Scorer
    from callbus.domain import Query, Tool

    scorer = BM25Scorer()
    scorer.index(
        Tool(id=name, doc={"name": name, "description": text})
        for name, text in library.descriptions
    )
    found = scorer.rank([Query(id=prompt, text=prompt, qrels={}) for prompt in prompts], 1)
    return [(first(ranked.tool_ids), None) for ranked in found]


def ask_graph_tool_call(library: Library, prompts: list[str]) -> list[Answer]:
    """The basic mode, keywords and graph, which needs no model."""
    from graph_tool_call import ToolGraph

    graph = ToolGraph()
    tools = [{"name": name, "description": text} for name, text in library.descriptions]
    schemas = graph.add_tools([tool | {"inputSchema": {"type": "object"}} for tool in tools])
    names = dict(zip((schema.name for schema in schemas), library.documents, strict=True))
    found = [graph.retrieve(prompt, top_k=1) for prompt in prompts]
    return [(first(names[tool.name] for tool in tools), None) for tools in found]


def ask_skill_proof(library: Library, prompts: list[str]) -> list[Answer]:
    """The lexical ranking; its vectors need a model from a hub."""
    from skill_proof import ranking, scan_catalog

    catalog = scan_catalog({"skills": library.folder})

    def ask(prompt: str) -> Answer:
        found = ranking.select_skill(catalog, prompt)
        return first(ranked.skill.name for ranked in found.candidates), found.status == "selected"

    return [ask(prompt) for prompt in prompts]


def ask_agentskills(library: Library, prompts: list[str]) -> list[Answer]:
    """The lexical selector, which asks a registry for ids and metadata only."""
    from agentskills_retrieval import LexicalSelector

    def skill(name: str, text: str) -> SimpleNamespace:
        async def metadata() -> dict[str, str]:
            return {"name": name, "description": text}

        return SimpleNamespace(get_id=lambda: name, get_metadata=metadata)

    skills = [skill(name, text) for name, text in library.descriptions]

    async def ask() -> list[Answer]:
        selector = LexicalSelector(SimpleNamespace(list_skills=lambda: skills))
        found = [await selector.select(prompt) for prompt in prompts]
        return [(first(selection.skill_ids), not selection.is_empty) for selection in found]

    return asyncio.run(ask())


def ask_agent_tool_router(library: Library, prompts: list[str]) -> list[Answer]:
    """TF-IDF over names and descriptions."""
    from agent_tool_router import Router

    router = Router.from_descriptions(library.descriptions)
    return [(first(router.route(prompt, k=1)), None) for prompt in prompts]


def ask_sparrow(library: Library, prompts: list[str]) -> list[Answer]:
    """The bundled model, with one more option for prompts that no document fits."""
    from sparrow_decider import Decider

    decider = Decider.load()
    options = {**dict(library.descriptions), "none": "none of the other options fits"}
    question = {"type": "choice", "instructions": "Which skill fits?", "criteria": options}

    def ask(prompt: str) -> Answer:
        answer = decider.ask(prompt, {"skill": question})["skill"]
        shares = answer["probabilities"]
        return max(library.documents, key=shares.__getitem__), answer["choice"] != "none"

    return [ask(prompt) for prompt in prompts]


def ask_skillroute(library: Library, prompts: list[str]) -> list[Answer]:
    """The local backend; a pick is a route without a question back to the user."""
    from skillroute.catalog import Catalog
    from skillroute.routing import Router

    catalog = Catalog(library.folder / "skillroute.db")
    catalog.index_root(library.folder)
    router = Router(catalog)

    def ask(prompt: str) -> Answer:
        found = router.route(prompt, record_trace=False)
        return first(ranked.name for ranked in found.candidates), not found.clarification_needed

    return [ask(prompt) for prompt in prompts]


def first(names: Iterable[str]) -> str | None:
    """Return the first name, if any."""
    return next(iter(names), None)


ROUTERS: dict[str, tuple[str, Callable[[Library, list[str]], list[Answer]]]] = {
    "crossgate": ("crossgate", ask_crossgate),
    "bm25s": ("bm25s==0.3.16", ask_bm25s),
    "lockkeeper": ("lockkeeper==1.4.0", ask_lockkeeper),
    "ratel-ai": ("ratel-ai==0.12.0", ask_ratel),
    "callbus": ("callbus[stem]==0.3.1", ask_callbus),
    "graph-tool-call": ("graph-tool-call==0.47.0", ask_graph_tool_call),
    "skill-proof-router": ("skill-proof-router==1.3.3", ask_skill_proof),
    "agentskills-retrieval": ("agentskills-retrieval==0.7.0", ask_agentskills),
    "agent-tool-router": ("agent-tool-router==0.4.0", ask_agent_tool_router),
    "sparrow-decider": ("sparrow-decider==0.2.0", ask_sparrow),
    "skillroute": ("skillroute==0.6.0", ask_skillroute),
}
"""Package: what docs/compare.md was measured with, for pip, and the adapter."""


def write_library(documents: Iterable[crossgate.Document], folder: Path) -> Library:
    """Write a SKILL.md for each document, and return the library."""
    named: dict[str, crossgate.Document] = {}
    for number, document in enumerate(documents):
        name = one_line(document.title or document.id)
        name = f"{name} {number}" if name in named else name
        place = folder / str(number) / re.sub(r"[^\w.-]+", "-", name)
        place.mkdir(parents=True)
        head = f'---\nname: "{name}"\ndescription: "{one_line(document.text)}"\n---\n'
        text = f"{head}\n{document.body or document.text}\n"
        (place / "SKILL.md").write_text(text, encoding="utf-8")
        named[name] = document
    return Library(named, folder)


def one_line(text: str) -> str:
    """Return the text as a line without the characters that a quoted YAML text must escape."""
    return " ".join(text.split()).replace('"', "'").replace("\\", "/")


def figures(answers: list[Answer], library: Library, prompts: list[LabelledQuery]) -> str:
    """Return the three shares as text."""
    right, picked, wrong = list[bool](), list[bool](), list[bool]()
    for prompt, (name, is_picked) in zip(prompts, answers, strict=True):
        if prompt.relevant:
            right.append(name is not None and library.documents[name].id in prompt.relevant)
            picked.append(right[-1] and bool(is_picked))
        else:
            wrong.append(bool(is_picked))
    decides = any(is_picked is not None for _, is_picked in answers)
    shares = (right, picked, wrong) if decides else (right, [], [])
    shown = [f"{sum(share) / len(share):.3f}" if share else "-" for share in shares]
    return f"first {shown[0]:6} picked {shown[1]:6} false positives {shown[2]}"


def main() -> None:
    """Print a line for each dataset and router."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", nargs="+", metavar="FOLDER[:SPLIT]", help="BEIR folder")
    parser.add_argument("--limit", type=int, help="most prompts of a dataset, chosen by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--routers", nargs="+", choices=ROUTERS, default=list(ROUTERS))
    options = parser.parse_args()
    for given in options.dataset:
        folder, _, split = given.partition(":")
        dataset = read_dataset(folder, split=split or None, limit=options.limit, seed=options.seed)
        prompts = [prompt for prompt in dataset.queries if not prompt.mentions_name]
        fits = sum(bool(prompt.relevant) for prompt in prompts)
        print(f"{folder}, {dataset.split}: {len(dataset.documents)} documents, ", end="")
        print(f"{fits} prompts with a match, {len(prompts) - fits} without", flush=True)
        for name in options.routers:
            requirement, ask = ROUTERS[name]
            try:
                installed = crossgate.__version__ if name == "crossgate" else version(name)
            except PackageNotFoundError:
                print(f"  {name:28} not installed: pip install {requirement}")
                continue
            # Some packages write below the home folder when they are imported or used.
            with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(sys.stderr):
                os.environ["HOME"] = home
                library = write_library(dataset.documents, Path(home) / "skills")
                answers = ask(library, [prompt.text for prompt in prompts])
            print(f"  {name + ' ' + installed:28} {figures(answers, library, prompts)}", flush=True)


if __name__ == "__main__":
    main()
