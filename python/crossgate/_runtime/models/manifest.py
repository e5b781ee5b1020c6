"""What is known of the models that crossgate has a name for: the manifest, and its types.

Every file is pinned by size and sha256, or by its blake3, which is faster, and checked on each
load. A bundled model lies beside the manifest, in a folder of its name; `crossgate models pull`
fetches the others from `repository` at `revision`. Where no revision stands there, the first pull
pins the newest one in a lock file beside the model, and every later load goes by that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["embedder", "cross-encoder"]
Role = Literal["model", "weights", "tokenizer", "need"]

# The models that are used where none is named.
EMBEDDER = "crossgate-embedder-minilm-l6"
ROUTING_RERANKER = "crossgate-router-minilm-l12"
PASSAGE_RERANKER = "ms-marco-minilm-l12"

BUNDLED = Path(__file__).parents[2] / "_weights"
"""The folder of the manifest, and of the models that come with the installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model, as the manifest or the lock file pins it.

    Attributes:
        role: What the file is for; `weights` are what did not fit into the graph's own file.
        path: Where it lies below the model's folder, with forward slashes.
        size: Length in bytes, or 0 as long as the file is not pinned.
        sha256: Digest of the content, 64 hex digits, or empty as long as the file is not pinned.
        blake3: Another digest of a bundled file, which takes a third of the time; empty for others.
    """

    role: Role
    path: str
    size: int = 0
    sha256: str = ""
    blake3: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The text around a pair, for a model that was trained on a chat instead of on two segments.

    Only `prefix` and `suffix` may hold special tokens. `body` and what is put into it are read as
    plain text, so that no document can end its turn and speak for the user.

    Attributes:
        prefix: What comes first.
        body: What comes next, with `{query}` for the query; the document follows after a space.
        suffix: What comes last; it is never cut.
    """

    prefix: str
    body: str
    suffix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model, as the manifest describes it.

    Attributes:
        name: Unique in the manifest.
        kind: What the model does.
        licence: SPDX identifier of the licence of the weights.
        description: One line for a person who chooses.
        source: Whether the files come with the installation or are pulled from the hub.
        max_length: Most tokens of one input, special tokens included.
        files: One model, one tokenizer, and weights where the graph's file holds none.
        repository: `owner/name` on the hub, or None for a bundled model.
        revision: The commit on the hub, 40 hex digits; None for a bundled model, and for one of
            the hub that the manifest does not pin, until its first pull has written a lock file.
        terms: What the licence forbids, for a person to accept before a pull, or None.
        template: The text around a pair, or None for a model that reads two segments.
        query_length: Most tokens of the query that a cross-encoder reads, its beginning; None
            where it reads the whole query.
        dimension: Length of an embedder's vectors, or None for a cross-encoder.
        pooling: How an embedder makes one vector of its tokens, or None for a cross-encoder.
        score_scale: The scale of a cross-encoder's scores, or None for an embedder.
    """

    name: str
    kind: Kind
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

    @property
    def pinned(self) -> bool:
        """Whether it is known what every file must be."""
        return all(file.sha256 for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files together; 0 if they are not pinned yet."""
        return sum(file.size for file in self.files)

    @property
    def weights(self) -> ModelFile:
        """The file that holds the weights: the graph's own, unless they lie beside it."""
        files = {file.role: file for file in self.files}
        return files.get("weights", files["model"])


def known() -> tuple[ModelSpec, ...]:
    """Return every model of the manifest, as it stands there."""
    return _read(BUNDLED)


def find(name: str) -> ModelSpec | None:
    """Return the model of a name or a repository on the hub, or None."""
    return next((model for model in known() if name in (model.name, model.repository)), None)


def names(kind: Kind | None = None) -> str:
    """Return the names of all models, or of those of one kind, for a message."""
    return ", ".join(model.name for model in known() if kind in (None, model.kind))


def identity_of(name: str, digest: str) -> str:
    """Return what an index file and a profile call a model, from the SHA-256 of its weights."""
    return f"{name}@sha256:{digest[:16]}"


@cache
def _read(bundled: Path) -> tuple[ModelSpec, ...]:
    # JSON, although TOML reads better: its parser takes 6 ms, which a hook pays on every prompt.
    text = (bundled / "manifest.json").read_text(encoding="utf-8")
    tables: list[dict[str, Any]] = json.loads(text)["models"]
    for table in tables:
        table.pop("comment", None)
        table["files"] = tuple(ModelFile(**file) for file in table["files"])
        if "template" in table:
            table["template"] = Template(**table["template"])
    return tuple(ModelSpec(**table) for table in tables)
