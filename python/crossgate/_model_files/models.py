"""The registry of models: what is known, where its files lie, and whether they are the right ones.

Nothing here runs a model, and nothing but `pull` uses the network. A model of the registry is
hashed on every load, so that a damaged, altered or half copied file is an error and never a
worse answer. What a file must be comes from the manifest, or, for a model that the manifest does
not pin, from the lock file that its first pull wrote.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from crossgate._errors import ModelError

Kind = Literal["embedder", "cross-encoder"]
Role = Literal["model", "weights", "tokenizer"]

# The cross-encoders that are used where none is named.
ROUTING_RERANKER = "crossgate-router-minilm-l6"
PASSAGE_RERANKER = "ms-marco-minilm-l6-v2"

_BUNDLED = Path(__file__).parents[1] / "_models"
_MISSING = "is missing"
_MODEL_NAMES = ("model.onnx", "onnx/model.onnx")
# Where exporters put weights beyond the 2 GB that one ONNX file can hold.
_WEIGHTS_SUFFIXES = ("_data", ".data")

# The longest input to assume for a folder that does not say, or that says something absurd:
# tokenizer_config.json holds 10^30 where its author did not set a limit.
_DEFAULT_LENGTH = 512
_LARGEST_LENGTH = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model, as the manifest or the lock file pins it.

    Attributes:
        role: What the file is for; `weights` are what did not fit into the graph's own file.
        path: Where it lies below the model's folder, with forward slashes.
        size: Length in bytes, or 0 as long as the file is not pinned.
        sha256: Digest of the content, 64 hex digits, or empty as long as the file is not pinned.
    """

    role: Role
    path: str
    size: int = 0
    sha256: str = ""


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
        identity: `<name>@sha256:<first 16 hex digits of the digest of the weights>`, the graph's
            file unless the weights lie beside it. Index files and calibration profiles keep it,
            to refuse another model.
        template: The text around a pair, or None for a model that reads two segments.
    """

    name: str
    kind: Kind
    model: Path
    tokenizer: Path
    max_length: int
    dimension: int | None
    identity: str
    template: Template | None = None


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
    """Return every model of the manifest, present on this machine or not.

    Raises:
        ModelError: `lock_malformed` if the lock file of a pulled model cannot be read.
    """
    return tuple(_locked(model) for model in _read_manifest(_BUNDLED))


def spec(name: str) -> ModelSpec:
    """Return what the manifest says about a model.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`, or `lock_malformed`.
    """
    model = _find(name)
    if model is None:
        raise ModelError("unknown_model", f"no model is named {name!r}; known models: {_names()}")
    return model


def is_known(name: str) -> bool:
    """Return whether the manifest has a model of this name or repository."""
    return any(name in (model.name, model.repository) for model in _read_manifest(_BUNDLED))


def folder(name: str) -> Path:
    """Return the folder where the files of a model lie, or will once it is pulled.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    model = spec(name)
    return (_BUNDLED if model.source == "bundled" else cache_folder() / "models") / model.name


def lock_file(name: str) -> Path:
    """Return where the pull of a model that the manifest does not pin writes what it brought.

    The file names the revision, and the size and digest of each file. Copied to the same place on
    another machine, it has the same files pulled there.
    """
    return cache_folder() / "models" / f"{name}.lock.json"


def is_here(name: str) -> bool:
    """Return whether the files of a model are on this machine, without looking into them.

    Args:
        name: The name of a model, or its repository on the hub.

    Raises:
        ModelError: `unknown_model`.
    """
    root, model = folder(name), spec(name)
    return model.pinned and all(os.path.isfile(root / file.path) for file in model.files)


def is_pulled(name: str) -> bool:
    """Return whether a model of the hub is on this machine, without looking into its files."""
    return spec(name).source == "hub" and is_here(name)


def identity(name: str) -> str | None:
    """Return the identity of a model, or None if its files are not pinned.

    It comes from the manifest or the lock file alone: no file of the model is opened.
    """
    model = _find(name)
    if model is None or not model.pinned:
        return None
    return _identity(model.name, _weights(model).sha256)


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
            `model_altered`, `lock_malformed` or `model_unsupported` (of another kind).
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
    """Check each file of a model against its pins, and report instead of raising.

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


def pull(name: str, *, progress: bool = False, accept_licence: bool = False) -> LocalModel:
    """Download a model from the hub, unless it is here and verified.

    A model that the manifest does not pin is pinned by its first pull: the newest revision is
    looked up once and written to a lock file, which every later pull and load goes by.

    The files grow in a folder of another name, which takes the model's name when all of them are
    verified. What an interrupted call leaves there is continued by the next one. A second process
    that pulls the same model waits for the first and then finds it done.

    Args:
        name: The name of a model, or its repository on the hub.
        progress: Whether to draw a bar for each file on stderr, if that is a terminal.
        accept_licence: Whether the user has read and accepts `ModelSpec.terms`, if there are any.

    Raises:
        ModelError: `unknown_model`, `licence_not_accepted`, `dependency_missing`, `pull_failed`
            (the hub or the network), `pull_unwritable` (the disk), `lock_malformed`, or for a
            bundled model as `locate`.
    """
    model = spec(name)
    try:
        return _verified(model)
    except ModelError:
        if model.source == "bundled":
            raise
    if model.terms and not accept_licence:
        raise ModelError(
            "licence_not_accepted",
            f"{model.name} is under {model.licence}: {model.terms}; if you accept that, run: "
            f"crossgate models pull {model.name} --accept-licence",
        )
    for package in ("huggingface_hub", "httpx2", "filelock"):
        if find_spec(package) is None:
            message = f"pulling a model needs {package}; run: pip install 'huggingface_hub>=2.4'"
            raise ModelError("dependency_missing", message)
    import filelock

    from crossgate._model_files.hub import download, resolve

    root = folder(model.name)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(root.with_name(f".{model.name}.lock")):
            # Another process may have been here while this one waited for the lock.
            model = spec(model.name)
            if not model.pinned:
                model = resolve(model)
                _write_lock(model)
            # The revision is in the name, so that a newer crossgate never continues an older file.
            partial = root.with_name(f".partial-{model.name}-{(model.revision or '')[:8]}")
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
    for table in tables:
        table["files"] = tuple(ModelFile(**file) for file in table["files"])
        if "template" in table:
            table["template"] = Template(**table["template"])
    return tuple(ModelSpec(**table) for table in tables)


def _find(name: str) -> ModelSpec | None:
    for model in _read_manifest(_BUNDLED):
        if name in (model.name, model.repository):
            return _locked(model)
    return None


def _names(kind: Kind | None = None) -> str:
    models = _read_manifest(_BUNDLED)
    return ", ".join(model.name for model in models if kind in (None, model.kind))


def _locked(model: ModelSpec) -> ModelSpec:
    """Return a model with what its lock file pins, or as it is if there is none."""
    if model.source == "bundled" or model.pinned:
        return model
    import json

    path = lock_file(model.name)
    try:
        lock = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return model
    except (OSError, ValueError) as error:
        raise _malformed_lock(path) from error
    try:
        pinned = replace(
            model,
            revision=str(lock["revision"]),
            files=tuple(ModelFile(**file) for file in lock["files"]),
        )
        # A manifest that was changed since then asks for other files.
        same = lock["repository"] == model.repository and [
            (file.role, file.path) for file in pinned.files
        ] == [(file.role, file.path) for file in model.files]
    except (LookupError, TypeError) as error:
        raise _malformed_lock(path) from error
    if not (same and pinned.pinned):
        raise _malformed_lock(path)
    return pinned


def _malformed_lock(path: Path) -> ModelError:
    return ModelError(
        "lock_malformed", f"{path} does not say what was pulled: remove it, then pull again"
    )


def _write_lock(model: ModelSpec) -> None:
    import json

    lock = {
        "schema": "crossgate-lock/1",
        "repository": model.repository,
        "revision": model.revision,
        "files": [asdict(file) for file in model.files],
    }
    path = lock_file(model.name)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _weights(model: ModelSpec) -> ModelFile:
    """Return the file that holds the weights: the graph's own, unless they lie beside it."""
    files = {file.role: file for file in model.files}
    return files.get("weights", files["model"])


def _article(kind: Kind) -> str:
    return {"embedder": "an embedder", "cross-encoder": "a cross-encoder"}[kind]


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_file(file: ModelFile, path: Path) -> FileCheck:
    """Compare a file with what the manifest or the lock file says of it."""
    code, detail = "", ""
    if not file.sha256:  # what nobody has pinned cannot be right
        return FileCheck(file=file, path=path, code="model_incomplete", detail=_MISSING)
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
        model=root / files["model"].path,
        tokenizer=root / files["tokenizer"].path,
        max_length=model.max_length,
        dimension=model.dimension,
        identity=_identity(model.name, _weights(model).sha256),
        template=model.template,
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
    beside = (graph.with_name(graph.name + suffix) for suffix in _WEIGHTS_SUFFIXES)
    weights = next((path for path in beside if path.is_file()), graph)
    try:
        digest = _sha256(weights)
    except OSError as error:
        message = f"model file {weights} cannot be read: {error.strerror}"
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
        template=_template_of_folder(root),
    )


def _identity(name: str, digest: str) -> str:
    return f"{name}@sha256:{digest[:16]}"


def _setting_of_folder(root: Path, file: str, key: str) -> object:
    import json

    try:
        return json.loads((root / file).read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _template_of_folder(root: Path) -> Template | None:
    """Return the template of the manifest's model of the same architecture, if it has one."""
    if _setting_of_folder(root, "config.json", "model_type") != "qwen3":
        return None
    model = _find("qwen3-reranker-0.6b")
    return None if model is None else model.template


def _length_of_folder(root: Path) -> int:
    length = _setting_of_folder(root, "tokenizer_config.json", "model_max_length")
    if isinstance(length, int) and 2 < length <= _LARGEST_LENGTH:
        return length
    return _DEFAULT_LENGTH


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
