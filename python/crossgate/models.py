"""Models that are known by name: listing, locating, pulling and verifying them."""

from crossgate._runtime.model_files import (
    FileCheck,
    LocalModel,
    ModelFile,
    ModelSpec,
    available,
    locate,
    spec,
    verify,
)
from crossgate._runtime.pull import pull

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
