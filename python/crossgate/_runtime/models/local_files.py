"""Model files on disk: locations, lock files and verification, without network access.

A model with a name in the manifest is hashed on every load, so that a damaged, altered or
incomplete file is an error instead of a worse answer. The expected hashes come from the manifest,
or from the lock file that the first pull wrote for a model without pinned hashes.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import crossgate._core as _core
from crossgate._runtime.models import manifest
from crossgate._runtime.models.manifest import (
    ModelFile,
    ModelKind,
    ModelSpec,
    Template,
    identity_of,
)
from crossgate._support.errors import ModelError
from crossgate._support.files import atomic_write, open_source, read_source
from crossgate._support.limits import SETTINGS_BYTES
from crossgate._support.wording import counted

_MISSING = "is missing"

# Limit for the size that a hub reports for a file that is not pinned yet.
_LARGEST_FILE = 64 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model whose files are on this machine and, if the manifest knows it, verified.

    Attributes:
        name: The manifest's name, or the name of the folder.
        kind: Purpose of the model.
        model: The ONNX graph.
        tokenizer: The `tokenizer.json`.
        max_length: Maximum tokens of one input, including special tokens.
        query_length: Tokens from the beginning of the query that a cross-encoder reads; None to
            read the whole query.
        dimension: Length of an embedder's vectors if the manifest has it, else None.
        identity: `<name>@sha256:<first 16 hex digits of the digest of the weights>`, where the
            weights are the graph's file, or a separate file beside it. Index files and calibration
            profiles store it, to detect another model.
        template: The text around a pair, or None for a model that reads two segments.
        need: The head that predicts whether a query needs any document, or None.
        bundled: Whether the package contains it. Bundled models quantise activations token by
            token, so that inputs of equal length can run together without a change of their
            results.
    """

    name: str
    kind: ModelKind
    model: Path
    tokenizer: Path
    max_length: int
    dimension: int | None
    identity: str
    query_length: int | None = None
    template: Template | None = None
    need: Path | None = None
    bundled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """The result of verifying one file.

    Attributes:
        file: The expected file, from the manifest.
        path: Path of the file, which may be missing.
        code: `model_incomplete`, `model_altered`, or empty if the file is correct.
        detail: Description of the problem; empty if the file is correct.
    """

    file: ModelFile
    path: Path
    code: str
    detail: str

    @property
    def ok(self) -> bool:
        """Whether the file is present, complete and unaltered."""
        return not self.code


def available() -> tuple[ModelSpec, ...]:
    """Return every model of the manifest, whether or not it is on this machine.

    Raises:
        ModelError: `lock_malformed` if the lock file of a pulled model cannot be read.
    """
    return tuple(_locked(model) for model in manifest.known())


def spec(name: str) -> ModelSpec:
    """Return the manifest entry of a model, with the pins of its lock file.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`, or `lock_malformed`.
    """
    model = manifest.find(name)
    if model is None:
        message = f"no model is named {name!r}{manifest.similar(name)}"
        raise ModelError("unknown_model", message)
    return _locked(model)


def folder(name: str) -> Path:
    """Return the folder of a model's files, which may not have been pulled yet.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    model = spec(name)
    return (
        manifest.BUNDLED if model.source == "bundled" else cache_folder() / "models"
    ) / model.name


def lock_file(name: str) -> Path:
    """Return the path of the lock file of a model that the manifest does not pin.

    The lock file contains the revision, and the size and digest of each file. Copy it to the same
    path on another machine to pull the same files there.
    """
    return cache_folder() / "models" / f"{name}.lock.json"


def is_here(name: str) -> bool:
    """Return whether the files of a model are on this machine, without reading them.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    root, model = folder(name), spec(name)
    return model.pinned and all(os.path.isfile(root / file.path) for file in model.files)


def identity(name: str) -> str | None:
    """Return the identity of a model, or None if its files are not pinned.

    Reads only the manifest and the lock file.
    """
    known = manifest.find(name)
    model = None if known is None else _locked(known)
    if model is None or not model.pinned:
        return None
    return identity_of(model.name, model.weights.sha256)


def cache_folder() -> Path:
    """Return the folder for pulled models, which may not exist.

    It is `$CROSSGATE_CACHE`, else `$XDG_CACHE_HOME/crossgate`, else `~/.cache/crossgate`. The hub's
    own cache is not used: loading from it would need the hub's client, and models in it can be
    incomplete.

    Raises:
        ModelError: `model_missing` if no variable is set and the user has no home folder.
    """
    try:
        if own := os.environ.get("CROSSGATE_CACHE"):
            return Path(own).expanduser()
        shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The XDG specification requires that a relative path is ignored.
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "crossgate"
    except RuntimeError as error:
        message = "no home folder for models: set CROSSGATE_CACHE to a folder"
        raise ModelError("model_missing", message) from error


def verify(name: str) -> tuple[FileCheck, ...]:
    """Check each file of a model against its pins, without raising for a wrong file.

    Args:
        name: The name of a model, or its repository on the hub.

    Returns:
        One result for each file, in the order of the manifest.

    Raises:
        ModelError: `unknown_model`.
    """
    model = spec(name)
    root = folder(model.name)
    return tuple(check_file(file, root / file.path) for file in model.files)


def check_file(file: ModelFile, path: Path) -> FileCheck:
    """Compare a file with its size and hash from the manifest or the lock file."""
    code, detail = "", ""
    if not file.sha256:  # without a pin, no file is correct
        return FileCheck(file=file, path=path, code="model_incomplete", detail=_MISSING)
    try:
        size = path.stat().st_size
        # A file of the wrong size needs no hashing.
        digest = "" if size != file.size else _digest(path, file)
    except (FileNotFoundError, NotADirectoryError):
        code, detail = "model_incomplete", _MISSING
    except OSError as error:
        code, detail = "model_incomplete", f"cannot be read: {error.strerror}"
    else:
        if size != file.size:
            code, detail = "model_altered", f"has {counted(size, 'byte')}, expected {file.size:,}"
        elif digest != (file.blake3 or file.sha256):
            code = "model_altered"
            kind, expected = ("blake3", file.blake3) if file.blake3 else ("sha256", file.sha256)
            detail = f"has {kind} {digest[:16]}…, expected {expected[:16]}…"
    return FileCheck(file=file, path=path, code=code, detail=detail)


def verified(model: ModelSpec) -> LocalModel:
    """Return a model of the manifest, or raise for the first wrong file."""
    root = folder(model.name)
    remedy = f"run: crossgate models pull {model.name}"
    if model.source == "bundled":
        remedy = "reinstall with: pip install --force-reinstall crossgate"
    checks = verify(model.name) if model.pinned else ()
    if model.source == "hub" and all(check.detail == _MISSING for check in checks):
        raise ModelError("model_missing", f"model {model.name} has not been pulled; {remedy}")
    for check in checks:
        if not check.ok:
            message = f"model {model.name}: {check.path} {check.detail}; {remedy}"
            raise ModelError(check.code, message)
    files = {file.role: file for file in model.files}
    return LocalModel(
        name=model.name,
        kind=model.kind,
        # Links lead to where both files are: onnxruntime reads weights only from beside the graph.
        model=(root / files["model"].path).resolve(),
        tokenizer=root / files["tokenizer"].path,
        max_length=model.max_length,
        query_length=model.query_length,
        dimension=model.dimension,
        identity=identity_of(model.name, model.weights.sha256),
        template=model.template,
        need=root / files["need"].path if "need" in files else None,
        bundled=model.source == "bundled",
    )


def _locked(model: ModelSpec) -> ModelSpec:
    """Return a model with the pins of its lock file, or unchanged without one."""
    if model.source == "bundled" or model.pinned:
        return model
    path = lock_file(model.name)
    try:
        lock = json.loads(read_source(path, SETTINGS_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return model
    except (OSError, ValueError, RecursionError) as error:
        raise _malformed_lock(path) from error
    try:
        pinned = replace(
            model,
            revision=str(lock["revision"]),
            files=tuple(ModelFile(**file) for file in lock["files"]),
        )
        # A newer manifest may list other files.
        same = lock["repository"] == model.repository and [
            (file.role, file.path) for file in pinned.files
        ] == [(file.role, file.path) for file in model.files]
    except (LookupError, TypeError) as error:
        raise _malformed_lock(path) from error
    # The revision becomes part of a path and of an address.
    sound = re.fullmatch("[0-9a-f]{40}", pinned.revision or "") and all(
        is_pin(file.size, file.sha256) and not file.blake3 for file in pinned.files
    )
    if not (same and sound):
        raise _malformed_lock(path)
    return pinned


def _malformed_lock(path: Path) -> ModelError:
    return ModelError(
        "lock_malformed", f"lock file {path} is malformed: remove it, then pull again"
    )


def is_pin(size: object, sha256: object) -> bool:
    """Return whether these are a valid size and SHA-256 digest of a file."""
    return (
        type(size) is int
        and 0 <= size <= _LARGEST_FILE
        and isinstance(sha256, str)
        and re.fullmatch("[0-9a-f]{64}", sha256) is not None
    )


def write_lock(model: ModelSpec) -> None:
    """Write the lock file of a first pull, which later pulls and loads follow."""
    lock = {
        "schema": "crossgate-lock/1",
        "repository": model.repository,
        "revision": model.revision,
        "files": [
            {"role": file.role, "path": file.path, "size": file.size, "sha256": file.sha256}
            for file in model.files
        ],
    }
    with atomic_write(lock_file(model.name)) as stream:
        stream.write(json.dumps(lock, indent=2) + "\n")


def _digest(path: Path, file: ModelFile) -> str:
    if not file.blake3:
        return sha256_of(path)
    with open_source(path):  # refuses anything but a regular file
        return _core.blake3_of(path)


def sha256_of(path: Path) -> str:
    """Return the digest of a file, in 64 hex digits.

    Raises:
        OSError: If it cannot be read, or is not a regular file.
    """
    import hashlib

    with open_source(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
