"""Finds a reranker by its name: a model of the manifest, a plug-in, or a folder."""

from __future__ import annotations

from os import PathLike

from crossgate._model_files import manifest
from crossgate._reranking import plugins, process
from crossgate._reranking.contract import Reranker
from crossgate._reranking.cross_encoder import CrossEncoder


def load(model: str | PathLike[str]) -> Reranker:
    """Return the process's one reranker of a name or folder.

    A name is looked for among the models of the manifest, then among the plug-ins, and is the
    path of a folder only if neither knows it.

    Raises:
        ModelError: As `CrossEncoder` does, or `PluginError` for a plug-in that cannot be used.
    """
    with process.load_lock:
        key = str(model)
        if key not in process.loaded:
            offered = isinstance(model, str) and not manifest.find(model) is not None
            plugin = plugins.load(key) if offered else None
            process.loaded[key] = plugin or CrossEncoder(model)
        return process.loaded[key]
