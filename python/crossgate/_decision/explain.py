"""`Explanation`: the step at which a decision lost one document, and a change that would keep it.

The cascade decides, and this module reads its trace. It finds a remedy by replaying the trace with
other settings until the document is selected, or until stage 2 would have to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, NamedTuple

import crossgate._core as _core
from crossgate._decision.cascade import Request, replay, run
from crossgate._decision.stage1 import Stage1
from crossgate._support.errors import InputError
from crossgate._support.wording import counted
from crossgate._values.results import Document, RouteResult

_TEACH = "teach the query as an example of it (`crossgate teach`, `Index.teach`)"
_TEXTS_SHOWN = 3
_MOST_CHANGES = 12
_SURE_NEED = 0.5
_STAGE2 = "stage 2 would decide"
_NAMES = {"any_fits": "the probability that any document fits", "confidence": "the confidence"}

_Path = tuple[str, ...]

_MINIMUMS: Mapping[str, Sequence[tuple[str, _Path]]] = {
    "disagreement": [("blend", ("policy", "agreement"))],
    "rerank_min": [("score", ("policy", "rerank_min"))],
    "irrelevant": [("relevance", ("profile", "relevance", "threshold"))],
    "nothing_relevant": [("any_fits", ("profile", "answer", "rerank_threshold"))],
    "improbable": [
        ("any_fits", ("profile", "answer", "threshold")),
        ("confidence", ("profile", "answer", "confidence")),
        ("confidence", ("request", "min_confidence")),
    ],
}
"""The numbers that a code of `Hit.dropped` compares, with the settings that they are below."""

_MARGINS: Mapping[tuple[str, int], _Path] = {
    ("rerank_margin", 2): ("policy", "rerank_margin"),
    ("runner_up", 1): ("profile", "runner_up", "stage1"),
    ("runner_up", 2): ("profile", "runner_up", "stage2"),
}
"""The largest distance to the best score, by code and stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What became of one document in a decision.

    Attributes:
        id: The document's id.
        step: Stable code of the step that lost it: `denied`, `not_allowed`, `no_candidates`,
            `not_a_candidate`, `other_version`, `counterexample` or a code of `Hit.dropped`;
            `selected` if none did. See docs/reasons.md.
        text: One line with what happened, and the numbers that were compared.
        remedy: One line with the change that would select it; empty if nothing had to change.
        figures: The known numbers of the document by name: `cosine`, `bm25`, `blend`,
            `rerank_score`, `score`, `relevance`, `stage1_rank`, `stage2_rank`, `any_fits`,
            `confidence`, `candidates` (how many), and `threshold` (the limit that was missed). For
            `not_a_candidate` also `documents` (how many), `cosine_rank`, `bm25_rank` and
            `per_channel`. Ranks count from 1.
        result: The decision.
    """

    id: str
    step: str
    text: str
    remedy: str
    figures: Mapping[str, float]
    result: RouteResult = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values, with the selected ids instead of the decision."""
        values = {name: getattr(self, name) for name in ("id", "step", "text", "remedy")}
        return {**values, "figures": dict(self.figures), "selected": self.result.ids}


def explain(
    request: Request,
    document: Document,
    left_out: tuple[str, str, str] | None,
    nothing: Sequence[str] = (),
) -> Explanation:
    """Decide a request, and explain what became of a document.

    Args:
        request: The request.
        document: The document.
        left_out: Step, text and remedy if the caller has left the document out.
        nothing: Prompts of the index that no document fits.

    Raises:
        InputError: `unknown_document` if the index no longer has the document.
    """
    stage1 = request.stage1()
    result = run(replace(request, stage1=lambda: stage1))
    if left_out:
        return _explanation(document.id, result, *left_out)
    hit = next((hit for hit in result.hits if hit.id == document.id), None)
    if hit is None:
        return _not_found(document.id, stage1, request, result)
    explained = _Explained(document, request, result)
    if hit.dropped is None:
        text = f"it is selected, as number {result.ids.index(hit.id) + 1} of {len(result)}"
        return explained.by("selected", text, "")
    return explained.by_evidence(nothing) or explained.by_settings()


def _explanation(
    id: str, result: RouteResult, step: str, text: str, remedy: str, **figures: float | None
) -> Explanation:
    about = {"any_fits": result.any_fits, "confidence": result.confidence}
    figures |= {**about, "candidates": len(result.hits)}
    known = {name: value for name, value in figures.items() if value is not None}
    return Explanation(id=id, step=step, text=text, remedy=remedy, figures=known, result=result)


def _not_found(id: str, stage1: Stage1, request: Request, result: RouteResult) -> Explanation:
    """Explain by its ranks a document that is not a candidate."""
    if stage1.everything is None and stage1.documents:
        listed = counted(len(stage1.documents), "passage")
        text = f"it is not among the first {listed} that the index finds"
        return _explanation(id, result, "not_a_candidate", text, _TEACH)
    if stage1.everything is None:
        text = "the query is empty, so nothing was searched"
        return _explanation(id, result, "no_candidates", text, "pass a prompt or question")
    every = stage1.everything()
    own = next((scored for scored in every if scored.id == id), None)
    if own is None:
        raise InputError("unknown_document", f"the index no longer has the document {id!r}")

    def rank(score: Callable[[_core.Scored], float]) -> int:
        return 1 + sum((-score(other), other.id) < (-score(own), id) for other in every)

    ranks = {}
    if own.cosine is not None:
        ranks["cosine"] = rank(lambda scored: scored.cosine or 0.0)
    if own.cosine is None or own.bm25:  # BM25 does not rank a document without a common word
        ranks["BM25"] = rank(lambda scored: scored.bm25)
    named = " and ".join(f"{name} rank {rank}" for name, rank in ranks.items())
    most = request.profile.per_channel
    return _explanation(
        id,
        result,
        "not_a_candidate",
        f"{named} of {counted(len(every), 'document')}: stage 1 keeps the first {most} by cosine, "
        "by BM25 and by both together",
        f"{_TEACH}, or set `per_channel` of the profile to at least {min(ranks.values())}",
        cosine=own.cosine,
        bm25=own.bm25,
        blend=own.blend,
        cosine_rank=ranks.get("cosine"),
        bm25_rank=ranks.get("BM25"),
        documents=len(every),
        per_channel=most,
    )


class _Hurdle(NamedTuple):
    """A condition that a candidate missed.

    Attributes:
        text: The comparison.
        remedy: The setting that would meet it; empty if no setting does.
        changes: The new settings, by their paths in the trace; none if a replay cannot show it.
        threshold: The limit that was missed, if it is a number.
    """

    text: str
    remedy: str = ""
    changes: Mapping[_Path, Any] = {}
    threshold: float | None = None


class _Explained(NamedTuple):
    """A candidate and the decision about it."""

    document: Document
    request: Request
    result: RouteResult

    def by(self, step: str, text: str, remedy: str, threshold: float | None = None) -> Explanation:
        """Return the explanation with the figures of the candidate."""
        hit = next(hit for hit in self.result.hits if hit.id == self.document.id)
        names = ("cosine", "bm25", "blend", "rerank_score", "score", "relevance")
        figures = {name: getattr(hit, name) for name in (*names, "stage1_rank", "stage2_rank")}
        return _explanation(hit.id, self.result, step, text, remedy, **figures, threshold=threshold)

    def by_evidence(self, nothing: Sequence[str]) -> Explanation | None:
        """Explain a candidate that the evidence against it has lost; None for any other."""
        ruled_out = self._without(
            "other_version",
            "other_version",
            "its description names other versions of the same thing",
            (),
            removal="name the version in its description",
        )
        own = self.document.counterexamples
        if ruled_out or max(map(self._likeness, own), default=-1.0) >= max(
            map(self._likeness, nothing), default=-1.0
        ):
            reason = "the query is similar to a counterexample:"
            return ruled_out or self._without("counterexample", "counterexample", reason, own)
        return self._without(
            "counterexample",
            "counterexample",
            "the query is similar to a prompt that no document fits:",
            nothing,
            of_all=True,
        )

    def _likeness(self, text: str) -> float:
        """Return the share of the words of a text or the query that both have."""
        words, others = (set(side.lower().split()) for side in (self.request.prompt.searched, text))
        return len(words & others) / max(1, len(words | others))

    def _without(
        self,
        piece: str,
        step: str,
        reason: str,
        texts: Sequence[str],
        *,
        of_all: bool = False,
        removal: str | None = None,
    ) -> Explanation | None:
        """Explain a candidate that one piece of evidence has lost; None for any other.

        A piece `of_all` is about every candidate, comes from one text, and is removed from all.
        `removal` is the remedy; None to remove the piece.
        """
        trace, profile = self.result.trace, self.request.profile
        stage1 = deepcopy(trace["stage1"])
        position = [scored["id"] for scored in stage1].index(self.document.id)
        if not stage1[position].get("evidence", {}).get(piece):
            return None
        for place in range(len(stage1)) if of_all else [position]:
            stage1[place].get("evidence", {}).pop(piece, None)
            scored = [_core.Scored.from_dict(stage1[place])]
            (changed,) = _core.reblend(scored, profile.blend, evidence=profile.evidence)
            stage1[place] = changed.to_dict()
        then = self._achieved(trace, _replayed(trace, {("stage1",): stage1}))
        if not then:
            return None
        nearest = sorted(texts, key=self._likeness, reverse=True)
        most = 1 if of_all else _TEXTS_SHOWN
        shown = f" {', '.join(map(repr, nearest[:most]))}" if nearest else ""
        more = " and others" if len(texts) > most and not of_all else ""
        text = f"{reason}{shown}{more}; without that, {then}"
        if removal is None:
            removal = "remove it from the file of examples" if of_all else f"remove the {piece}"
        return self.by(step, text, f"{removal}, or {_TEACH}")

    def by_settings(self) -> Explanation:
        """Explain a candidate by the first condition that it missed, and name all settings."""
        trace: Mapping[str, Any] = self.result.trace
        step = _place(trace, self.document.id)["dropped"]
        hurdles: list[_Hurdle] = []
        then = ""
        while not then and len(hurdles) < _MOST_CHANGES:
            hurdles.append(self._hurdle(trace))
            if not hurdles[-1].changes:
                break
            before, trace = trace, _replayed(trace, hurdles[-1].changes)
            then = self._achieved(before, trace)
        settings = ", and ".join(hurdle.remedy for hurdle in hurdles if hurdle.remedy)
        if then == _STAGE2:
            settings += f"; then {then}"
        ways = [settings] if step == "over_limit" else [_TEACH, settings]
        first = hurdles[0]
        return self.by(step, first.text, ", or ".join(filter(None, ways)), first.threshold)

    def _achieved(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
        """Return what a change achieves; empty if the candidate is still lost."""
        if self._waits(after) and not self._waits(before):
            return _STAGE2
        return "" if _place(after, self.document.id)["dropped"] else "it would be selected"

    def _waits(self, trace: Mapping[str, Any]) -> bool:
        """Return whether stage 2 would have to run, or to read the candidate."""
        gate, read = trace["gate"], {pair["id"] for pair in trace["stage2"]}
        rank = _place(trace, self.document.id)["stage1_rank"]
        is_missing = not read or (rank - 1 in gate["pool"] and self.document.id not in read)
        return bool(self.request.rerankers) and gate["verdict"] == "ambiguous" and is_missing

    def _hurdle(self, trace: Mapping[str, Any]) -> _Hurdle:
        """Return the condition that the candidate missed in a trace."""
        place, gate, decision = _place(trace, self.document.id), trace["gate"], trace["decision"]
        scored = next(scored for scored in trace["stage1"] if scored["id"] == place["id"])
        rank, dropped = place["stage1_rank"], place["dropped"]
        if decision["reason"] == "no_overlap":
            return _Hurdle("there are no vectors, and no document shares a word with the query")
        if dropped in _MINIMUMS:
            known = {name: decision[name] for name in ("any_fits", "confidence")}
            return _minimum(trace, {**scored, **place, **known}, _MINIMUMS[dropped])
        if path := _MARGINS.get((dropped, decision["stage"])):
            best = next(of for of in decision["places"] if of["dropped"] != "disagreement")
            gap, limit = best["score"] - place["score"], _at(trace, path)
            text = f"its score is {gap:.3g} below that of {best['id']!r}, more than {limit:.3g}"
            remedy = f"set {_setting(path)} to at least {_rounded(gap, ROUND_CEILING)}"
            return _Hurdle(f"{text}, {_setting(path)}", remedy, {path: gap}, limit)
        if dropped == "below_floor":
            section = trace["request"]["section"]
            in_section = section in trace["policy"]["floors"]["sections"]
            path = ("policy", "floors", *(("sections", section) if in_section else ("default",)))
            # A low grade lowers the floor; rounding must not leave it above the cosine.
            least = max(-1.0, scored["cosine"] + _at(trace, path) - gate["floor"] - 1e-9)
            text = f"its cosine {scored['cosine']:.3g} is below the floor {gate['floor']:.3g}"
            remedy = f"set {_setting(path)} to at most {_rounded(least, ROUND_FLOOR)}"
            return _Hurdle(text, remedy, {path: least}, gate["floor"])
        if dropped == "over_limit":
            limit = trace["request"]["limit"]
            # `improbable` comes after the guardrails and the limit.
            passed = (None, "over_limit", "improbable")
            passing = [of["id"] for of in decision["places"] if of["dropped"] in passed]
            needed = passing.index(place["id"]) + 1
            text = f"it is number {needed} of those that pass, and the limit is {limit}"
            remedy = f"set `limit` to at least {needed}"
            return _Hurdle(text, remedy, {("request", "limit"): needed}, limit)
        if dropped == "not_named":
            return _Hurdle("the query names another document", "leave the name out of the query")
        if dropped == "below_cliff":
            text = f"the cosines fall steeply before it, which is number {rank} of stage 1"
            remedy = f"set `cliff_core` of the policy to at least {rank}"
            return _Hurdle(text, remedy, {("policy", "cliff_core"): rank})
        if rank - 1 not in gate["pool"]:
            pool = trace["profile"]["pool"]
            text = f"it is number {rank} of stage 1, and stage 2 reads the first {pool}"
            remedy = f"set `pool` of the profile to at least {rank}"
            return _Hurdle(text, remedy, {("profile", "pool"): rank}, pool)
        codes = {note.code for note in self.result.degraded} & {"budget", "partial_scores"}
        if codes:
            remedy = "pass a longer `budget_ms`" if "budget" in codes else ""
            return _Hurdle(f"stage 2 gave it no score ({', '.join(sorted(codes))})", remedy)
        text = "stage 2 stopped before it, since the rest could hardly change the first pick"
        return _Hurdle(text, "remove `anytime` from the profile")


def _minimum(
    trace: Mapping[str, Any], known: Mapping[str, Any], compared: Sequence[tuple[str, _Path]]
) -> _Hurdle:
    """Return the hurdle of numbers of which some are below their limits."""
    missed = {
        path: (name, known[name])
        for name, path in compared
        if (limit := _at(trace, path)) is not None
        # Only the caller's minimum is missed by an unknown number.
        and (path[0] == "request" if known[name] is None else known[name] < limit)
    }
    texts, remedies = [], []
    for path, (field_name, value) in missed.items():
        name = _NAMES.get(field_name, f"its {field_name}")
        if value is None:
            texts.append(f"{name} is unknown, and {_setting(path)} asks for one")
            remedies.append(f"pass no {_setting(path)}")
        else:
            texts.append(f"{name} is {value:.3g}, below {_at(trace, path):.3g}, {_setting(path)}")
            remedies.append(f"set {_setting(path)} to at most {_rounded(value, ROUND_FLOOR)}")
    need = trace["gate"]["signals"]["needs_document"]
    if need is not None and need < _SURE_NEED:
        texts.append(f"the query needs no document, with a probability of {1 - need:.2g}")
    changes = {path: value for path, (_, value) in missed.items()}
    limit = _at(trace, next(iter(missed)))
    return _Hurdle("; ".join(texts), ", and ".join(remedies), changes, limit)


def _place(trace: Mapping[str, Any], id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(of for of in trace["decision"]["places"] if of["id"] == id)
    return found


def _at(trace: Mapping[str, Any], path: _Path) -> Any:
    value: Any = trace
    for key in path:
        value = value[key]
    return value


def _replayed(trace: Mapping[str, Any], changes: Mapping[_Path, Any]) -> dict[str, Any]:
    """Return the trace of the same decision with other inputs."""
    changed = deepcopy(dict(trace))
    for path, value in changes.items():
        _at(changed, path[:-1])[path[-1]] = value
    return changed | replay(changed)


def _setting(path: _Path) -> str:
    name = f"`{'.'.join(path[1:])}`"
    return name if path[0] == "request" else f"{name} of the {path[0]}"


def _rounded(value: float, direction: str) -> str:
    return str(Context(prec=3, rounding=direction).create_decimal(value))
