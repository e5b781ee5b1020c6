"""Teaches an index, or the prompt hooks, which skill a prompt should select."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._agents.hook.agents import AGENTS, Agent
from crossgate._agents.hook.install import calls_of, index_if_stale, options_in
from crossgate._agents.hook.options import BadHookOptions, HookOptions
from crossgate._agents.hook.skill_library import folder_of, library_of
from crossgate._retrieval.document_index import Index, id_of
from crossgate._sources.examples import (
    Example,
    examples_beside,
    examples_lock,
    read_examples,
)
from crossgate._support.errors import CrossgateError, IndexFileError, InputError
from crossgate._support.files import atomic_write, cannot_write

if TYPE_CHECKING:
    from crossgate._decision.router import Router

MOST_KNOWN = 500
"""Known prompts that are routed before and after, the last ones."""


@dataclass(frozen=True, slots=True)
class Teachable:
    """An index that can be taught.

    Attributes:
        index: The file of the index.
        examples: The file of its examples, which a rebuilt index learns again.
        agent: Name of the agent whose hook uses the index; empty for any other index.
    """

    index: Path
    examples: Path
    agent: str = ""


def index_file(path: Path) -> Teachable:
    """Return an index with the examples beside it."""
    return Teachable(path, examples_beside(path))


def hook_indexes(agents: Sequence[Agent] = (), progress: Any = None) -> list[Teachable]:
    """Return the indexes that prompt hooks use in the working folder, up to date.

    Args:
        agents: The agents; empty for those whose settings call the hook here.
        progress: Called with the number of skills embedded so far and the total.

    Raises:
        InputError: `out_of_range` if no agent is named and no settings call a hook.
    """
    indexes: dict[Path, Teachable] = {}
    problems: list[str] = []
    for agent in agents or AGENTS.values():
        commands = list(calls_of(agent).values())
        if not agents and not commands:
            continue
        options = HookOptions()
        with suppress(BadHookOptions):
            options = options_in(commands[0] if commands else [], agent)
        if options.index:
            path = Path(options.index).expanduser()
            indexes[path] = Teachable(path, examples_beside(path), agent.name)
            continue
        problem = index_if_stale(agent, options, os.getcwd(), progress)
        library = library_of(agent, os.getcwd(), options.skills)
        if library.index.exists():
            indexes[library.index] = Teachable(library.index, library.lessons, agent.name)
        else:
            problems.append(problem or f"{agent.name} has no skills here")
    if indexes:
        return list(indexes.values())
    raise InputError(
        "out_of_range",
        "; ".join(problems)
        or "no index to teach: name one with -i FILE, or an agent with --agent, since no settings "
        "call a prompt hook here",
    )


def teach_all(
    targets: Sequence[Teachable],
    prompt: str,
    name: str | None,
    *,
    fits: bool,
    reranker: Any = "default",
) -> list[dict[str, Any]]:
    """Teach a prompt to those of several indexes that have the skill; as `teach`."""
    lessons: list[dict[str, Any]] = []
    unknown: CrossgateError | None = None
    for target in targets:
        try:
            lessons.append(teach(target, prompt, name, fits=fits, reranker=reranker))
        except InputError as error:
            if error.code != "unknown_document":
                raise
            unknown = unknown or error
    if unknown is not None and not lessons:
        raise unknown
    return lessons


def teach(
    target: Teachable, prompt: str, name: str | None, *, fits: bool, reranker: Any = "default"
) -> dict[str, Any]:
    """Teach an index a prompt, in its file and in its file of examples.

    The file keeps lessons in their order, because a rebuilt index learns them again one by one, and
    the last lesson about a prompt counts. Other processes may teach the same index meanwhile.

    Args:
        target: The index.
        prompt: The prompt.
        name: Id or name of the skill; None if no skill fits.
        fits: Whether the prompt should select the skill.
        reranker: Stage 2, by which the known prompts are decided.

    Returns:
        The decision about the prompt, and the known prompts that are decided differently now.

    Raises:
        InputError: `unknown_document`; `malformed_example` for a broken line in the file of
            examples; as `Index.teach`.
        IndexFileError: If the index cannot be read or written.
    """
    from crossgate._decision.router import Router

    index = Index.open(target.index)
    id = None if name is None else _id(index, name)
    router = Router(index, reranker=reranker)
    known = [text for text in dict.fromkeys(_examples(index)) if text != prompt][-MOST_KNOWN:]
    before = _picks(router, known)
    with examples_lock(target.examples):
        index = Index.open(target.index)  # another process may have taught it meanwhile
        earlier = read_examples(target.examples)
        is_new = index.teach(prompt, id, fits=fits)
        example = Example(prompt, id, id is not None and fits)
        _write(target.examples, [*(row for row in earlier if row != example), example])
        if is_new:
            index.save(target.index)
    router = Router(index, reranker=reranker)
    after = _picks(router, known)
    result = router.route(prompt, limit=1)
    changed = zip(known, before, after, strict=True)
    return {
        "index": str(target.index),
        "agent": target.agent or None,
        "examples": str(target.examples),
        "prompt": prompt,
        "skill": id,
        "fits": example.fits,
        "new": is_new,
        "selected": result.ids,
        "confidence": result.confidence,
        "known": len(known),
        "changed": [
            {"prompt": text, "before": old, "after": new}
            for text, old, new in changed
            if old != new
        ],
    }


def _id(index: Index, name: str) -> str:
    """Return the id of a skill by its id, its title, or its name in the agent.

    Raises:
        InputError: `unknown_document`, with similar names.
    """
    try:
        return id_of(index, name)
    except InputError:
        folder = name.rpartition(":")[2]  # the agent shows the name of the plug-in before it
        for id in index:
            if folder and folder in (id, folder_of(index[id])):
                return id
        raise


def _write(path: Path, examples: Sequence[Example]) -> None:
    """Write a file of examples.

    Raises:
        IndexFileError: `index_unwritable`.
    """
    try:
        with atomic_write(path) as stream:
            stream.writelines(example.line() for example in examples)
    except OSError as error:
        message = cannot_write(f"the examples {path}", error)
        raise IndexFileError("index_unwritable", message) from error


def _examples(index: Index) -> Iterator[str]:
    for id in index:
        yield from (*index[id].examples, *index[id].counterexamples)
    yield from index.nothing


def _picks(router: Router, prompts: Sequence[str]) -> list[list[str]]:
    return [result.ids for result in router.route_many(prompts, progress=False, limit=1)]
