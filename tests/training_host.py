"""Runs scripts in forks of a process that has imported torch, which takes longer than most scripts.

Each line on standard input is a list: a script, its arguments, and the files for its standard
input, output and errors. The script runs in a fork of this process, which has imported the slow
packages; the answer is a line with its exit code.
"""

import json
import os
import runpy
import sys
import traceback

import bm25s  # noqa: F401
import onnx  # noqa: F401
import torch.distributed  # noqa: F401
from safetensors.torch import load_file  # noqa: F401
from transformers import BertForSequenceClassification  # noqa: F401

print("ready", flush=True)  # noqa: T201
for line in sys.stdin:
    script, arguments, *files = json.loads(line)
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201
        continue
    for place, path in enumerate(files):
        opened = os.open(path, os.O_RDONLY if place == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, place)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else ended.code is not None
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)  # noqa: T201
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # The regular end would free the imported modules one by one, which takes seconds.
    os._exit(code)
