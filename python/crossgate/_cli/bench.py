"""`crossgate bench`: time and memory of crossgate and other libraries on this machine."""

from __future__ import annotations

import argparse

from crossgate._cli import DONE
from crossgate._cli.input import at_least
from crossgate._cli.output import json_option, say, show, show_json
from crossgate._support.wording import counted

SCHEMA = "crossgate-bench/1"

# Making a million documents takes minutes, so this section is not a default.
_DEFAULT = ("processes", "routes", "pairs", "bm25", "cosine", "indexing")
_SECTIONS = (*_DEFAULT, "growth")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from crossgate._cli.benchmarks.peers import NAMES

    parser.set_defaults(run=run)
    json_option(parser)
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        type=_section,
        help=f"sections to measure: {', '.join(_DEFAULT)} (default: all of these), growth",
    )
    parser.add_argument(
        "--against",
        metavar="NAMES",
        help=f"compare with: {', '.join(NAMES)}, with commas (default: those installed)",
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
    # Every library that is measured in one thread gets one thread; read when numpy is imported.
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from crossgate._cli.benchmarks import peers
    from crossgate._cli.benchmarks.sections import SECTIONS, Settings
    from crossgate._cli.benchmarks.timing import table
    from crossgate._evaluation.runs.machine import describe_machine, describe_versions

    settings = Settings(
        repetitions=options.repetitions, sizes=options.sizes, against=peers.chosen(options.against)
    )
    machine, versions = describe_machine(), describe_versions(*settings.against)
    measured = {}
    for name in options.sections or _DEFAULT:
        say(f"measuring {name}")
        figures = list(SECTIONS[name](settings))
        measured[name] = [figure.to_dict() for figure in figures]
        if not options.json:
            title, _, _ = (SECTIONS[name].__doc__ or "").partition("\n")
            units = dict.fromkeys(figure.unit for figure in figures)
            tables = (
                table([figure for figure in figures if figure.unit == unit]) for unit in units
            )
            show("\n\n".join([title, *tables]) + "\n")
    if options.json:
        show_json(
            {"schema": SCHEMA, "machine": machine, "versions": versions, "sections": measured}
        )
    else:
        shown = ", ".join(f"{name} {version}" for name, version in versions.items())
        show(
            "Median (quartiles); ratio: how many times as fast crossgate is. "
            f"{machine['processor']}, {counted(int(machine['cores']), 'core')}, "
            f"{machine['system']}; {shown}"
        )
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
