"""The technologies of a project, from the names and the dependencies of its files."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from crossgate._support.errors import SourceError
from crossgate._support.files import open_source

MOST_ENTRIES = 2_000
"""Entries of a folder that are looked at."""

MANIFEST_BYTES = 64 * 1024
"""Bytes of a manifest that are read; a longer manifest of JSON has no dependencies."""

MOST_PARENTS = 8
"""Parents of a folder that are searched for the root of its repository."""

SUFFIXES = {
    ".bicep": "azure",
    ".cabal": "haskell",
    ".cpp": "cpp",
    ".cs": "dotnet",
    ".csproj": "dotnet",
    ".cu": "cuda",
    ".fsproj": "dotnet",
    ".go": "go",
    ".ipynb": "jupyter",
    ".java": "java",
    ".kt": "kotlin",
    ".lua": "lua",
    ".nim": "nim",
    ".nimble": "nim",
    ".nix": "nix",
    ".php": "php",
    ".pl": "perl",
    ".ps1": "powershell",
    ".psd1": "powershell",
    ".py": "python",
    ".r": "r",
    ".rb": "ruby",
    ".rs": "rust",
    ".scala": "scala",
    ".sh": "bash",
    ".sln": "dotnet",
    ".slnx": "dotnet",
    ".sol": "solidity",
    ".sql": "sql",
    ".swift": "swift",
    ".tex": "latex",
    ".tf": "terraform",
    ".uproject": "unreal",
    ".vbproj": "dotnet",
    ".xcodeproj": "ios",
    ".xcworkspace": "ios",
    ".zig": "zig",
}
"""Technologies by the suffix of a file or folder, in lower case."""

NAMES = {
    ".gitlab-ci.yml": ("gitlab-ci",),
    "ansible.cfg": ("ansible",),
    "build.gradle": ("java",),
    "build.gradle.kts": ("java", "kotlin"),
    "build.sbt": ("scala",),
    "build.zig": ("zig",),
    "bun.lock": ("bun",),
    "bun.lockb": ("bun",),
    "cargo.toml": ("rust",),
    "cdk.json": ("aws",),
    "chart.yaml": ("helm",),
    "cmakelists.txt": ("cmake", "cpp"),
    "compose.yaml": ("docker",),
    "compose.yml": ("docker",),
    "composer.json": ("php",),
    "deno.json": ("deno",),
    "deps.edn": ("clojure",),
    "description": ("r",),
    "docker-compose.yaml": ("docker",),
    "docker-compose.yml": ("docker",),
    "dockerfile": ("docker",),
    "dune-project": ("ocaml",),
    "firebase.json": ("gcp",),
    "flake.nix": ("nix",),
    "foundry.toml": ("solidity",),
    "gemfile": ("ruby",),
    "global.json": ("dotnet",),
    "go.mod": ("go",),
    "kustomization.yaml": ("kubernetes",),
    "mix.exs": ("elixir",),
    "package.json": ("javascript", "node"),
    "package.swift": ("swift",),
    "pipfile": ("python",),
    "podfile": ("ios",),
    "pom.xml": ("java",),
    "project.clj": ("clojure",),
    "pubspec.yaml": ("dart",),
    "pyproject.toml": ("python",),
    "rebar.config": ("erlang",),
    "renv.lock": ("r",),
    "requirements.txt": ("python",),
    "serverless.yml": ("aws",),
    "setup.cfg": ("python",),
    "setup.py": ("python",),
    "sfdx-project.json": ("salesforce",),
    "shard.yml": ("crystal",),
    "stack.yaml": ("haskell",),
    "tsconfig.json": ("typescript",),
    "uv.lock": ("python",),
}
"""Technologies by the name of a file, in lower case."""

DEPENDENCIES = {
    "@angular/core": "angular",
    "@nestjs/core": "nestjs",
    "@prisma/client": "prisma",
    "@sveltejs/kit": "svelte",
    "airflow": "python",
    "astro": "astro",
    "django": "django",
    "electron": "electron",
    "expo": "react-native",
    "express": "express",
    "fastapi": "fastapi",
    "flask": "flask",
    "flutter": "flutter",
    "graphql": "graphql",
    "kafkajs": "kafka",
    "laravel/framework": "laravel",
    "mongodb": "mongodb",
    "mongoose": "mongodb",
    "mysql2": "mysql",
    "next": "nextjs",
    "nuxt": "nuxt",
    "pandas": "pandas",
    "pg": "postgresql",
    "phoenix": "elixir",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pyspark": "spark",
    "rails": "rails",
    "react": "react",
    "react-native": "react-native",
    "redis": "redis",
    "spring-boot": "spring",
    "spring-boot-starter": "spring",
    "spring-boot-starter-parent": "spring",
    "sqlite3": "sqlite",
    "svelte": "svelte",
    "tailwindcss": "tailwind",
    "tensorflow": "tensorflow",
    "torch": "pytorch",
    "typescript": "typescript",
    "vue": "vue",
}
"""Technologies by the name of a dependency."""

_MANIFESTS = frozenset(
    {
        "build.gradle",
        "build.gradle.kts",
        "composer.json",
        "gemfile",
        "mix.exs",
        "package.json",
        "pipfile",
        "pom.xml",
        "pubspec.yaml",
        "pyproject.toml",
        "requirements.txt",
    }
)
_DEPENDENCY_FIELDS = ("dependencies", "devDependencies", "peerDependencies", "require")
_WORD = re.compile(r"[\w@][\w./-]*")


def technologies_of(folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the technologies of the project that a folder belongs to, sorted by name.

    The folder and the root of its repository are listed once each, and manifests in them are read.
    Nothing is run, and files that cannot be read are ignored.

    Raises:
        SourceError: `source_missing` or `source_unreadable` if the folder cannot be listed.
    """
    path = Path(folder)
    found: set[str] = set()
    listed = _entries(path)
    for root in dict.fromkeys((path, _root(path))):
        with suppress(SourceError):
            for name in listed if root == path else _entries(root):
                found.update(NAMES.get(name.lower(), ()))
                suffix = SUFFIXES.get(os.path.splitext(name)[1].lower())
                found.update((suffix,) if suffix else ())
                if name.lower() in _MANIFESTS:
                    found.update(_dependencies(root / name))
        if (root / ".github" / "workflows").is_dir():
            found.add("github-actions")
    return tuple(sorted(found))


def _entries(folder: Path) -> list[str]:
    """Return the names in a folder, sorted."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, MOST_ENTRIES))
    except FileNotFoundError as error:
        raise SourceError("source_missing", f"no such folder: {folder}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SourceError(
            "source_unreadable", f"the folder {folder} cannot be listed: {reason}"
        ) from error


def _root(folder: Path) -> Path:
    """Return the nearest folder with `.git`, or the folder itself."""
    above = Path(os.path.abspath(folder))
    for candidate in (above, *islice(above.parents, MOST_PARENTS)):
        if os.path.exists(candidate / ".git"):
            return folder if candidate == above else candidate
    return folder


def _dependencies(manifest: Path) -> set[str]:
    """Return the technologies of a manifest's dependencies."""
    try:
        with open_source(manifest) as stream:
            text = stream.read(MANIFEST_BYTES).decode("utf-8", "replace")
    except OSError:
        return set()
    names = _names_in_json(text) if manifest.suffix == ".json" else _WORD.findall(text.lower())
    return {DEPENDENCIES[name] for name in names if name in DEPENDENCIES}


def _names_in_json(text: str) -> list[str]:
    try:
        values: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(values, dict):
        return []
    lists = [values.get(field) for field in _DEPENDENCY_FIELDS]
    return [name for names in lists if isinstance(names, dict) for name in names]
