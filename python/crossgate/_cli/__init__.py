"""The command line: arguments in, results on stdout, everything else on stderr.

Exit codes: 0 something was selected or done, 1 nothing is relevant (for `eval compare`: a metric
fell; for `calibrate`: no gate came of the data; for `replay`: a decision differs; for `lint`:
something was found), 2 usage or bad input, 3 failure, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from crossgate import __version__
from crossgate._errors import CrossgateError

DONE, NOTHING_RELEVANT, BAD_INPUT, FAILURE, INTERRUPTED = 0, 1, 2, 3, 130

# The input was fine and the machine was not.
_FAILURES = {
    "index_unwritable",
    "model_failed",
    "profile_unwritable",
    "pull_failed",
    "pull_unwritable",
    "unwritable",
}


# The data was fine and no gate came of it.
_REFUSALS = {"no_gate", "promise_broken"}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A pipe that takes ASCII alone, or a file name in other bytes, is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:] if arguments is None else arguments)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # a reader may leave early, as `head` does
            code = _cannot_print(error)
        # What is left in the buffer would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        options = _parser().parse_args(arguments)
        options.arguments = list(arguments)
        # A command imports what it needs: `route` must not pay for `models pull`.
        from crossgate._cli import commands

        result: int = getattr(commands, options.command)(options)
        return result
    except SystemExit as leaving:  # argparse has printed its help, its version or an error
        return leaving.code if isinstance(leaving.code, int) else DONE
    except CrossgateError as error:
        from crossgate._cli.render import plain

        print(f"crossgate: error[{error.code}]: {plain(str(error))}", file=sys.stderr)
        if error.code in _REFUSALS:
            return NOTHING_RELEVANT
        return FAILURE if error.code in _FAILURES else BAD_INPUT
    except KeyboardInterrupt:
        print("crossgate: interrupted, nothing was left half done", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return DONE
    except Exception as error:  # exit code 1 has a meaning of its own
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _cannot_print(error)
        import traceback

        traceback.print_exc()
        print("crossgate: this is a bug, please report it with the lines above", file=sys.stderr)
        return FAILURE


def _cannot_print(error: OSError) -> int:
    print(f"crossgate: error[cannot_print]: {error.strerror}", file=sys.stderr)
    return FAILURE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="crossgate",
        description="Decides which skill, tool or text chunk fits a query, offline.",
        epilog="Exit codes: 0 selected or done, 1 nothing relevant, 2 bad input, 3 failure.",
    )
    parser.add_argument("--version", action="version", version=f"crossgate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, text: str, *, parent: object = commands) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = parent.add_parser(  # type: ignore[attr-defined]
            name, help=text, description=text[0].upper() + text[1:] + "."
        )
        made.set_defaults(command=made.prog.removeprefix("crossgate ").replace(" ", "_"))
        made.add_argument("--json", action="store_true", help="print the result as JSON")
        return made

    command("demo", "route four prompts through a small skill library")

    index = command("index", "index a folder of skills, a BEIR folder, JSON lines or texts")
    index.add_argument("source", metavar="SOURCE", nargs="+", help="folder or file to read")
    index.add_argument("-o", "--output", metavar="FILE", required=True, help="index file to write")
    index.add_argument(
        "--kind",
        choices=("auto", "skills", "beir", "jsonl", "text"),
        default="auto",
        help="what the sources are (default: look and see)",
    )
    index.add_argument(
        "--embedder",
        metavar="MODEL",
        default="default",
        help="name or folder of a model, or none to search by words alone",
    )
    index.add_argument(
        "--language", default="english", help="language of the stemmer, or none (default: english)"
    )

    route = command("route", "pick the documents of an index that fit a query, or none")
    route.add_argument("query", metavar="QUERY", help="what is wanted, or - to read it from stdin")
    route.add_argument("-i", "--index", metavar="FILE", required=True, help="index file")
    route.add_argument(
        "--embedder",
        metavar="MODEL",
        help="name or folder of the model that made the index, or none for an index without "
        "vectors (default: the model of the name that the index keeps)",
    )
    route.add_argument("--limit", type=int, metavar="N", default=2, help="at most N (default: 2)")
    # One id each: an option that takes several would take the query as well.
    for option, text in (("--allow", "consider only this one"), ("--deny", "leave this one out")):
        route.add_argument(
            option, metavar="ID", action="append", help=f"{text}; repeat it for more"
        )
    _decision_options(route)

    rerank = command("rerank", "reorder candidates that another retriever found")
    rerank.add_argument("query", metavar="QUERY", help="what is wanted")
    rerank.add_argument(
        "candidates",
        metavar="FILE",
        nargs="?",
        default="-",
        help="JSON lines with text and, if there are, id, title, score, cosine (default: stdin)",
    )
    rerank.add_argument("--limit", type=int, metavar="N", help="at most N (default: all)")
    _decision_options(rerank)

    replay = command("replay", "make the decisions of a log again, and stop where one differs")
    replay.add_argument("log", metavar="LOG", help="file that --log has written")

    used = command("used", "note in a log what was used of a decision, or that nothing was")
    used.add_argument("decision", metavar="DECISION", help="the decision_id of route --json")
    used.add_argument("ids", metavar="ID", nargs="*", help="what was used")
    used.add_argument("--log", metavar="FILE", help="the log (default: CROSSGATE_LOG)")

    evaluate = command("eval", "measure whether the gate pays for itself on labelled data")
    evaluate.set_defaults(command="evaluate")
    evaluate.usage = "crossgate eval [OPTION...] DATASET... | compare BEFORE.json AFTER.json"
    evaluate.add_argument(
        "dataset",
        metavar="DATASET",
        nargs="+",
        help="BEIR folder, .jsonl file, or a run that --runs stored, which needs no model; or "
        "`compare` and two files of --json: exit code 1 if a metric fell beyond noise",
    )
    evaluate.add_argument(
        "--modes",
        default="never,gated,always",
        help="which modes stand side by side, of never, gated, always and remote (default: the "
        "first three)",
    )
    evaluate.add_argument(
        "--remote",
        choices=("voyage", "cohere", "jina"),
        help="who reads every query's pool in the mode remote; needs a key, and what it reads is "
        "sent there",
    )
    evaluate.add_argument(
        "--steps",
        action="store_true",
        help="show instead what fusion, decay, cross-encoder, gate and diversity each add",
    )
    evaluate.add_argument("--split", help="default: test, else dev, else the only one")
    evaluate.add_argument("--limit", type=int, metavar="N", help="a sample of N queries")
    evaluate.add_argument(
        "--seed", type=_seed, default=0, help="of sample and intervals (default: 0)"
    )
    evaluate.add_argument("--strict", action="store_true", help="stop at a malformed row")
    evaluate.add_argument(
        "--unnamed", action="store_true", help="leave out queries that name what fits"
    )
    evaluate.add_argument("--signals", action="store_true", help="rate the signals by their AUC")
    evaluate.add_argument("--runs", metavar="FOLDER", help="keep the stored runs here")
    evaluate.add_argument("--html", metavar="FILE", help="also write the report as a page")
    evaluate.add_argument(
        "--curve", metavar="FILE", help="also draw recall@1 against skip rate, as SVG"
    )
    evaluate.add_argument("--profile", metavar="FILE", help="calibration profile")
    evaluate.add_argument("--policy", metavar="FILE", help="floors, cliff, fast paths")
    evaluate.add_argument(
        "--embedder", metavar="MODEL", default="default", help="name, folder, or none"
    )
    evaluate.add_argument("--reranker", metavar="MODEL", default="default", help="name or folder")

    calibrate = command("calibrate", "fit the gate and the guardrails on labelled data")
    calibrate.usage = "crossgate calibrate [OPTION...] DATASET... | --from-log LOG -o PROFILE"
    labels = calibrate.add_mutually_exclusive_group(required=True)
    labels.add_argument(
        "dataset",
        metavar="DATASET",
        nargs="*",
        default=[],  # argparse lets a group have none but optional arguments
        help="BEIR folder, .jsonl file, or a run that eval --runs stored, which needs no model",
    )
    labels.add_argument(
        "--from-log",
        metavar="LOG",
        help="in place of datasets: a log of decisions with what was used of them; needs no model",
    )
    calibrate.add_argument(
        "-o", "--output", metavar="PROFILE", required=True, help="profile to write"
    )
    bar = calibrate.add_mutually_exclusive_group()
    bar.add_argument(
        "--cost-ratio",
        type=float,
        metavar="R",
        default=1.0,
        help="a wrong pick costs R missed ones (default: 1)",
    )
    bar.add_argument(
        "--max-false-inject",
        type=float,
        metavar="A",
        help="at most this share of the queries that nothing fits may get a pick (split conformal)",
    )
    bar.add_argument(
        "--keep-recall",
        type=float,
        metavar="K",
        help="the highest bar that keeps this share of recall@1 in every dataset",
    )
    calibrate.add_argument(
        "--max-recall-loss",
        type=float,
        metavar="L",
        default=0.01,
        help="the recall@1 that skipping may cost against reranking everything (default: 0.01)",
    )
    calibrate.add_argument("--name", help="of the profile (default: that of the file)")
    calibrate.add_argument(
        "--any-corpus", action="store_true", help="meant for other documents, too: no warning there"
    )
    calibrate.add_argument(
        "--unnamed", action="store_true", help="leave out queries that name what fits"
    )
    calibrate.add_argument("--split", help="default: test, else dev, else the only one")
    calibrate.add_argument("--limit", type=int, metavar="N", help="a sample of N queries of each")
    calibrate.add_argument(
        "--seed", type=_seed, default=0, help="of samples, halves and intervals (default: 0)"
    )
    calibrate.add_argument("--strict", action="store_true", help="stop at a malformed row")
    calibrate.add_argument("--runs", metavar="FOLDER", help="keep the stored runs here")
    calibrate.add_argument(
        "--profile", metavar="FILE", help="profile to measure with and to compare with"
    )
    calibrate.add_argument("--embedder", metavar="MODEL", default="default", help="name or folder")
    calibrate.add_argument("--reranker", metavar="MODEL", default="default", help="name or folder")

    from crossgate._cli import lint

    lint.arguments(command("lint", "find what hurts routing in a library of skills"))

    models = commands.add_parser(
        "models", help="list, pull, verify and find models", description="The models."
    )
    kinds = models.add_subparsers(metavar="COMMAND", required=True)
    command("list", "list the models and plug-ins that are known by name", parent=kinds)
    pull = command("pull", "download a model; nothing else ever downloads", parent=kinds)
    pull.add_argument("name", metavar="NAME", help="a name from `crossgate models list`")
    pull.add_argument(
        "--accept-licence", action="store_true", help="accept what the licence forbids"
    )
    verify = command("verify", "check the files of models against their hashes", parent=kinds)
    verify.add_argument("name", metavar="NAME", nargs="*", help="default: all that are here")
    path = command("path", "print the folder of a model, or of all pulled ones", parent=kinds)
    path.add_argument("name", metavar="NAME", nargs="?")

    command("doctor", "say what is installed, which models are here, and what is off and why")
    return parser


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} must be at least 0")
    return value


def _decision_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--explain", action="store_true", help="show how the decision came about")
    parser.add_argument(
        "--reranker",
        metavar="MODEL",
        default="default",
        help="name of a model or plug-in, folder of a model, or none for stage 1 alone",
    )
    parser.add_argument("--profile", metavar="FILE", help="what was fitted: a calibration profile")
    parser.add_argument("--policy", metavar="FILE", help="what you choose: floors, warnings, ...")
    parser.add_argument("--section", metavar="NAME", help="picks a floor of the policy")
    parser.add_argument("--grade", metavar="LETTER", help="of the retrieval, A to F")
    parser.add_argument(
        "--log", metavar="FILE", help="append the decision to a log (default: CROSSGATE_LOG)"
    )
    parser.add_argument(
        "--log-text", action="store_true", help="log the texts too, not their hashes alone"
    )
