"""The registry of models: what is known, where its files lie, and whether they are the right ones.

Nothing here runs a model, and nothing but `pull` uses the network. A model of the registry is
hashed on every load, so that a damaged, altered or half copied file is an error and never a
worse answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from crossgate.errors import ModelError

Kind = Literal["embedder", "cross-encoder"]
Role = Literal["model", "tokenizer"]

# The cross-encoders that are used where none is named.
ROUTING_RERANKER = "crossgate-ce-v0"
PASSAGE_RERANKER = "ms-marco-minilm-l6-v2"

_BUNDLED = Path(__file__).with_name("_models")
_MISSING = "is missing"
_MODEL_NAMES = ("model.onnx", "onnx/model.onnx")

# The longest input to assume for a folder that does not say, or that says something absurd:
# tokenizer_config.json holds 10^30 where its author did not set a limit.
_DEFAULT_LENGTH = 512
_LARGEST_LENGTH = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model, as the manifest pins it.

    Attributes:
        role: What the file is for.
        path: Where it lies below the model's folder, with forward slashes.
        size: Length in bytes.
        sha256: Digest of the content, 64 hex digits.
    """

    role: Role
    path: str
    size: int
    sha256: str


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
        files: Exactly one file of each role.
        repository: `owner/name` on the hub, or None for a bundled model.
        revision: The commit on the hub, 40 hex digits, or None for a bundled model.
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
    dimension: int | None = None
    pooling: str | None = None
    score_scale: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model whose files are on this machine and, if the manifest knows it, verified.

    Attributes:
        name: The manifest's name, or the name of the folder.
        kind: What the model does.
        model: The ONNX graph.
        tokenizer: The `tokenizer.json`.
        max_length: Most tokens of one input, special tokens included.
        dimension: Length of an embedder's vectors where the manifest gives it, else None.
        identity: `<name>@sha256:<first 16 hex digits of the digest of the graph>`. Index files and
            calibration profiles keep it, to refuse another model.
    """

    name: str
    kind: Kind
    model: Path
    tokenizer: Path
    max_length: int
    dimension: int | None
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """What became of the verification of one file.

    Attributes:
        file: What the manifest expects.
        path: Where the file lies, or should.
        code: `model_incomplete`, `model_altered`, or empty if the file is right.
        detail: What is wrong, for a person; empty if the file is right.
    """

    file: ModelFile
    path: Path
    code: str
    detail: str

    @property
    def ok(self) -> bool:
        """Whether the file is there, whole and unaltered."""
        return not self.code


def available() -> tuple[ModelSpec, ...]:
    """Return every model of the manifest, present on this machine or not."""
    return _read_manifest(_BUNDLED)


def spec(name: str) -> ModelSpec:
    """Return what the manifest says about a model.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    model = _find(name)
    if model is None:
        raise ModelError("unknown_model", f"no model is named {name!r}; known models: {_names()}")
    return model


def folder(name: str) -> Path:
    """Return the folder where the files of a model lie, or will once it is pulled.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    model = spec(name)
    return (_BUNDLED if model.source == "bundled" else cache_folder() / "models") / model.name


def is_here(name: str) -> bool:
    """Return whether the files of a model are on this machine, without looking into them.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    root = folder(name)
    return all(os.path.isfile(root / file.path) for file in spec(name).files)


def is_pulled(name: str) -> bool:
    """Return whether a model of the hub is on this machine, without looking into its files."""
    return spec(name).source == "hub" and is_here(name)


def identity(name: str) -> str | None:
    """Return the identity of a model of the manifest, or None for any other name.

    It comes from the manifest alone: no file is opened.
    """
    model = _find(name)
    if model is None:
        return None
    weights = next(file for file in model.files if file.role == "model")
    return _identity(model.name, weights.sha256)


def cache_folder() -> Path:
    """Return the folder that keeps what was pulled; it need not exist.

    It is `$CROSSGATE_CACHE`, else `$XDG_CACHE_HOME/crossgate`, else `~/.cache/crossgate`. Not the
    hub's own cache: loading a model from there would need the hub's client, and a model there can
    be half present.

    Raises:
        ModelError: `model_missing` if no variable is set and the user has no home folder.
    """
    try:
        if own := os.environ.get("CROSSGATE_CACHE"):
            return Path(own).expanduser()
        shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The XDG specification has a relative path ignored.
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "crossgate"
    except RuntimeError as error:
        message = "there is no home folder to keep models in; set CROSSGATE_CACHE to a folder"
        raise ModelError("model_missing", message) from error


def locate(name_or_folder: str | os.PathLike[str], kind: Kind) -> LocalModel:
    """Return a model that is ready to load, after checking its files.

    A name of the manifest always means that model, whose files are hashed on each call (25 ms for
    23 MB); a folder of the same name cannot take its place, unless it is written `./name`.

    Args:
        name_or_folder: The name of a model, its repository on the hub, or a folder that holds
            `model.onnx` or `onnx/model.onnx`, and `tokenizer.json`.
        kind: What the model is needed for. A folder is taken at the caller's word.

    Raises:
        ModelError: `unknown_model`, `model_missing` (known, but not pulled), `model_incomplete`,
            `model_altered` or `model_unsupported` (of another kind).
    """
    model = _find(name_or_folder) if isinstance(name_or_folder, str) else None
    if model is None:
        return _from_folder(os.fspath(name_or_folder), kind)
    if model.kind != kind:
        raise ModelError(
            "model_unsupported",
            f"{model.name} is not of the kind needed here: it is {_article(model.kind)}, not "
            f"{_article(kind)}; choose one of: {_names(kind)}",
        )
    return _verified(model)


def verify(name: str) -> tuple[FileCheck, ...]:
    """Check each file of a model against the manifest, and report instead of raising.

    Args:
        name: The name of a model, or its repository on the hub.

    Returns:
        One report for each file, in the order of the manifest.

    Raises:
        ModelError: `unknown_model`.
    """
    model = spec(name)
    root = folder(model.name)
    return tuple(check_file(file, root / file.path) for file in model.files)


def pull(name: str, *, progress: bool = False) -> LocalModel:
    """Download a model from the hub, unless it is here and verified.

    The files grow in a folder of another name, which takes the model's name when all of them are
    verified. What an interrupted call leaves there is continued by the next one. A second process
    that pulls the same model waits for the first and then finds it done.

    Args:
        name: The name of a model, or its repository on the hub.
        progress: Whether to draw a bar for each file on stderr, if that is a terminal.

    Raises:
        ModelError: `unknown_model`, `dependency_missing`, `pull_failed` (the hub or the network),
            `pull_unwritable` (the disk), or for a bundled model as `locate`.
    """
    model = spec(name)
    try:
        return _verified(model)
    except ModelError:
        if model.source == "bundled":
            raise
    for package in ("huggingface_hub", "httpx2", "filelock"):
        if find_spec(package) is None:
            message = f"pulling a model needs {package}; run: pip install 'huggingface_hub>=2.4'"
            raise ModelError("dependency_missing", message)
    import filelock

    from crossgate.hub import download

    root = folder(model.name)
    # The revision is in the name, so that a newer crossgate never continues an older file.
    partial = root.with_name(f".partial-{model.name}-{(model.revision or '')[:8]}")
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(root.with_name(f".{model.name}.lock")):
            # Another process may have been here while this one waited for the lock.
            if not all(check.ok for check in verify(model.name)):
                for file in model.files:
                    download(model, file, partial / file.path, progress=progress)
                _replace_folder(partial, root)
    except OSError as error:
        raise _unwritable(model, root.parent, error) from error
    return _verified(model)


@cache
def _read_manifest(bundled: Path) -> tuple[ModelSpec, ...]:
    import tomllib

    with (bundled / "manifest.toml").open("rb") as stream:
        tables: list[dict[str, Any]] = tomllib.load(stream)["models"]
    return tuple(
        ModelSpec(**{**table, "files": tuple(ModelFile(**file) for file in table["files"])})
        for table in tables
    )


def _find(name: str) -> ModelSpec | None:
    return next((model for model in available() if name in (model.name, model.repository)), None)


def _names(kind: Kind | None = None) -> str:
    return ", ".join(model.name for model in available() if kind in (None, model.kind))


def _article(kind: Kind) -> str:
    return {"embedder": "an embedder", "cross-encoder": "a cross-encoder"}[kind]


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_file(file: ModelFile, path: Path) -> FileCheck:
    """Compare a file with what the manifest says of it."""
    code, detail = "", ""
    try:
        size = path.stat().st_size
        # A file of the wrong size needs no hashing.
        digest = _sha256(path) if size == file.size else ""
    except (FileNotFoundError, NotADirectoryError):
        code, detail = "model_incomplete", _MISSING
    except OSError as error:
        code, detail = "model_incomplete", f"cannot be read: {error.strerror}"
    else:
        if size != file.size:
            code, detail = "model_altered", f"has {size} bytes, expected {file.size}"
        elif digest != file.sha256:
            code = "model_altered"
            detail = f"has sha256 {digest[:16]}…, expected {file.sha256[:16]}…"
    return FileCheck(file=file, path=path, code=code, detail=detail)


def _verified(model: ModelSpec) -> LocalModel:
    """Return a model of the manifest, or raise for the first file that is not right."""
    root = folder(model.name)
    remedy = f"run: crossgate models pull {model.name}"
    if model.source == "bundled":
        remedy = "reinstall with: pip install --force-reinstall crossgate"
    checks = verify(model.name)
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
        model=root / files["model"].path,
        tokenizer=root / files["tokenizer"].path,
        max_length=model.max_length,
        dimension=model.dimension,
        identity=_identity(model.name, files["model"].sha256),
    )


def _from_folder(name: str, kind: Kind) -> LocalModel:
    if not os.path.isdir(name):
        found = "no model or folder is named"
        if os.path.isfile(name):
            found = "a model is a folder, and this is a file:"
        raise ModelError(
            "unknown_model",
            f"{found} {name!r}; known models: {_names()}; or a folder with model.onnx and "
            "tokenizer.json",
        )
    root = Path(name)
    graph = next((root / path for path in _MODEL_NAMES if os.path.isfile(root / path)), None)
    if graph is None:
        message = f"model folder {root} has neither {' nor '.join(_MODEL_NAMES)}"
        raise ModelError("model_incomplete", message)
    tokenizer = root / "tokenizer.json"
    if not os.path.isfile(tokenizer):
        message = f"model folder {root} has no tokenizer.json; copy it from the model's repository"
        raise ModelError("model_incomplete", message)
    try:
        digest = _sha256(graph)
    except OSError as error:
        message = f"model file {graph} cannot be read: {error.strerror}"
        raise ModelError("model_incomplete", message) from error
    resolved = root.resolve().name
    return LocalModel(
        name=resolved,
        kind=kind,
        model=graph,
        tokenizer=tokenizer,
        max_length=_length_of_folder(root),
        dimension=None,
        identity=_identity(resolved, digest),
    )


def _identity(name: str, digest: str) -> str:
    return f"{name}@sha256:{digest[:16]}"


def _length_of_folder(root: Path) -> int:
    import json

    try:
        config = json.loads((root / "tokenizer_config.json").read_text(encoding="utf-8"))
        length = config["model_max_length"]
    except (OSError, ValueError, LookupError, TypeError):
        return _DEFAULT_LENGTH
    sane = isinstance(length, int) and 2 < length <= _LARGEST_LENGTH
    return length if sane else _DEFAULT_LENGTH


def _replace_folder(partial: Path, root: Path) -> None:
    import shutil

    if root.exists():
        shutil.rmtree(root)  # it was verified a moment ago, and found wanting
    partial.rename(root)


def _unwritable(model: ModelSpec, models: Path, error: OSError) -> ModelError:
    import errno

    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        message = (
            f"no room for {model.name} ({model.size / 1e6:.0f} MB) in {models}: {reason}; what has "
            "arrived is kept; free some, or set CROSSGATE_CACHE to a folder on another disk"
        )
    else:
        message = (
            f"cannot write {error.filename or models}: {reason}; "
            "set CROSSGATE_CACHE to a folder that you can write"
        )
    return ModelError("pull_unwritable", message)
