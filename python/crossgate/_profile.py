"""Calibration profiles: every number that a decision depends on, fitted for one pair of models."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from crossgate._errors import ProfileError

SCHEMA = "crossgate-profile/1"

Mode = Literal["replace", "rrf", "weighted"]

MOST_CANDIDATES = 1_000_000
"""The largest number of candidates that a profile may ask for."""

_MOST = sys.float_info.max
_LEAST = sys.float_info.min


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """How cosine and BM25 become the stage-1 score.

    Attributes:
        cosine_weight: Weight of the cosine, at least 0; only the ratio to the other counts.
        bm25_weight: Weight of the bounded BM25 score, at least 0.
        bm25_half: The BM25 score that is mapped to 0.5 by `score / (score + bm25_half)`.
    """

    cosine_weight: float = 0.7
    bm25_weight: float = 0.3
    bm25_half: float = 8.0

    def __post_init__(self) -> None:
        _check_number("blend", "cosine_weight", self.cosine_weight, least=0)
        _check_number("blend", "bm25_weight", self.bm25_weight, least=0)
        _check_number("blend", "bm25_half", self.bm25_half, least=_LEAST)
        if not self.cosine_weight and not self.bm25_weight:
            raise ProfileError("profile_malformed", "both weights of the blend are 0")
        if self.cosine_weight + self.bm25_weight > _MOST:
            raise ProfileError("profile_malformed", "the weights of the blend add up to infinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """When stage 1 decides alone. A rule whose threshold is None is off.

    Attributes:
        require_overlap: Without vectors, nothing is relevant that shares no term with the query.
        relevance_cosine: Nothing is relevant where the best cosine lies below, unless words say
            otherwise; in [-1, 1].
        relevance_bm25: From this BM25 score on, words alone make something relevant. None: never.
        confident_cosine: The least cosine of a confident winner; in [-1, 1].
        confident_gap: Its least lead in cosine over the next; a tie is no lead, even for 0.
        lexical_score: The least BM25 score of a lexical winner.
        lexical_gap: Its least lead in BM25 over the next.
        agreed_margin: The least lead in blend of a winner on which cosine and BM25 agree.
        disagreed_margin: The least lead in blend of a winner on which they do not.
    """

    require_overlap: bool = True
    relevance_cosine: float | None = None
    relevance_bm25: float | None = None
    confident_cosine: float | None = None
    confident_gap: float = 0.0
    lexical_score: float | None = None
    lexical_gap: float = 0.0
    agreed_margin: float | None = None
    disagreed_margin: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.require_overlap, bool):
            raise ProfileError("profile_malformed", "gate.require_overlap must be true or false")
        for one in fields(self):
            if one.name != "require_overlap":
                value = getattr(self, one.name)
                _check_number("gate", one.name, value, optional=one.default is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """A logistic model of how probable it is that the first pick fits, rather than nothing.

    The log-odds are the sum of the intercept and each weight times its signal. The model knows the
    queries that it was fitted on: with another share of queries that nothing fits, or another
    corpus, its order holds better than its probabilities.

    Attributes:
        intercept: The log-odds where every signal is 0.
        cosine: Weight of the best cosine.
        bm25: Weight of the natural logarithm of 1 + the best BM25 score.
        blend_margin: Weight of the best blend's lead over the next.
        agreement: Weight of 1 where cosine and BM25 agree on the best candidate.
        logit: Weight of the first candidate's logit; of no effect for stage 1, like the next two.
        score_margin: Weight of the best combined score's lead over the next.
        same_first: Weight of 1 where both stages put the same candidate first.
    """

    intercept: float = 0.0
    cosine: float = 0.0
    bm25: float = 0.0
    blend_margin: float = 0.0
    agreement: float = 0.0
    logit: float = 0.0
    score_margin: float = 0.0
    same_first: float = 0.0

    def __post_init__(self) -> None:
        for one in fields(self):
            _check_number("confidence", one.name, getattr(self, one.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How probable it must be that the first pick fits. A bar that is None is off.

    Attributes:
        stage1: The model for what stage 1 saw; None where none was fitted: no bar holds then.
        stage2: The model for what both stages saw.
        floor: Below this probability, in [0, 1], by stage 1 nothing is relevant, and stage 2 is not
            asked.
        least: Below this probability, in [0, 1], there is no clear winner after stage 1, and no
            answer after the stage that decided.
    """

    stage1: Confidence | None = None
    stage2: Confidence | None = None
    floor: float | None = None
    least: float | None = None

    def __post_init__(self) -> None:
        for name in ("stage1", "stage2"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, Confidence)):
                raise ProfileError("profile_malformed", f"answer.{name} must be a Confidence")
        for name in ("floor", "least"):
            _check_number("answer", name, getattr(self, name), least=0, most=1, optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Which candidates stage 2 reads. Each number is at most 1,000,000.

    Attributes:
        per_channel: How many candidates cosine, BM25 and their blend each bring in; at least 2.
        rerank_top_k: How many of them, best blend first, stage 2 reads at most.
        core: How many from the top always stay where the tail below a score cliff is cut; None
            to cut nothing.
    """

    per_channel: int = 10
    rerank_top_k: int = 20
    core: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("per_channel", 2), ("rerank_top_k", 1), ("core", 1)):
            value = getattr(self, name)
            if not (value is None and name == "core") and type(value) is not int:
                raise ProfileError(
                    "profile_malformed", f"pool.{name} is {value!r}: it must be a whole number"
                )
            _check_number(
                "pool", name, value, least=least, most=MOST_CANDIDATES, optional=name == "core"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """How relevant a candidate must be before anything decides about it, by its cosine.

    Attributes:
        default: The least cosine, in [-1, 1], of a candidate in a section that has no floor of its
            own, and where the request names none. None: no floor.
        sections: The least cosine by section.
        relax: How far below the floor a candidate may lie where the retrieval is graded C, D or F;
            at least 0.
        widen: How many candidates more stage 2 reads then; at least 0.
        source_type: The key of a document's metadata that holds the type of its source. No cut
            below a score cliff takes the last candidate of a type.
    """

    default: float | None = None
    sections: dict[str, float] = field(default_factory=dict)
    relax: float = 0.0
    widen: int = 0
    source_type: str = "source_type"

    def __post_init__(self) -> None:
        if not isinstance(self.sections, dict) or not all(
            isinstance(name, str) for name in self.sections
        ):
            raise ProfileError("profile_malformed", "floors.sections must be a JSON object")
        if not isinstance(self.source_type, str):
            raise ProfileError(
                "profile_malformed", f"floors.source_type is {self.source_type!r}: it must be text"
            )
        _check_number("floors", "default", self.default, least=-1, most=1, optional=True)
        for name, floor in self.sections.items():
            _check_number("floors.sections", name, floor, least=-1, most=1)
        _check_number("floors", "relax", self.relax, least=0)
        if type(self.widen) is not int:
            raise ProfileError(
                "profile_malformed", f"floors.widen is {self.widen!r}: it must be a whole number"
            )
        _check_number("floors", "widen", self.widen, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """How the cross-encoder's logits and stage 1 become one order.

    Attributes:
        mode: `replace` takes the logits alone, `rrf` fuses the two orders by reciprocal rank,
            `weighted` adds up cosine, bounded BM25 and logit with the weights below.
        k: Constant of reciprocal rank fusion, above 0.
        cosine: Weight of the cosine under `weighted`.
        bm25: Weight of the bounded BM25 score under `weighted`.
        logit: Weight of the logit under `weighted`.
    """

    mode: Mode = "rrf"
    k: float = 60.0
    cosine: float = 0.0
    bm25: float = 0.0
    logit: float = 1.0

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            modes = ", ".join(get_args(Mode))
            raise ProfileError(
                "profile_malformed", f"combine.mode is {self.mode!r}: it must be one of {modes}"
            )
        _check_number("combine", "k", self.k, least=_LEAST)
        for name in ("cosine", "bm25", "logit"):
            _check_number("combine", name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """What a ranked candidate must clear to be selected. A bar that is None is off.

    Attributes:
        minimum: The least score, on the scale of the scores that are ranked.
        margin: How far below the best eligible score a score may lie.
        agreement: The least stage-1 blend, in [-1, 1], whatever the cross-encoder says.
    """

    minimum: float | None = None
    margin: float | None = None
    agreement: float | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            _check_number("guardrails", one.name, getattr(self, one.name), optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """How the scores of one tier of stage 2 are used.

    The default value is right for a tier that nobody fitted: whatever its scale, only its order
    counts, and no bar stands on its scores.

    Attributes:
        combine: How its scores and stage 1 become one order.
        guardrails: Bars on the combined score.
    """

    combine: Combine = field(default_factory=Combine)
    guardrails: Guardrails = field(default_factory=Guardrails)

    def __post_init__(self) -> None:
        for key, kind in (("combine", Combine), ("guardrails", Guardrails)):
            if not isinstance(getattr(self, key), kind):
                raise ProfileError("profile_malformed", f"{key} must be a {kind.__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """When a result carries a warning. A threshold that is None is off.

    Attributes:
        flat_logits: `flat_scores` where the logits' standard deviation is smaller; at least 0.
        weak_cosine: `weak_retrieval` where the best cosine is lower; in [-1, 1].
        weak_logit: `weak_retrieval` where the best logit is lower.
    """

    flat_logits: float | None = None
    weak_cosine: float | None = None
    weak_logit: float | None = None

    def __post_init__(self) -> None:
        _check_number("health", "flat_logits", self.flat_logits, least=0, optional=True)
        _check_number("health", "weak_cosine", self.weak_cosine, optional=True)
        _check_number("health", "weak_logit", self.weak_logit, optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A calibration profile.

    The default value has every gate rule off and no guardrail up: all candidates are reranked and
    all come back, in order. That is what is right for models and corpora that nobody fitted.

    Attributes:
        name: What to call the profile in messages.
        embedder: Identity of the embedder that the thresholds were fitted for; None for any.
        reranker: Identity of the reranker that they were fitted for; None for any.
        blend: How cosine and BM25 become one score.
        gate: When stage 1 decides alone.
        answer: How probable an answer must be.
        pool: Which candidates stage 2 reads.
        floors: How relevant a candidate must be at all; off unless set.
        combine: How logits and stage 1 become one order.
        stage1_guardrails: Bars on the blend, where stage 1 decides.
        stage2_guardrails: Bars on the combined score, where stage 2 had its say.
        corpora: Fingerprints of the documents that the numbers were fitted on; empty for any. A
            router warns where its index is none of them.
        tiers: What was fitted for further tiers of stage 2, by the identity of the reranker.
        health: When a result carries a warning.
        fitted: How the numbers were found; free-form JSON for people.
    """

    name: str = "ungated"
    embedder: str | None = None
    reranker: str | None = None
    blend: Blend = field(default_factory=Blend)
    gate: Gate = field(default_factory=Gate)
    answer: Answer = field(default_factory=Answer)
    pool: Pool = field(default_factory=Pool)
    floors: Floors = field(default_factory=Floors)
    combine: Combine = field(default_factory=Combine)
    stage1_guardrails: Guardrails = field(default_factory=Guardrails)
    stage2_guardrails: Guardrails = field(default_factory=Guardrails)
    corpora: tuple[str, ...] = ()
    tiers: dict[str, TierSettings] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    fitted: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("name", "embedder", "reranker"):
            value = getattr(self, key)
            if not isinstance(value, str) and (key == "name" or value is not None):
                raise ProfileError("profile_malformed", f"{key} is {value!r}: it must be text")
        if not (
            isinstance(self.corpora, tuple) and all(isinstance(one, str) for one in self.corpora)
        ):
            raise ProfileError("profile_malformed", "corpora must be a list of fingerprints")
        for key, kind in _SECTIONS.items():
            if not isinstance(getattr(self, key), kind):
                raise ProfileError("profile_malformed", f"{key} must be a {kind.__name__}")
        if not isinstance(self.tiers, dict):
            raise ProfileError("profile_malformed", "tiers must be a JSON object")
        for identity, settings in self.tiers.items():
            if not isinstance(identity, str) or not isinstance(settings, TierSettings):
                raise ProfileError(
                    "profile_malformed", f"tiers[{identity!r}] must be a TierSettings by identity"
                )
        try:
            if not isinstance(self.fitted, dict):
                raise TypeError("it is no object")
            json.dumps(self.fitted, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ProfileError("profile_malformed", f"fitted must be JSON: {error}") from error

    @classmethod
    def from_file(cls, path: str | Path) -> Profile:
        """Read a profile from a JSON file.

        Raises:
            ProfileError: `profile_missing` or `profile_malformed`.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError("profile_missing", f"cannot read profile {path}: {error}") from error
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ProfileError("profile_malformed", f"profile {path}: {error}") from error
        except ProfileError as error:
            raise ProfileError(error.code, f"profile {path}: {error}") from error

    @classmethod
    def from_dict(cls, values: object) -> Profile:
        """Make a profile from JSON values, as `to_dict` returns them.

        Raises:
            ProfileError: `profile_malformed`, naming the key that is wrong.
        """
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise ProfileError("profile_malformed", f'no "schema": "{SCHEMA}" in it')
        rest = {key: value for key, value in values.items() if key != "schema"}
        for one in fields(cls):
            if one.name in rest and one.name in _SECTIONS:
                rest[one.name] = _section(one.name, rest[one.name])
        if isinstance(rest.get("tiers"), dict):
            rest["tiers"] = {key: _settings(key, one) for key, one in rest["tiers"].items()}
        _check_keys(cls, "", rest)
        if isinstance(rest.get("corpora"), list):
            rest["corpora"] = tuple(rest["corpora"])
        return cls(**rest)

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON values."""
        return {"schema": SCHEMA, **asdict(self), "corpora": list(self.corpora)}

    def settings_for(self, reranker: str | None) -> TierSettings | None:
        """Return how the scores of a reranker are used; None if that was not fitted.

        Args:
            reranker: Identity of the reranker that answered.
        """
        if reranker in self.tiers:
            return self.tiers[reranker]
        if self.reranker in (None, reranker):
            return TierSettings(combine=self.combine, guardrails=self.stage2_guardrails)
        return None

    def check_models(self, *, embedder: str | None, reranker: str | None) -> None:
        """Refuse models that the thresholds were not fitted for.

        Args:
            embedder: Identity of the embedder in use; None if there is none.
            reranker: Identity of the reranker in use; None if there is none.

        Raises:
            ProfileError: `profile_mismatch`, naming both models.
        """
        for role, fitted, used in (
            ("embedder", self.embedder, embedder),
            ("reranker", self.reranker, None if reranker in self.tiers else reranker),
        ):
            if fitted is not None and used is not None and fitted != used:
                raise ProfileError(
                    "profile_mismatch",
                    f"profile {self.name!r} was fitted for the {role} {fitted}, not for {used}: "
                    "thresholds do not carry over; use a profile fitted for this model, or "
                    "Profile() to rerank everything",
                )


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile to a JSON file; an earlier file stays whole until the new one is complete.

    Raises:
        ProfileError: `profile_unwritable`.
    """
    from crossgate._files import whole_file

    try:
        with whole_file(path) as stream:
            json.dump(profile.to_dict(), stream, indent=2)
            stream.write("\n")
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> ProfileError:
    """Return the error for a profile that cannot be written."""
    return ProfileError("profile_unwritable", f"cannot write profile {path}: {error.strerror}")


_Kind = TypeVar("_Kind")
_Section = Blend | Gate | Answer | Pool | Floors | Combine | Guardrails | Health

_SECTIONS: dict[str, type[_Section]] = {
    "blend": Blend,
    "gate": Gate,
    "answer": Answer,
    "pool": Pool,
    "floors": Floors,
    "combine": Combine,
    "stage1_guardrails": Guardrails,
    "stage2_guardrails": Guardrails,
    "health": Health,
}


def _settings(identity: str, values: object) -> TierSettings:
    """Read one entry of `tiers`."""
    if not isinstance(values, dict):
        raise ProfileError("profile_malformed", f"tiers.{identity} must be a JSON object")
    _check_keys(TierSettings, f"tiers.{identity}.", values)
    kinds = {"combine": "combine", "guardrails": "stage2_guardrails"}
    try:
        return TierSettings(**{key: _section(kinds[key], one) for key, one in values.items()})  # type: ignore[arg-type]
    except ProfileError as error:
        message = str(error).replace("stage2_guardrails", "guardrails", 1)
        raise ProfileError(error.code, f"tiers.{identity}: {message}") from None


def _section(name: str, values: object) -> _Section:
    kind = _SECTIONS[name]
    if kind is Answer and isinstance(values, dict):
        models = {
            key: _of(Confidence, f"{name}.{key}", values[key])
            for key in ("stage1", "stage2")
            if values.get(key) is not None
        }
        values = {**values, **models}
    return _of(kind, name, values)


def _of(kind: type[_Kind], name: str, values: object) -> _Kind:
    """Make a part of a profile from JSON values; an error names the part as the file does."""
    if not isinstance(values, dict):
        raise ProfileError("profile_malformed", f"{name} must be a JSON object")
    _check_keys(kind, f"{name}.", values)
    try:
        return kind(**values)
    except ProfileError as error:
        message = str(error).replace(f"{kind.__name__.lower()}.", f"{name}.", 1)
        raise ProfileError(error.code, message) from None


def _check_keys(kind: type, prefix: str, values: dict[str, Any]) -> None:
    unknown = sorted(set(values) - {one.name for one in fields(kind)})
    if unknown:
        raise ProfileError("profile_malformed", f"unknown key {prefix}{unknown[0]}")


def _check_number(
    section: str,
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    most: float = _MOST,
    optional: bool = False,
) -> None:
    """Refuse what is no finite number, or too small, or too large."""
    if value is None and optional:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Comparing, rather than math.isfinite, since no float can hold some Python integers.
    if not (number and max(least, -_MOST) <= value <= most):  # type: ignore[operator]
        limit = "a finite number"
        if least != -math.inf:
            limit += " above 0" if least == _LEAST else f" from {least:g}"
        if most != _MOST:
            limit += f" to {most:,}"
        raise ProfileError(
            "profile_malformed", f"{section}.{name} is {value!r}: it must be {limit}"
        )
