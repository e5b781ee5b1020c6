"""Models that are known by name: listing, locating, pulling and verifying them."""

from crossgate._runtime.models.folder import locate
from crossgate._runtime.models.local_files import FileCheck, LocalModel, available, spec, verify
from crossgate._runtime.models.manifest import ModelFile, ModelSpec
from crossgate._runtime.models.pull import pull

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
