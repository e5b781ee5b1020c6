"""Locates the files of a model, by its name in the manifest or by a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from crossgate._runtime.models import manifest
from crossgate._runtime.models.local_files import LocalModel, sha256_of, spec, verified
from crossgate._runtime.models.manifest import ModelKind, Template, identity_of
from crossgate._support.checks import check_path
from crossgate._support.errors import ModelError
from crossgate._support.files import read_source
from crossgate._support.limits import SETTINGS_BYTES
from crossgate._support.wording import article

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
    if not isinstance(name_or_folder, str) or manifest.find(name_or_folder) is None:
        return _from_folder(os.fspath(name_or_folder), kind)
    model = spec(name_or_folder)
    if model.kind != kind:
        raise ModelError(
            "model_unsupported",
            f"{model.name} is {article(model.kind)}, but {article(kind)} is needed: choose one "
            f"of {manifest.names(kind)}",
        )
    return verified(model)


def _from_folder(name: str, kind: ModelKind) -> LocalModel:
    if not os.path.isdir(name):
        problem = "no model or folder is named"
        if os.path.isfile(name):
            problem = "a model is a folder, but this is a file:"
        raise ModelError(
            "unknown_model",
            f"{problem} {name!r}{manifest.similar(name)}; or a folder with model.onnx "
            "and tokenizer.json",
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
    model = manifest.find("qwen3-reranker-0.6b")
    return None if model is None else model.template


def _length_of_folder(root: Path) -> int:
    length = _setting_of_folder(root, "tokenizer_config.json", "model_max_length")
    if isinstance(length, int) and 2 < length <= _LARGEST_LENGTH:
        return length
    return _DEFAULT_LENGTH
