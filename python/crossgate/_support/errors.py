"""The exceptions that crossgate raises, each with a stable code.

    CrossgateError
     ├── InputError       a query, candidate, document or option that cannot be used
     ├── SourceError      a file or folder of documents that cannot be read
     ├── IndexFileError   an index file that is missing, damaged or made with another embedder
     ├── ModelError       a model that is unknown, incomplete, altered or cannot be run
     │    └── PluginError   a reranker of another package that cannot be used
     ├── ProfileError     a calibration profile that is malformed or fitted for another model
     ├── CalibrationError labelled data on which no gate meets the objective
     └── RerankerError    a reranker that was not called, or did not answer

Catch the base class to catch them all, and test `code`, never the message:

    try:
        index = crossgate.Index.open("skills.cgx")
    except crossgate.CrossgateError as error:
        if error.code == "index_missing":
            ...
"""

from __future__ import annotations


class CrossgateError(Exception):
    """Base of every exception that crossgate raises deliberately.

    Attributes:
        code: Identifier for programs, in snake_case. It is stable between releases, unlike the
            message.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[CrossgateError], tuple[str, str]]:
        """Pickle with the code, so that the error survives a process pool."""
        return type(self), (self.code, str(self))


class InputError(CrossgateError, ValueError):
    """A query, candidate, document or option that cannot be used.

    Codes: `empty_query`, `query_too_long`, `invalid_text`, `empty_document`, `duplicate_id`,
    `no_documents`, `wrong_dimension`, `not_finite`, `zero_vector`, `out_of_range`,
    `malformed_candidate`, `malformed_step`, `malformed_setting`; `malformed_tool` and `no_tools`
    for lists of tools; `malformed_servers` for the MCP servers of a file; `address_unusable` for a
    server; `hook_failed` and `temporary_environment` for the installation of a hook;
    `not_parkable` for a skill.
    """


class SourceError(CrossgateError):
    """A file or folder of documents, labels or measurements that cannot be used.

    Codes: `source_missing`, `source_unreadable`, `source_unknown`, `no_documents`,
    `no_decisions`, `not_a_log`, `no_transcripts`, `server_failed`;
    `malformed_row`, `empty_split`, `unknown_split` for labelled data; `malformed_run`,
    `unsuitable_run`, `malformed_report`, `not_comparable`, `unwritable` for measurements.
    """


class IndexFileError(CrossgateError):
    """An index file that cannot be opened or written.

    Codes: `index_missing`, `index_unreadable`, `index_unwritable`, `not_an_index`,
    `index_version`, `index_truncated`, `index_corrupt`, `embedder_mismatch`.
    """


class ModelError(CrossgateError):
    """A model that cannot be found, verified or run.

    Codes: `unknown_model`, `model_missing`, `model_incomplete`, `model_altered`,
    `model_unsupported`, `model_failed`, `dependency_missing`, `pull_failed`, `pull_unwritable`,
    `lock_malformed`, `licence_not_accepted`.
    """


class PluginError(ModelError):
    """A reranker of another package that cannot be used.

    Codes: `plugin_failed`, `plugin_ambiguous`.
    """


class ProfileError(CrossgateError):
    """A calibration profile that cannot be used.

    Codes: `profile_missing`, `profile_unreadable`, `profile_malformed`, `profile_version`,
    `profile_mismatch`, `profile_unwritable`, and the first four with `policy` in the place of
    `profile`.
    """


class CalibrationError(CrossgateError):
    """Labelled data on which no gate meets the objective.

    Codes: `no_labels`, `too_few_negatives`, `no_gate`, `promise_broken`.
    """


class RerankerError(CrossgateError):
    """A reranker that was not called, or did not answer; routing never raises it.

    Codes: `circuit_breaker`, `budget`, `api_error`, `partial_scores`, `no_key`.
    """


def raise_panic(error: BaseException, what: str) -> None:
    """Raise a `ModelError` if an error is a panic of Rust code.

    The core and packages such as `tokenizers` raise a panic as PyO3's `PanicException`, which is no
    `Exception` and is known by its name only.

    Args:
        error: The error that was raised.
        what: What called the code, for the message.

    Raises:
        ModelError: `model_failed`.
    """
    if type(error).__name__ == "PanicException":
        raise ModelError("model_failed", f"{what} panicked: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has no message."""
    try:
        return next(iter(str(error).splitlines()), "") or type(error).__name__
    except Exception:
        return type(error).__name__
