"""The manifest of models that are known by name, and its types.

Every file is pinned by size and sha256, or by blake3, which is faster, and checked on each load. A
bundled model is stored beside the manifest, in a folder of its name; `crossgate models pull`
fetches the others from `repository` at `revision`. For a model without a revision, the first pull
pins the newest one in a lock file, which later loads follow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from crossgate._support.wording import did_you_mean

ModelKind = Literal["embedder", "cross-encoder"]
Role = Literal["model", "weights", "tokenizer", "need"]

# The default models.
EMBEDDER = "crossgate-embedder-minilm-l6"
ROUTING_RERANKER = "crossgate-router-minilm-l12"
PASSAGE_RERANKER = "ms-marco-minilm-l12"

BUNDLED = Path(__file__).parents[2] / "_weights"
"""The folder of the manifest and the bundled models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model, as the manifest or the lock file pins it.

    Attributes:
        role: Purpose of the file; `weights` are stored outside of the graph's file.
        path: Path within the model's folder, with forward slashes.
        size: Length in bytes, or 0 if the file is not pinned yet.
        sha256: Digest of the content, 64 hex digits, or empty if the file is not pinned yet.
        blake3: Digest of a bundled file that takes a third of the time; empty for others.
    """

    role: Role
    path: str
    size: int = 0
    sha256: str = ""
    blake3: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The text around a pair, for a model that was trained on a chat instead of two segments.

    Only `prefix` and `suffix` may contain special tokens. `body`, query and document are read as
    plain text, so that a document cannot end its turn in the chat.

    Attributes:
        prefix: The first part.
        body: The second part, with `{query}` for the query; the document follows after a space.
        suffix: The last part, which is never cut.
    """

    prefix: str
    body: str
    suffix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model, as the manifest describes it.

    Attributes:
        name: Unique in the manifest.
        kind: Purpose of the model.
        licence: SPDX identifier of the licence of the weights.
        description: One line that helps to choose a model.
        source: Whether the files come with the installation or are pulled from the hub.
        max_length: Maximum tokens of one input, including special tokens.
        files: One model, one tokenizer, and separate weights for some models.
        repository: `owner/name` on the hub, or None for a bundled model.
        revision: The commit on the hub, 40 hex digits; None for a bundled model, and for an
            unpinned one until its first pull has written a lock file.
        terms: Restrictions of the licence to accept before a pull, or None.
        template: The text around a pair, or None for a model that reads two segments.
        query_length: Tokens from the beginning of the query that a cross-encoder reads; None to
            read the whole query.
        dimension: Length of an embedder's vectors, or None for a cross-encoder.
        pooling: How an embedder combines token vectors, or None for a cross-encoder.
        score_scale: The scale of a cross-encoder's scores, or None for an embedder.
        languages: English names of the languages that it reads; empty for many.
    """

    name: str
    kind: ModelKind
    licence: str
    description: str
    source: Literal["bundled", "hub"]
    max_length: int
    files: tuple[ModelFile, ...]
    repository: str | None = None
    revision: str | None = None
    query_length: int | None = None
    dimension: int | None = None
    pooling: str | None = None
    score_scale: str | None = None
    terms: str | None = None
    template: Template | None = None
    languages: tuple[str, ...] = ()

    @property
    def pinned(self) -> bool:
        """Whether every file has a hash."""
        return all(file.sha256 for file in self.files)

    @property
    def size(self) -> int:
        """Total bytes of all files; 0 if they are not pinned yet."""
        return sum(file.size for file in self.files)

    @property
    def weights(self) -> ModelFile:
        """The file with the weights: a separate file, or else the graph's."""
        files = {file.role: file for file in self.files}
        return files.get("weights", files["model"])


def known() -> tuple[ModelSpec, ...]:
    """Return every model of the manifest, without the pins of lock files."""
    return _read(BUNDLED)


def find(name: str) -> ModelSpec | None:
    """Return the model with this name or repository on the hub, or None."""
    return next((model for model in known() if name in (model.name, model.repository)), None)


def names(kind: ModelKind | None = None) -> str:
    """Return the names of all models, or of one kind, separated by commas."""
    return ", ".join(model.name for model in known() if kind in (None, model.kind))


def similar(name: str) -> str:
    """Return the end of an error about an unknown model: the most similar names, or all names."""
    known_names = names().split(", ")
    guess = did_you_mean(name, known_names)
    if guess:
        return f"{guess} `crossgate models list` shows all names"
    return f"; known models: {', '.join(known_names)}"


def identity_of(name: str, digest: str) -> str:
    """Return the identity of a model, as stored in index files and profiles."""
    return f"{name}@sha256:{digest[:16]}"


def languages_of(identity: str) -> tuple[str, ...]:
    """Return the languages that a model reads, by its identity; empty for many, or if unknown."""
    model = find(identity.partition("@")[0])
    return () if model is None else model.languages


@cache
def _read(bundled: Path) -> tuple[ModelSpec, ...]:
    # JSON, since the TOML parser costs 6 ms on every prompt of a hook.
    text = (bundled / "manifest.json").read_text(encoding="utf-8")
    tables: list[dict[str, Any]] = json.loads(text)["models"]
    for table in tables:
        table.pop("comment", None)
        table["files"] = tuple(ModelFile(**file) for file in table["files"])
        table["languages"] = tuple(table.get("languages", ()))
        if "template" in table:
            table["template"] = Template(**table["template"])
    return tuple(ModelSpec(**table) for table in tables)
