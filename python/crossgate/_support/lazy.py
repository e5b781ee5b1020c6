"""Lazy exports of a module, listed in its stub file.

Type checkers and editors read `module.pyi`; `attach_stub` reads the same lines at run time. The
package `lazy_loader` does the same with `ast`, whose import costs each cold process 5 ms.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the 8 ms of typing
if TYPE_CHECKING:
    from collections.abc import Callable


def attach_stub(
    module: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a module that has a stub file.

    Args:
        module: Name of the module.
        file: Path of the module. Its stub has one line `from HOME import NAME as NAME` for each
            exported name.
    """
    homes: dict[str, str] = {}
    with open(file + "i", encoding="utf-8") as stub:
        for line in stub:
            if line.startswith("from "):
                _, home, _, name, *_ = line.split()
                homes[name] = home
    names = sorted(homes)

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    def listed() -> list[str]:
        return list(names)

    return get, listed, names
