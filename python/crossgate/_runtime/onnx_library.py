"""onnxruntime's C interface, through the shared library that its package contains.

Importing the package also imports numpy: together a fifth of the time of a process that reranks one
prompt (docs/speed.md). The library alone needs neither.

The interface is a table of functions, to which new versions of onnxruntime only append
(onnxruntime_c_api.h): the places below hold for all versions from `_VERSION` on.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

# The version of the table that is asked for: that of onnxruntime 1.24.
_VERSION = 24

# A model of 8,192 tokens with 4,096 numbers each has 128 MiB.
_OUTPUT_BYTES = 256 << 20
_FATAL = 4  # the only level that is logged; errors are returned
_INT64 = 7
# The numbers of element types, and their formats in `struct`.
_ELEMENTS = {1: "=f", 6: "=i", 7: "=q", 10: "=e", 11: "=d"}

_PATH = ctypes.c_wchar_p if sys.platform == "win32" else c_char_p
_OUT = POINTER(c_void_p)

# Place in the table, and types of the arguments, of each function that returns a status.
_FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "CreateEnv": (3, (c_int, c_char_p, _OUT)),
    "CreateSession": (7, (c_void_p, _PATH, c_void_p, _OUT)),
    "Run": (
        9,
        (
            c_void_p,
            c_void_p,
            POINTER(c_char_p),
            _OUT,
            c_size_t,
            POINTER(c_char_p),
            c_size_t,
            _OUT,
        ),
    ),
    "CreateSessionOptions": (10, (_OUT,)),
    "DisableMemPattern": (17, (c_void_p,)),
    "DisableCpuMemArena": (19, (c_void_p,)),
    "SetSessionLogSeverityLevel": (22, (c_void_p, c_int)),
    "SetIntraOpNumThreads": (24, (c_void_p, c_int)),
    "SetInterOpNumThreads": (25, (c_void_p, c_int)),
    "SessionGetInputCount": (30, (c_void_p, POINTER(c_size_t))),
    "SessionGetOutputCount": (31, (c_void_p, POINTER(c_size_t))),
    "SessionGetInputName": (36, (c_void_p, c_size_t, c_void_p, POINTER(c_void_p))),
    "SessionGetOutputName": (37, (c_void_p, c_size_t, c_void_p, POINTER(c_void_p))),
    "CreateRunOptions": (39, (_OUT,)),
    "RunOptionsSetRunLogSeverityLevel": (41, (c_void_p, c_int)),
    "RunOptionsSetTerminate": (46, (c_void_p,)),
    "CreateTensorWithDataAsOrtValue": (
        49,
        (c_void_p, c_void_p, c_size_t, POINTER(c_int64), c_size_t, c_int, _OUT),
    ),
    "IsTensor": (50, (c_void_p, POINTER(c_int))),
    "GetTensorMutableData": (51, (c_void_p, _OUT)),
    "GetTensorElementType": (60, (c_void_p, POINTER(c_int))),
    "GetDimensionsCount": (61, (c_void_p, POINTER(c_size_t))),
    "GetDimensions": (62, (c_void_p, POINTER(c_int64), c_size_t)),
    "GetTensorTypeAndShape": (65, (c_void_p, _OUT)),
    "CreateCpuMemoryInfo": (69, (c_int, c_int, _OUT)),
    "AllocatorFree": (76, (c_void_p, c_void_p)),
    "GetAllocatorWithDefaultOptions": (78, (_OUT,)),
    "AddExternalInitializersFromFilesInMemory": (
        279,
        (c_void_p, POINTER(_PATH), POINTER(c_char_p), POINTER(c_size_t), c_size_t),
    ),
}
# The same for functions that return nothing.
_RELEASES = {
    "ReleaseStatus": 93,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "ReleaseRunOptions": 97,
    "ReleaseTensorTypeAndShapeInfo": 99,
    "ReleaseSessionOptions": 100,
}
_ERROR_MESSAGE = 2


class OnnxError(Exception):
    """An error that onnxruntime returns, with its message."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An output of a model.

    Attributes:
        shape: Length of each dimension.
        values: The numbers as 32-bit floats; the index of the last dimension changes fastest.
    """

    shape: tuple[int, ...]
    values: array[float]


class _Library:
    """The functions of the table, and what all sessions of the process share."""

    def __init__(self, path: Path) -> None:
        base = ctypes.CDLL(str(path)).OrtGetApiBase
        base.restype = c_void_p
        get_table = ctypes.CFUNCTYPE(c_void_p, c_uint32)(_pointer_at(base()))
        self._table = get_table(_VERSION)
        if not self._table:
            raise ImportError(f"{path} is older than onnxruntime 1.{_VERSION}")
        self._message = self._function(_ERROR_MESSAGE, c_char_p, c_void_p)
        self._calls = {
            name: self._function(place, c_void_p, *types)
            for name, (place, types) in _FUNCTIONS.items()
        }
        self._releases = {
            name: self._function(place, None, c_void_p) for name, place in _RELEASES.items()
        }
        self.environment = self.create("CreateEnv", _FATAL, b"crossgate")
        self.memory = self.create("CreateCpuMemoryInfo", 0, 0)  # no arena; the default kind
        self.allocator = self.create("GetAllocatorWithDefaultOptions")

    def call(self, name: str, *arguments: object) -> None:
        """Call a function, and raise `OnnxError` for the status that it returns."""
        status = self._calls[name](*arguments)
        if status:
            message = self._message(status).decode(errors="replace")
            self._releases["ReleaseStatus"](status)
            raise OnnxError(message)

    def create(self, name: str, *arguments: object) -> c_void_p:
        """Return what a function writes to its last argument."""
        made = c_void_p()
        self.call(name, *arguments, byref(made))
        return made

    def release(self, name: str, made: c_void_p) -> None:
        """Free what `create` has returned."""
        self._releases[name](made)

    def _function(self, place: int, result: Any, *types: Any) -> Callable[..., Any]:
        # ctypes releases the interpreter's lock during a call.
        address = _pointer_at(self._table + place * ctypes.sizeof(c_void_p))
        return ctypes.CFUNCTYPE(result, *types)(address)


class RunOptions:
    """Options of one run, by which another thread can stop it."""

    def __init__(self, library: _Library) -> None:
        self._library = library
        self._options = library.create("CreateRunOptions")
        self.terminated = False
        library.call("RunOptionsSetRunLogSeverityLevel", self._options, _FATAL)

    def terminate(self) -> None:
        """Stop the run before its next node."""
        self.terminated = True
        self._library.call("RunOptionsSetTerminate", self._options)

    @property
    def _as_parameter_(self) -> c_void_p:
        return self._options

    def __del__(self) -> None:
        if hasattr(self, "_options"):
            self._library.release("ReleaseRunOptions", self._options)


class Session:
    """A graph that runs on one thread; safe to share between threads.

    Args:
        path: The graph's file.
        weights: Names of the files of weights beside it that are read; others are mapped, and a
            process that reads a mapped file after it was truncated is killed by a signal.

    Attributes:
        inputs: Names of its inputs.

    Raises:
        ImportError: The library is missing or cannot be loaded.
        OnnxError: onnxruntime cannot read the graph.
        OSError: A file of weights cannot be read.
    """

    def __init__(self, path: Path, weights: Sequence[str] = ()) -> None:
        self._library = library = load()
        options = library.create("CreateSessionOptions")
        try:
            library.call("SetIntraOpNumThreads", options, 1)
            library.call("SetInterOpNumThreads", options, 1)
            # The arena would keep the memory of the largest input until the session is closed.
            library.call("DisableCpuMemArena", options)
            library.call("DisableMemPattern", options)
            library.call("SetSessionLogSeverityLevel", options, _FATAL)
            if weights:
                count = len(weights)
                contents = [path.with_name(name).read_bytes() for name in weights]
                library.call(
                    "AddExternalInitializersFromFilesInMemory",
                    options,
                    (_PATH * count)(*map(_as_path, weights)),
                    (c_char_p * count)(*contents),
                    (c_size_t * count)(*map(len, contents)),
                    count,
                )
            self._session = library.create(
                "CreateSession", library.environment, _as_path(path), options
            )
        finally:
            library.release("ReleaseSessionOptions", options)
        self.inputs = self._names("Input")
        self._output, *_ = self._names("Output")

    def run_options(self) -> RunOptions:
        """Return options for one run."""
        return RunOptions(self._library)

    def run(self, feed: Mapping[str, Sequence[Sequence[int]]], options: RunOptions) -> Tensor:
        """Run the graph and return its first output.

        Args:
            feed: The rows of each input, of equal length.
            options: Options that no other run uses.

        Raises:
            OnnxError: onnxruntime refuses the input, fails, or was stopped.
        """
        library = self._library
        # The arrays must live as long as the tensors that use their memory.
        arrays = [array("q", [number for row in rows for number in row]) for rows in feed.values()]
        tensors: list[c_void_p] = []
        output = c_void_p()
        try:
            for rows, numbers in zip(feed.values(), arrays, strict=True):
                address, count = numbers.buffer_info()
                shape = (c_int64 * 2)(len(rows), count // len(rows))
                data = (library.memory, address, count * numbers.itemsize)
                tensors.append(
                    library.create("CreateTensorWithDataAsOrtValue", *data, shape, 2, _INT64)
                )
            count = len(tensors)
            names = (c_char_p * count)(*(name.encode() for name in feed))
            values = (c_void_p * count)(*tensors)
            wanted = (c_char_p * 1)(self._output)
            feeds = (names, values, count)
            library.call("Run", self._session, options, *feeds, wanted, 1, byref(output))
            return self._tensor(output)
        finally:
            for tensor in tensors:
                library.release("ReleaseValue", tensor)
            if output:
                library.release("ReleaseValue", output)

    def _tensor(self, value: c_void_p) -> Tensor:
        library = self._library
        is_tensor, kind, dimensions = c_int(), c_int(), c_size_t()
        library.call("IsTensor", value, byref(is_tensor))
        if not is_tensor:
            raise OnnxError("its first output is not a tensor")
        described = library.create("GetTensorTypeAndShape", value)
        try:
            library.call("GetTensorElementType", described, byref(kind))
            library.call("GetDimensionsCount", described, byref(dimensions))
            lengths = (c_int64 * dimensions.value)()
            library.call("GetDimensions", described, lengths, dimensions.value)
        finally:
            library.release("ReleaseTensorTypeAndShapeInfo", described)
        code = _ELEMENTS.get(kind.value)
        if code is None:
            raise OnnxError(f"its first output has elements of type {kind.value}, not numbers")
        data = library.create("GetTensorMutableData", value)
        size = prod(lengths) * struct.calcsize(code)
        if size > _OUTPUT_BYTES:  # from 2 GiB on, `string_at` reads another number of bytes
            raise OnnxError(
                f"its first output has {size:,} bytes, and at most {_OUTPUT_BYTES:,} are read"
            )
        content = ctypes.string_at(data, size) if data else b""
        if code == "=f":  # a hundred times as fast as number by number
            values = array("f", content)
        else:
            values = array("f", (number for (number,) in struct.iter_unpack(code, content)))
        return Tensor(tuple(lengths), values)

    def _names(self, side: str) -> list[bytes]:
        library = self._library
        count = c_size_t()
        library.call(f"SessionGet{side}Count", self._session, byref(count))
        names = []
        for place in range(count.value):
            text = library.create(f"SessionGet{side}Name", self._session, place, library.allocator)
            names.append(ctypes.string_at(text))
            library.call("AllocatorFree", library.allocator, text)
        return names

    def __del__(self) -> None:
        if hasattr(self, "_session"):
            self._library.release("ReleaseSession", self._session)


@cache
def load() -> _Library:
    """Return onnxruntime's library, loaded once per process.

    Raises:
        ImportError: The package is not installed, or its library is missing or cannot be loaded.
    """
    # onnxruntime 1.29 and later sends usage data over the network; only this variable prevents it
    # before the start.
    if not os.environ.get("ORT_DISABLE_TELEMETRY"):
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    path = _path()
    try:
        return _Library(path)
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from error


def _path() -> Path:
    package = find_spec("onnxruntime")
    if package is None:
        raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")
    # conda keeps the library with those of its other packages.
    folders = [Path(folder) / "capi" for folder in package.submodule_search_locations or ()]
    folders += [Path(sys.prefix) / "lib", Path(sys.prefix) / "Library" / "bin"]
    for folder in folders:
        for name in ("libonnxruntime.so*", "libonnxruntime.*dylib", "onnxruntime.dll"):
            if found := sorted(folder.glob(name)):
                return found[-1]
    raise ImportError(f"there is no library of onnxruntime in {folders[0]}")


def _as_path(path: str | Path) -> Any:
    return str(path) if sys.platform == "win32" else os.fsencode(path)


def _pointer_at(address: int) -> int:
    value = c_void_p.from_address(address).value
    assert value is not None
    return value
