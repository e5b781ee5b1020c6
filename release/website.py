"""Builds the documentation site from the Markdown of the repository and from docstrings.

    python release/website.py

The pages are copied to dist/site-source with their folders, so that their links stay as they are;
one page of reference is generated for each public module from its list of names, and one page for
each notebook. A broken link or
anchor is an error. The site is written to dist/site and loads nothing from elsewhere.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import notebooks

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "dist" / "site-source"
PACKAGE = ROOT / "python" / "crossgate"
MODULES = (
    *("__init__", "rerankers", "pipelines", "evaluation", "calibration"),
    *("lint", "models", "telemetry"),
)
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def copy_pages() -> None:
    """Copy all Markdown pages, and the files that they link to or show."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("eval/*.md")]
    pages += [
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("models/*.md"),
        *ROOT.glob("models/cards/*.md"),
    ]
    for page in pages:
        linked = (page.parent / target for target in _LINK.findall(page.read_text("utf-8")))
        for path in (page, *linked):
            if path.is_file():
                target = SOURCE / path.resolve().relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        target = SOURCE / "examples" / notebook.with_suffix(".md").name
        target.write_text(notebooks.markdown(notebook), encoding="utf-8")
    for page in SOURCE.rglob("*.md"):
        page.write_text(_without_folders(page).replace(".ipynb)", ".md)"), encoding="utf-8")


def _without_folders(page: Path) -> str:
    """Return a page without its links to folders, which a site cannot show."""

    def plain(match: re.Match[str]) -> str:
        folder = ROOT / page.relative_to(SOURCE).parent / match[2]
        return match[1] if folder.is_dir() else match[0]

    return re.sub(r"\[([^\]]*)\]\(([^)#:\s]+)\)", plain, page.read_text("utf-8"))


def exported(name: str) -> list[tuple[str, str]]:
    """Return the public names of a module, each with the module that defines it."""
    path = PACKAGE / f"{name}.pyi"
    if not path.is_file():
        path = PACKAGE / f"{name}.py"
    tree = ast.parse(path.read_text("utf-8"))
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return sorted(
        (alias.name, node.module)
        for node in imports
        for alias in node.names
        if node.module and node.module.startswith("crossgate.") and alias.name != "attach_stub"
    )


def adapters() -> list[str]:
    """Return the names of the modules for other libraries."""
    return sorted(
        f"crossgate.{path.parent.name}.{path.stem}"
        for folder in ("stores", "integrations")
        for path in (PACKAGE / folder).glob("[a-z]*.py")
    )


def write_reference() -> None:
    """Write a page for each public module."""
    folder = SOURCE / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    index = ["# Python", "", "These names are stable. All other names may change at any time.", ""]
    for name in MODULES:
        title = "crossgate" if name == "__init__" else f"crossgate.{name}"
        page = [f"# {title}", ""]
        index.append(f"- [`{title}`]({title}.md)")
        for public, home in exported(name):
            if public != "__version__":
                page += [f"::: {home}.{public}", ""]
        (folder / f"{title}.md").write_text("\n".join(page), encoding="utf-8")
    index += ["", "Adapters, each with the extra of its name:", ""]
    for title in adapters():
        index.append(f"- [`{title}`]({title}.md)")
        page = [f"# {title}", "", f"::: {title}", "    options: {show_root_heading: false}", ""]
        (folder / f"{title}.md").write_text("\n".join(page), encoding="utf-8")
    (folder / "index.md").write_text("\n".join(index) + "\n", encoding="utf-8")


def main() -> int:
    """Build the site; return the exit status of mkdocs."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    copy_pages()
    write_reference()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
