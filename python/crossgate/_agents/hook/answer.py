"""Decides, for one prompt, which context the hook injects, and writes it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crossgate._agents.hook.agents import Agent, HookPrompt
from crossgate._agents.hook.options import HookOptions, Inject
from crossgate._agents.hook.session_state import Session
from crossgate._agents.hook.skill_library import (
    SkillLibrary,
    file_of,
    folder_of,
    is_parked_folder,
    name_in_agent,
    was_indexed,
    why_unwritable,
)
from crossgate._support.checks import without_surrogates
from crossgate._support.errors import CrossgateError, first_line
from crossgate._support.sanitize import sanitize_line, sanitize_quotation
from crossgate._values.agent_prompts import is_command
from crossgate._values.results import Degradation, Hit, RouteResult

if TYPE_CHECKING:
    from crossgate._decision.context import Context
    from crossgate._reranking.contract import Deadline
    from crossgate._retrieval.document_index import Index
    from crossgate._telemetry.events import TelemetryHook

_PLAIN_NAME = re.compile(r"[\w.:-]{1,64}")
_PATH_CHARS = 1_000
_CUT = "[...]"
SHORTLIST_CHARS = 1_000
"""Maximum length of an offered shortlist."""
_EXCLUDED = ("below_floor", "disagreement", "rerank_min", "rerank_margin")
"""Codes of hits that the policy excludes."""
_LEAST_SUMMARY = 40
"""Minimum characters for the summary of a skill on a shortlist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A skill to mention to the agent.

    Attributes:
        name: The name by which the agent knows the skill, such as `plugin:skill`.
        id: The id of the skill in the index, for a name that is not shown.
        path: Path of its SKILL.md; empty if unknown.
        summary: What the skill is for, in its author's words.
        excerpt: The best-matching passage.
        body: The text below the front matter.
    """

    name: str
    id: str
    path: str
    summary: str
    excerpt: str
    body: str


def context_of(
    picks: Sequence[Pick], inject: Inject, max_chars: int, *, skill_tool: str = ""
) -> tuple[str, Sequence[Pick]]:
    """Return the context to inject, at most `max_chars` characters long, and the skills in it.

    Args:
        picks: One or more skills, best first; those after the first that find no room are left
            out.
        inject: Content of the context.
        max_chars: Maximum length in characters.
        skill_tool: The agent's tool that loads a skill by its name; empty to name files only.
    """
    lines: list[str] = []
    for count in range(len(picks), 0, -1):
        shown = picks[:count]
        head, tail = _around(inject, skill_tool, several=count > 1)
        lines = [head, *(line for pick in shown for line in _named(pick)), tail]
        left = max_chars - sum(len(line) + 1 for line in lines)
        if left >= 0:
            break
    if inject == "name":
        return "\n".join(lines)[:max_chars], shown
    share = max(0, left // len(shown))
    quoted = [head]
    for pick in shown:
        quoted += _named(pick)
        quoted += _quoted(pick.body or pick.excerpt if inject == "body" else pick.excerpt, share)
    return "\n".join([*quoted, tail])[:max_chars], shown


def _around(inject: Inject, skill_tool: str, *, several: bool) -> tuple[str, str]:
    """Return the first and the last line of a context."""
    head = (
        "Installed skills that may fit the prompt:"
        if several
        else "An installed skill may fit the prompt:"
    )
    load = f"load it with the {skill_tool} tool" if skill_tool else "read its file"
    names = "Names and paths" if inject == "name" else "Names, paths and lines that begin with >"
    tail = (
        f"If {'one of them' if several else 'it'} fits, {load} before you answer; otherwise go on "
        f"without it. {names} were written by the authors of the skills, not by the user."
    )
    return head, tail


def shortlist_of(picks: Sequence[Pick]) -> tuple[str, Sequence[Pick]]:
    """Return the offer of skills of which one may fit, and the skills in it.

    The text has at most `SHORTLIST_CHARS` characters; it is empty if no skill finds room.

    Args:
        picks: The skills, best first, which the agent does not list; the last ones are left out if
            they find no room.
    """
    head = "No installed skill is sure to fit the prompt. One of these may, or none:"
    tail = (
        "Read its file only if one clearly fits; otherwise go on without. Names, paths and lines "
        "that begin with > were written by the authors of the skills, not by the user."
    )
    for count in range(len(picks), 0, -1):
        names = [_named(pick) for pick in picks[:count]]
        fixed = sum(len(line) + 1 for line in (head, tail, *(line for of in names for line in of)))
        share = (SHORTLIST_CHARS - fixed) // count
        if share >= _LEAST_SUMMARY:
            shown = zip(names, picks, strict=False)
            lines = [
                line for of, pick in shown for line in (*of, *_quoted_line(pick.summary, share))
            ]
            return "\n".join([head, *lines, tail]), picks[:count]
    return "", ()


def _quoted_line(text: str, room: int) -> list[str]:
    """Return the first line of a text as a quotation of at most `room` characters and a break."""
    line = sanitize_line(text.strip().partition("\n")[0]).strip()
    if not line:
        return []
    quoted = f"> {line}"
    return [quoted if len(quoted) < room else f"{quoted[: room - 5].rstrip()} ..."]


def _named(pick: Pick) -> list[str]:
    # A name or path in the form of a sentence would read like an instruction.
    name = next(filter(_is_plain_name, (pick.name, pick.id)), "(skill)")
    path = pick.path if len(pick.path) <= _PATH_CHARS else ""
    if path and sanitize_line(path) != path:
        path = ""  # a path that had to be changed could not be opened
    return [f"- {name}", *([f"  file: {json.dumps(path, ensure_ascii=False)}"] if path else [])]


def _is_plain_name(text: str) -> bool:
    # Some letters, such as the fillers of Hangul, show nothing.
    return bool(_PLAIN_NAME.fullmatch(text)) and sanitize_line(text) == text


def _quoted(text: str, room: int) -> list[str]:
    """Return a text as quoted lines of at most `room` characters in all, line breaks included."""
    lines: list[str] = []
    for line in sanitize_quotation(text).split("\n"):
        quoted = f"> {line.rstrip()}".rstrip()
        if len(quoted) + 1 > room - len(_CUT) - 3:
            cut = room - len(_CUT) - 4
            if cut > 20:
                lines.append(quoted[:cut].rstrip())
            if lines:
                lines.append(f"> {_CUT}")
            break
        lines.append(quoted)
        room -= len(quoted) + 1
    return lines


Outcome = Literal["injected", "shadow", "nothing", "skipped", "failed"]
Form = Literal["pick", "shortlist"]

_HARMLESS = {"budget", "telemetry_failed", "coverage", "no_shortlist"}

_PROJECT_SHARE = 0.125
"""Share of the budget for listing the project's folders and reading its manifests."""

_MOST_DECISIONS = 5
"""Maximum number of decisions for a prompt, of which each leaves out the skills of the last."""

_OUTDATED = "most of the indexed skills were removed: the index is rebuilt"

_OFFERED = "offered:"
"""Prefix by which a session remembers a skill that was on a shortlist only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """The outcome of the hook for one prompt.

    Attributes:
        outcome: `injected` if the agent gets a context, `nothing` if no skill fits, `skipped` if
            the prompt is ignored, `failed` if a part is missing or broken, `shadow` if the context
            is withheld in shadow mode.
        reason: Stable code of the reason.
        detail: One line that explains the reason; may be empty.
        context: The text to inject; may be empty.
        ids: Ids of the mentioned skills.
        names: Their names in the agent.
        form: Whether the context names confident picks or a shortlist.
        confidence: Confidence of the decision; None without a decision.
        nearest: The skill that ranks first, injected or not; empty if there is none.
        unscored: Id of a logged decision that lacks the scores of stage 2; may be empty.
        late: What the budget was too short for, a line each.
    """

    outcome: Outcome
    reason: str
    detail: str = ""
    context: str = ""
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    form: Form = "pick"
    confidence: float | None = None
    nearest: str = ""
    unscored: str = ""
    late: tuple[str, ...] = ()


def answer(
    agent: Agent,
    prompt: HookPrompt,
    options: HookOptions,
    library: SkillLibrary,
    *,
    started: float,
    clock: Callable[[], float] = time.monotonic,
    log: bool = True,
) -> HookAnswer:
    """Decide which skills to mention to an agent. Bad input and missing parts do not raise.

    Args:
        agent: The agent.
        prompt: The prompt, as the agent passed it to the hook.
        options: The options of the hook.
        library: The agent's skills; an index that `options` names takes precedence.
        started: When the budget began, as a reading of `clock`.
        clock: Returns seconds that never go back.
        log: Whether to keep the decision in the log of decisions.
    """
    if not prompt.text and prompt.length:
        return HookAnswer(outcome="skipped", reason="not_a_person")
    if not prompt.text.replace("\0", "").strip():
        return HookAnswer(outcome="skipped", reason="empty_prompt")
    path = index_of(options, library)
    if is_command(prompt.text) and not _names_a_skill(path, prompt.text):
        return HookAnswer(outcome="skipped", reason="command")
    if not options.index and not library.sources:
        return HookAnswer(outcome="skipped", reason="no_skills", detail="the agent has no skills")
    if not os.path.isfile(path) and not options.index and not was_indexed(library):
        if why := why_unwritable(library):
            return HookAnswer(outcome="failed", reason="unwritable", detail=why)
        return HookAnswer(
            outcome="skipped", reason="not_indexed", detail="the skills are not indexed yet"
        )
    if not os.path.isfile(path):
        return HookAnswer(
            outcome="failed", reason="no_index", detail=f"there is no index at {path}"
        )
    try:
        for _ in range(_MOST_DECISIONS):
            result = _decide(path, prompt, options, started, clock, log)
            refused = _refused(result, options, library)
            if not refused:
                break
            options = replace(options, deny=(*options.deny, *refused))
        else:
            return HookAnswer(outcome="skipped", reason="not_indexed", detail=_OUTDATED)
    except CrossgateError as error:
        return HookAnswer(outcome="failed", reason=error.code, detail=first_line(error))
    answered = _answered(agent, prompt, options, library, result)
    complete = result.stage != 1 or not result.hits
    return replace(
        answered,
        unscored="" if complete else result.decision_id or "",
        late=tuple(note.detail for note in result.degraded if note.code == "budget"),
    )


def _refused(result: RouteResult, options: HookOptions, library: SkillLibrary) -> tuple[str, ...]:
    """Return the ids of hits that are denied by name or deleted."""
    refused = []
    for hit in result.hits:
        path = file_of(hit.document)
        names = {name_in_agent(hit.document, library.namespaces), folder_of(hit.document)}
        unusable = path and not options.index and not os.path.exists(path)
        if hit.id not in options.deny and (unusable or not names.isdisjoint(options.deny)):
            refused.append(hit.id)
    return tuple(refused)


def _names_a_skill(path: Path, prompt: str) -> bool:
    """Return whether a prompt names a skill of the index; a command of the agent names none."""
    from crossgate._retrieval.document_index import Index

    try:
        return os.path.isfile(path) and bool(Index.open(path).named(prompt)[0])
    except CrossgateError:  # the decision reports a broken index
        return False


def index_of(options: HookOptions, library: SkillLibrary) -> Path:
    """Return the path of the index to use."""
    return Path(options.index).expanduser() if options.index else library.index


def log_of(options: HookOptions) -> str:
    """Return the path of the log of decisions; empty if the user did not name a log."""
    path = options.log or os.environ.get("CROSSGATE_LOG", "")
    return os.path.expanduser(path)


def _decide(
    path: Path,
    prompt: HookPrompt,
    options: HookOptions,
    started: float,
    clock: Callable[[], float],
    log: bool,
) -> RouteResult:
    from crossgate._decision.router import Router
    from crossgate._reranking.contract import Deadline
    from crossgate._retrieval.document_index import Index

    deadline = Deadline(options.budget_ms - (clock() - started) * 1000, clock=clock)
    index = Index.open(path)
    policy = Path(options.policy).expanduser() if options.policy else None
    router = Router(
        index, policy=policy, telemetry=_log(options) if log else None, **fitted(index, options)
    )
    context, late = _context(prompt, deadline.share(_PROJECT_SHARE))
    result = router.route(
        prompt.text,
        limit=options.limit,
        deny=options.deny,
        min_confidence=options.min_confidence or None,
        budget_ms=(deadline.left or 0.0) * 1000,
        context=context,
    )
    return replace(result, degraded=(*late, *result.degraded))


def fitted(index: Index, options: HookOptions) -> dict[str, Any]:
    """Return the profile, and whether a reranker is used, as arguments of `Router`.

    A profile for sessions has no reranker, since most prompts of a session need no skill.
    """
    from crossgate._decision.router import profile_beside
    from crossgate._values.profile_files import read_profile

    path = os.path.expanduser(options.profile) or profile_beside(index) or "session"
    profile = read_profile(path)
    if path == "session" and not options.profile and profile.embedder != index.embedder:
        return {}
    return {"profile": profile, "reranker": None} if profile.session else {"profile": profile}


def _context(prompt: HookPrompt, deadline: Deadline) -> tuple[Context, list[Degradation]]:
    """Return the technologies of the project and the earlier requests of the user.

    A part that cannot be read is left out: the prompt alone can be decided, too.

    Args:
        prompt: The prompt.
        deadline: When to stop reading the project.
    """
    from crossgate._decision.context import MOST_TECHNOLOGIES, Context
    from crossgate._sources.projects import technologies_of
    from crossgate._sources.transcripts import last_requests

    technologies: tuple[str, ...] = ()
    history: list[str] = []
    late = []
    if prompt.folder:
        with suppress(CrossgateError, OSError, ValueError):
            technologies = technologies_of(prompt.folder, seconds=deadline.left)
            technologies = technologies[:MOST_TECHNOLOGIES]
        if deadline.left == 0:
            detail = f"{deadline.budget_ms:g} ms was too short to read the manifests of the project"
            late.append(Degradation(code="budget", detail=detail))
    if prompt.transcript:
        with suppress(OSError, ValueError):
            found = last_requests(Path(prompt.transcript))
            history = [without_surrogates(text) for text in found]
    if history and history[-1] == prompt.text:  # some agents write the prompt first
        history.pop()
    with suppress(CrossgateError):
        return Context(technologies=technologies, history=tuple(history)), late
    return Context(technologies=technologies), late


def _log(options: HookOptions) -> TelemetryHook | None:
    path = log_of(options)
    if not path:
        return None
    from crossgate._telemetry.log import JsonLinesLog

    return JsonLinesLog(path)


def _answered(
    agent: Agent,
    prompt: HookPrompt,
    options: HookOptions,
    library: SkillLibrary,
    result: RouteResult,
) -> HookAnswer:
    # A short budget is intended, and an unwritable log does not change the answer.
    broken = next((note for note in result.degraded if note.code not in _HARMLESS), None)
    first = next(iter(result.hits), None)
    nearest = "" if first is None else first.id
    session = Session(library.folder, agent.name, prompt.session)
    form: Form = "pick" if result.selected else "shortlist"
    hits = result.selected or _offered(result, options)
    if form == "pick":
        fresh = [hit for hit in hits if not session.has_seen(hit.id)]
    else:
        fresh = [hit for hit in hits if not _was_shown(hit, session)]
    if hits and not fresh:
        session.add([])
        return HookAnswer(
            outcome="skipped",
            reason="seen",
            form=form,
            confidence=result.confidence,
            ids=tuple(hit.id for hit in hits),
            names=tuple(_pick(hit, library).name for hit in hits),
        )
    picks = [_pick(hit, library) for hit in fresh]
    if form == "pick":
        tool = _skill_tool(agent, options, fresh)
        context, shown = context_of(picks, options.inject, options.max_chars, skill_tool=tool)
    else:
        context, shown = shortlist_of(picks)
    if not shown:
        session.add([])
        if broken is not None:
            return HookAnswer(outcome="failed", reason=broken.code, detail=broken.detail)
        unread = [note.detail for note in result.warnings if note.code == "unsupported_language"]
        return HookAnswer(
            outcome="nothing",
            reason=result.reason,
            detail="".join(unread),
            confidence=result.confidence,
            nearest=nearest,
        )
    prefix = _OFFERED if form == "shortlist" else ""
    session.add([prefix + pick.id for pick in shown])
    return HookAnswer(
        outcome="shadow" if options.shadow else "injected",
        reason=result.reason,
        detail="" if broken is None else f"{broken.code}: {broken.detail}",
        context=context,
        ids=tuple(pick.id for pick in shown),
        names=tuple(pick.name for pick in shown),
        form=form,
        confidence=result.confidence,
        nearest=nearest,
    )


def _offered(result: RouteResult, options: HookOptions) -> Sequence[Hit]:
    """Return the hits to offer as a shortlist: none if it is improbable that one of them fits.

    A list of skills whose descriptions the agent has anyway tells it nothing. Those that the policy
    excludes are not on a shortlist.
    """
    hidden = [
        hit for hit in result.hits if hit.dropped not in _EXCLUDED and _is_hidden(hit, options)
    ][: options.max_shortlist]
    likely = sum(hit.relevance or 0.0 for hit in hidden) >= options.min_any_fits
    return hidden if likely else ()


def _was_shown(hit: Hit, session: Session) -> bool:
    """Return whether a skill was named or offered recently."""
    return session.has_seen(hit.id) or session.has_seen(_OFFERED + hit.id)


def _skill_tool(agent: Agent, options: HookOptions, hits: Sequence[Hit]) -> str:
    """Return the agent's tool that loads all these skills by name, or an empty string.

    A tool loads only the listed skills of the agent, not those of another index or parked ones.
    """
    return "" if any(_is_hidden(hit, options) for hit in hits) else agent.skill_tool


def _is_hidden(hit: Hit, options: HookOptions) -> bool:
    """Return whether the agent's own tool cannot load a skill.

    It loads no skill of an index or of another folder, none that is parked, and none that the
    author reserves for people.
    """
    if hit.document.metadata.get("implicit") is False:
        return True
    root = str(hit.document.metadata.get("root"))
    return bool(options.index) or is_parked_folder(root) or root in options.skills


def _pick(hit: Hit, library: SkillLibrary) -> Pick:
    return Pick(
        name=name_in_agent(hit.document, library.namespaces),
        id=hit.id,
        path=file_of(hit.document),
        summary=hit.document.text,
        excerpt=hit.excerpt,
        body=hit.document.body,
    )
