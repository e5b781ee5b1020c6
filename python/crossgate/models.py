"""The models that crossgate knows by name: which there are, where they lie, pulling, verifying."""

from crossgate._model_files.models import (
    FileCheck,
    LocalModel,
    ModelFile,
    ModelSpec,
    available,
    locate,
    pull,
    spec,
    verify,
)

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
