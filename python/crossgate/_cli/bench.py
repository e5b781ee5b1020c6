"""`crossgate bench`: time and memory of crossgate on this machine, without a network or data.

The command builds its parser and prints; the measurements are those of `measurements`.
"""

from __future__ import annotations

import argparse

from crossgate._cli import DONE
from crossgate._cli.input import at_least
from crossgate._cli.output import say, show, show_json
from crossgate._support.wording import counted

SCHEMA = "crossgate-bench/2"

# Making a million documents takes minutes, so this section is not a default.
_DEFAULT = ("processes", "routes", "pairs", "bm25", "cosine", "indexing")
_SECTIONS = (*_DEFAULT, "growth")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        type=_section,
        help=f"sections to measure: {', '.join(_DEFAULT)} (default: all of these), growth",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default="1000,10000,100000",
        metavar="N,...",
        help="numbers of documents (default: 1000,10000,100000)",
    )
    parser.add_argument(
        "--repetitions",
        type=at_least(1),
        default=15,
        metavar="N",
        help="timings of each measurement, ten times as many for kernels (default: 15)",
    )


def run(options: argparse.Namespace) -> int:
    """Measure section by section, and print each when it is done."""
    # Every search runs in one thread; numpy, which makes the vectors, reads these when imported.
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from crossgate._cli.measurements import SECTIONS, Settings, table
    from crossgate._evaluation.stored_runs import describe_machine, describe_versions

    settings = Settings(repetitions=options.repetitions, sizes=options.sizes)
    machine, versions = describe_machine(), describe_versions()
    values = {}
    for name in options.sections or _DEFAULT:
        say(f"measuring {name}")
        figures = list(SECTIONS[name](settings))
        values[name] = [figure.to_dict() for figure in figures]
        if not options.json:
            title, _, _ = (SECTIONS[name].__doc__ or "").partition("\n")
            show(f"{title}\n\n{table(figures)}\n")
    if options.json:
        show_json({"schema": SCHEMA, "machine": machine, "versions": versions, "sections": values})
    else:
        texts = ", ".join(f"{name} {version}" for name, version in versions.items())
        cores = counted(int(machine["cores"]), "core")
        show(f"{machine['processor']}, {cores}, {machine['system']}; {texts}")
    return DONE


# Not by `choices`: with `nargs="*"`, argparse of Python 3.11 requires the empty list among them.
def _section(text: str) -> str:
    if text not in _SECTIONS:
        raise argparse.ArgumentTypeError(f"{text}: choose from {', '.join(_SECTIONS)}")
    return text


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split(","))
    if not sizes or min(sizes) < 20:
        raise argparse.ArgumentTypeError(f"{text}: whole numbers with commas, each at least 20")
    return sizes
