"""What `crossgate doctor` looks at: packages, models, folders, tiers."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from crossgate import __version__, models, plugins
from crossgate.errors import CrossgateError

Check = dict[str, str]


def examine() -> list[Check]:
    """Return one entry per part: `what`, `state` (ok, off or broken), `detail` and `advice`."""
    checks = [
        _check(
            "crossgate", "ok", f"{__version__}, Python {platform.python_version()}, {_machine()}"
        )
    ]
    checks += [
        _package("onnxruntime", "runs the models"),
        _package("tokenizers", "turns text into word pieces"),
        _package("huggingface-hub", "pulls models"),
    ]
    checks += [_model(one) for one in models.available()]
    checks += [_plugin(one) for one in plugins.available()]
    checks.append(_cache())
    return checks


def _check(what: str, state: str, detail: str, advice: str = "") -> Check:
    return {"what": what, "state": state, "detail": detail, "advice": advice}


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"


def _package(name: str, purpose: str) -> Check:
    try:
        return _check(name, "ok", f"{metadata.version(name)}, {purpose}")
    except metadata.PackageNotFoundError:
        return _check(name, "broken", f"not installed, {purpose}", f"pip install {name}")


def _model(model: models.ModelSpec) -> Check:
    what = f"{model.kind} {model.name}"
    try:
        models.locate(model.name, model.kind)
    except CrossgateError as error:
        if error.code == "model_missing":
            return _check(what, "off", "not pulled", f"crossgate models pull {model.name}")
        return _check(what, "broken", str(error))
    return _check(what, "ok", f"{model.source}, files match their hashes")


def _plugin(plugin: plugins.Plugin) -> Check:
    what = f"plug-in {plugin.name}"
    try:
        plugins.load(plugin.name)
    except CrossgateError as error:
        return _check(what, "broken", str(error), f"mend or uninstall {plugin.package}")
    return _check(what, "ok", f"of {plugin.package}")


def _cache() -> Check:
    folder = models.cache_folder()
    present = next(one for one in (folder, *folder.parents) if one.exists())
    if os.access(present, os.W_OK):
        return _check("cache", "ok", f"{folder}, writable")
    return _check(
        "cache",
        "off",
        f"{folder} cannot be written, so no model can be pulled",
        "set CROSSGATE_CACHE to a folder that can; the bundled models work as they are",
    )
