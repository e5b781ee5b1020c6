"""The models that crossgate knows by name: which there are, where they lie, pulling, verifying."""

from crossgate._model_files.cache import FileCheck, LocalModel, available, spec, verify
from crossgate._model_files.folder import locate
from crossgate._model_files.manifest import ModelFile, ModelSpec
from crossgate._model_files.pull import pull

__all__ = [
    "FileCheck",
    "LocalModel",
    "ModelFile",
    "ModelSpec",
    "available",
    "locate",
    "pull",
    "spec",
    "verify",
]
