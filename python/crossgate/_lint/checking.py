"""The checks of a library of documents; runs them all and sorts the findings, the worst first."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from crossgate._core import Blend
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._lint.audit import Alarm, Grade, alarms_as_findings, audit, grade_of
from crossgate._lint.library import (
    SEVERITIES,
    DocumentNames,
    Evidence,
    Finding,
    LibraryTerms,
    Places,
    cut,
)
from crossgate._lint.sentences import (
    LintedLibrary,
    SentenceResult,
    ask,
    own_sentences,
)
from crossgate._retrieval.document_index import Index
from crossgate._sources.common import printable
from crossgate._sources.reading import Problem, SourceLocation
from crossgate._support.checks import check_kind
from crossgate._support.wording import counted, share_of
from crossgate._values.profile_files import read_profile
from crossgate._values.results import Document

# Confusion: a document takes at least this number, and this share, of another one's labelled
# prompts; with the second share, the finding is an error.
CONFUSED_PROMPTS = 2
CONFUSED, CONFUSED_BADLY = 0.25, 0.5

WEIGHTS = {"description": 3.0, "trigger": 2.0, "heading": 1.0, "line": 1.0}
"""Weight of a sentence by kind: prompts resemble descriptions and triggers more than headings."""

NEAR = 0.7
"""A winner must have this share of the score of the whole document, with the sentence in it.

Leaving a sentence out lowers the score of a document more than other wording of a prompt does, so a
winner with a much lower score than the whole document is not counted."""

LEVEL = 0.95
"""With this share or more, a sentence counts as lost entirely."""

SHADOWED, SHADOWED_BADLY = 0.25, 0.6
"""A document is shadowed if another one wins this share of its sentences, by weight; with the
second share, the finding is an error."""

PRIOR = 3.0
"""Weight of a notional won sentence, so that a single loss counts little."""

AHEAD = 2
"""Number of documents ahead of a sentence's own that count as winners."""

SHORT = 4
"""A description with fewer different terms, beyond those of the title, is short."""

# A document is unfindable if no sentence of its head ranks it first, and at most the share of its
# sentences ranks it among the first three, about the rate of chance. It needs as many sentences,
# and as many in its head.
UNFOUND_RANKS = 3
UNFOUND = 1 / 3
UNFOUND_SENTENCES, UNFOUND_IN_HEAD = 4, 2

LIMITS = {"Codex": 1_024, "Claude Code": 1_536}
"""Maximum number of characters of a description in an agent's list of skills, in November 2026.

1,024 is also the limit of the Agent Skills specification; Claude Code counts `when_to_use`, too."""

_EXAMPLES = 3
_SKILL = "SKILL.md"
_RETIRED = re.compile(
    r"\W*(?:deprecated|obsolete|superseded)\b|"
    r".*\bthis (?:skill|tool) (?:is|has been) (?:deprecated|obsolete|superseded|replaced)\b",
    re.IGNORECASE | re.DOTALL,
)


def confusions(
    library: LintedLibrary, index: Index, prompts: Mapping[str, Sequence[str]], blend: Blend
) -> Iterator[Finding]:
    """Yield the pairs of which one document ranks first for labelled prompts of the other.

    `prompts` are the ids of the documents that fit each prompt; those that no document of the
    library fits are skipped. The index has the same documents as the library.
    """
    queries = sorted(query for query, ids in prompts.items() if {*ids} & {*library.documents})
    vectors = index.load_embedder().embed(queries) if index.dimension and queries else None
    totals: Counter[str] = Counter()
    taken: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, query in enumerate(queries):
        vector = vectors[number] if vectors is not None else None
        scored = index.search(query, vector, blend=blend, per_channel=_EXAMPLES).scored
        best = min(scored, key=lambda hit: (-hit.blend, hit.id), default=None)
        fitting = [id for id in prompts[query] if id in library.documents]
        totals.update(fitting)
        if best is not None and best.id not in fitting:
            for id in fitting:
                taken[id, best.id].append(query)
    for (owner, winner), lost in sorted(taken.items()):
        share = len(lost) / totals[owner]
        if len(lost) >= CONFUSED_PROMPTS and share >= CONFUSED:
            yield library.places.finding(
                "confusion",
                library.documents[owner],
                f"{winner} ranks first for {share_of(len(lost), totals[owner], 'prompt')} of "
                f"{owner}",
                [
                    Evidence(file=None, line=None, text=f'"{cut(text)}"')
                    for text in lost[:_EXAMPLES]
                ],
                f"Say in {owner} what these prompts mention, and in {winner} that it is not for "
                "them.",
                severity="error" if share >= CONFUSED_BADLY else "warning",
                others=[winner],
                hurt=share,
            )


def shadows(library: LintedLibrary) -> Iterator[Finding]:
    """Yield the pairs that shadow each other, each under the document that loses more."""
    lost: dict[tuple[str, str], list[SentenceResult]] = defaultdict(list)
    for answer in library.answers:
        for other in answer.ahead[:AHEAD]:
            if dict(answer.others)[other] >= max(library.floor, NEAR * answer.repeated):
                lost[answer.sentence.id, other].append(answer)
    shares = {pair: _lost_share(library, *pair, answers) for pair, answers in lost.items()}
    names = DocumentNames(library.documents.values())
    for (loser, winner), share in shares.items():
        back = shares.get((winner, loser), 0.0)
        taken, won = lost[loser, winner], lost.get((winner, loser), [])
        in_head = any(answer.sentence.field == "text" for answer in taken)
        proven = in_head and len(taken) + len(won) > 1
        if share < SHADOWED or not proven or (share, winner) < (back, loser):
            continue
        pairs = [(answer, winner) for answer in _clearest(taken, winner)[: _EXAMPLES - 1]]
        pairs += [(answer, loser) for answer in _clearest(won, loser)[:1]]
        yield library.places.finding(
            "shadowed",
            library.documents[loser],
            f"{winner} wins {share_of(len(taken), len(library.by_owner[loser]), 'sentence')} of "
            f"{loser}, and loses {len(won)} of its own {len(library.by_owner[winner])} to it",
            [library.evidence(answer.sentence, _outcome(answer, other)) for answer, other in pairs],
            _apart(library.documents[loser], library.documents[winner], names),
            severity="error" if share >= SHADOWED_BADLY else "warning",
            others=[winner],
            hurt=(share + back) / 2,
        )


def _lost_share(
    library: LintedLibrary, loser: str, winner: str, lost: Sequence[SentenceResult]
) -> float:
    """Return the share of a document's sentences that it loses, by weight."""
    total = sum(WEIGHTS[answer.sentence.kind] for answer in library.by_owner[loser])
    weight = sum(WEIGHTS[answer.sentence.kind] * _degree(answer, winner) for answer in lost)
    return weight / (total + PRIOR)


def _degree(answer: SentenceResult, winner: str) -> float:
    """Return how far a sentence is lost: 1 if the whole document would not have won it either."""
    if answer.repeated <= 0:
        return 1.0
    near = dict(answer.others)[winner] / answer.repeated
    return min(1.0, max(0.0, near - NEAR / 2) / (LEVEL - NEAR / 2))


def _outcome(answer: SentenceResult, winner: str) -> str:
    """Return a note: the winner, and whether it beats the whole document or only the rest."""
    owner = answer.sentence.id
    return f"finds {winner} before {owner if _misled(answer, winner) else f'the rest of {owner}'}"


def _misled(answer: SentenceResult, winner: str) -> bool:
    """Return whether the winner beats the whole document, with the sentence in it."""
    return dict(answer.others)[winner] > answer.repeated


def _apart(loser: Document, winner: Document, names: DocumentNames) -> str:
    """Return the advice for a shadowed document, without what the documents already have."""
    retired = [document.id for document in (loser, winner) if _RETIRED.match(document.text)]
    if retired:
        return f"Remove {' and '.join(retired)}: the description says that it is deprecated."
    apart = "Merge the two, or start each with a sentence on what only that one does"
    if loser.id in (id for _, id in names.named(winner.text, winner.id)):
        return f"{apart}: {winner.id} names {loser.id}, but describes it in {loser.id}'s own words."
    return f"{apart}, and say in {winner.id} when to use {loser.id} instead."


def _clearest(answers: list[SentenceResult], winner: str) -> list[SentenceResult]:
    """Sort results: first losses of the whole document, then of the head, then by margin."""
    return sorted(
        answers,
        key=lambda answer: (
            not _misled(answer, winner),
            answer.sentence.field != "text",
            answer.own - dict(answer.others)[winner],
            answer.sentence.start,
        ),
    )


def unfindable(library: LintedLibrary, shadowed: Container[str] = ()) -> Iterator[Finding]:
    """Yield documents whose descriptions are too short or do not differ from the others.

    The sentences of shadowed documents find others for that reason.
    """
    for document in library.documents.values():
        terms = library.words.terms(document.text)
        beyond = terms - library.words.terms(document.title)
        id, evidence, hurt = document.id, [], 1.0
        if not document.text.strip() and not document.body:
            continue  # a heading that the reader keeps for its subheadings
        if len(beyond) < SHORT:
            message = f"the description of {id} has {counted(len(beyond), 'word')} beyond its name"
            hurt = 1 - len(beyond) / SHORT
        elif all(map(library.words.is_common, terms)):
            message = f"every word of the description of {id} is common in this library"
        elif id in shadowed:
            continue
        else:
            answers = library.by_owner[id]
            heads = [answer.rank for answer in answers if answer.sentence.field == "text"]
            near = sum(answer.rank <= UNFOUND_RANKS for answer in answers)
            few = len(answers) < UNFOUND_SENTENCES or len(heads) < UNFOUND_IN_HEAD
            if few or min(heads) == 1 or near / len(answers) > UNFOUND:
                continue
            message = (
                f"no sentence of the description of {id} finds it first, and it is found for only "
                f"{near} of its {counted(len(answers), 'sentence')} among the first {UNFOUND_RANKS}"
            )
            hurt = 1 - near / len(answers)
            worst = sorted(answers, key=lambda it: (it.sentence.field != "text", -it.rank))
            evidence = [
                library.evidence(answer.sentence, f"finds {answer.others[0][0]} first")
                for answer in worst[: _EXAMPLES - 1]
            ]
        yield library.places.finding(
            "unfindable",
            document,
            message,
            evidence or [library.places.at(document, "text", 0, f'"{cut(document.text)}"')],
            "Name in the description the files, tools and tasks that a prompt for it would "
            "mention, and that no other document names.",
            hurt=hurt,
        )


def long_descriptions(library: LintedLibrary) -> Iterator[Finding]:
    """Yield the skills whose descriptions at least one agent cuts off."""
    for document in library.documents.values():
        length = len(document.text)
        cutting = {agent: limit for agent, limit in LIMITS.items() if length > limit}
        if not cutting or not (library.places.file(document.id) or "").endswith(_SKILL):
            continue
        limit = min(cutting.values())
        quoted = f'cut off: "{cut(document.text[limit:])}"'
        shown = " and ".join(f"{agent} shows {most:,}" for agent, most in cutting.items())
        yield library.places.finding(
            "long_description",
            document,
            f"the description of {document.id} has {counted(length, 'character')}; {shown}",
            [library.places.at(document, "text", limit, quoted)],
            "Shorten the description, or put triggers and exclusions first.",
            severity="warning" if len(cutting) == len(LIMITS) else "info",
            hurt=min(1.0, length / (4 * limit)),
        )


_ORDER = (
    "hostile_text",
    "source_problem",
    "confusion",
    "shadowed",
    "unfindable",
    "long_description",
    "suspect_text",
)
"""The order of codes within one severity: those that lose more prompts come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The findings for a library.

    Attributes:
        findings: The worst first.
        documents: Number of documents.
        sentences: Number of sentences of the documents that were used as queries.
    """

    findings: tuple[Finding, ...]
    documents: int
    sentences: int


def lint(
    index: Index,
    documents: Iterable[Document] | None = None,
    *,
    places: Mapping[str, SourceLocation] | None = None,
    problems: Sequence[Problem] = (),
    prompts: Mapping[str, Sequence[str]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LintReport:
    """Find problems in a library that hurt routing.

    The same documents give the same findings, whatever their order. The index is not changed.

    Args:
        index: The library.
        documents: The documents that the index was built from, with bodies of any length; None for
            the documents as the index keeps them.
        places: File and line of each document by id, so that a finding can name its line.
        prompts: Labelled prompts, each with the ids of the documents that fit; they measure which
            documents take prompts of others.
        problems: Files that were skipped or renamed when the sources were read.
        progress: Called with the number of texts embedded so far and the total.

    Raises:
        InputError: `no_documents` for an empty index.
        ModelError: If the embedder that made the index cannot be loaded or run.
    """
    check_kind("index", index, Index, "an Index: `crossgate lint FOLDER` makes one")
    if places is not None:
        check_kind("places", places, Mapping, "a mapping of ids to a SourceLocation, or None")
        for place in places.values():
            check_kind("a place", place, SourceLocation, "a SourceLocation")
    if prompts is not None:
        check_kind("prompts", prompts, Mapping, "a mapping of prompts to lists of ids, or None")
        for prompt, ids in prompts.items():
            check_kind(f"the entry of prompt {prompt!r}", ids, Iterable, "a list of ids")
    check_kind("problems", problems, Sequence, "a list of Problem")
    for problem in problems:
        check_kind("a problem", problem, Problem, "a Problem of a reader")
    library = (index.get(id) for id in index.ids) if documents is None else documents
    # A skill that is never suggested takes no prompt of another.
    suggested = (
        document
        for document in library
        if document and document.metadata.get("implicit") is not False
    )
    ordered = sorted(suggested, key=lambda document: document.id)
    with_vectors = [
        replace(document, vector=index._core.vector(document.id)) for document in ordered
    ]
    embedder = index.load_embedder() if index.dimension else None
    language = index._core.language
    private = Index.build(with_vectors, embedder=embedder, language=language)
    words = LibraryTerms(ordered, language)
    sentences = own_sentences(ordered, words)
    # The blend that a router without its own profile would use.
    profile = read_profile(DEFAULT_PROFILE)
    blend = profile.blend if profile.embedder == index.embedder else Blend()
    answers = ask(with_vectors, sentences, private, words, blend, progress)
    linted = LintedLibrary(
        documents={document.id: document for document in ordered},
        words=words,
        answers=answers,
        places=Places(places or {}),
    )
    shadowed = list(shadows(linted))
    listed = [
        *map(_source_problem, problems),
        *confusions(linted, private, prompts or {}, blend),
        *shadowed,
        *unfindable(linted, {finding.id for finding in shadowed}),
        *long_descriptions(linted),
        *(found for document in ordered for found in _audited(document, linted.places)[1]),
    ]
    return LintReport(
        findings=tuple(sorted(listed, key=_rank)), documents=len(ordered), sentences=len(sentences)
    )


def audited(
    documents: Iterable[Document],
    places: Mapping[str, SourceLocation],
    unread: Iterable[str] = (),
) -> dict[str, tuple[Grade, list[Finding]]]:
    """Return grade and findings of the audit by id, for documents without an index.

    `unread` are paths of further files, which are graded as a whole; the path is the id.
    """
    files = {printable(path): SourceLocation(path) for path in unread}
    located = Places({**places, **files})
    whole = (
        Document(id=id, title=id, text=id, body=text)
        for id, place in files.items()
        if (text := located.text(place.path)) is not None
    )
    results: dict[str, tuple[Grade, list[Finding]]] = {}
    for document in (*documents, *whole):
        alarms, findings = _audited(document, located)
        results[document.id] = grade_of(alarms), findings
    return results


def _audited(document: Document, places: Places) -> tuple[list[Alarm], list[Finding]]:
    """Audit a document, and the front matter of a skill, of which the document is only a part."""
    alarms = audit(document)
    findings = list(alarms_as_findings(document, alarms, places))
    path = places.path(document.id)
    text = places.text(path) if path and os.path.basename(path) == "SKILL.md" else None
    end = text.rfind(document.body) if text and document.body else len(text or "")
    if text and end > 0:
        front = replace(document, text=document.id, body=text[:end])
        texts = {alarm.text for alarm in alarms}
        more = [alarm for alarm in audit(front) if alarm.text not in texts]
        findings += alarms_as_findings(front, more, places)
        alarms += more
    return alarms, findings


def _rank(finding: Finding) -> tuple[int, int, float, str, tuple[str, ...], str, int, str]:
    return (
        SEVERITIES.index(finding.severity),
        _ORDER.index(finding.code),
        -finding.hurt,
        finding.id,
        finding.others,
        # Findings about a document are ordered by its id, never by its file.
        "" if finding.id else finding.file or "",
        0 if finding.id else finding.line or 0,
        finding.message,
    )


def _source_problem(problem: Problem) -> Finding:
    return Finding(
        code="source_problem",
        severity="error",
        id="",
        others=(),
        file=problem.path,
        line=problem.line,
        message=problem.reason,
        evidence=(),
        advice="Fix, rename or remove the file: an index has it by another name, or not at all.",
        hurt=1.0,
    )
