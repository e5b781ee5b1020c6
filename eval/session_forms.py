"""Compares forms of the cross-encoder's graph: time and memory of creating a session.

    python eval/session_forms.py [TIMES]

Each form is loaded in processes of its own, in turn: the graph whose weights are mapped into
memory, as it ships; one file with graph and weights; the same as onnxruntime optimises it (which it
then does not do again); the same in ORT's format; and one file without prepacked weights. The table
has the least processor time, the peak memory, and the first logit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FORMS = ("mapped", "one file", "optimised", "ORT format", "not prepacked")

Row = dict[str, float | str]


def once(form: str, folder: Path) -> Row:
    """Create a session of this form in this process, and run it once."""
    import resource

    import numpy as np
    import onnxruntime

    from crossgate._runtime.model_files import ROUTING_RERANKER, locate

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = 4
    path = locate(ROUTING_RERANKER, "cross-encoder").model
    if form != "mapped":
        path = path.with_name("model.onnx")
    if form in ("optimised", "ORT format"):
        path = folder / ("model.ort" if form == "ORT format" else "model.onnx")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif form == "not prepacked":
        options.add_session_config_entry("session.disable_prepacking", "1")
    elif form.startswith("write "):
        options.optimized_model_filepath = form.removeprefix("write ")
        if form.endswith(".ort"):
            options.add_session_config_entry("session.save_model_format", "ORT")
    start = time.process_time()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    created = time.process_time()
    feed = {each.name: np.ones((1, 60), dtype=np.int64) for each in session.get_inputs()}
    logit = session.run(None, feed)[0].ravel()[:1]
    return {
        "create": 1e3 * (created - start),
        "run": 1e3 * (time.process_time() - created),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "logit": logit.tobytes().hex(),
    }


def main() -> None:
    """Print a table."""
    if len(sys.argv) == 3:
        print(json.dumps(once(sys.argv[1], Path(sys.argv[2]))))
        return
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:

        def measured(form: str) -> Row:
            command = [sys.executable, __file__, form, name]
            said = subprocess.run(  # noqa: S603
                command,
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
            )
            row: Row = json.loads(said.stdout)
            return row

        for file in ("model.onnx", "model.ort"):
            measured(f"write {name}/{file}")
        rows: dict[str, list[Row]] = {form: [] for form in FORMS}
        for _ in range(times):
            for form in FORMS:
                rows[form].append(measured(form))
    print("| form | session, ms | first run, ms | peak, MiB | logit, bytes |")
    print("| --- | --- | --- | --- | --- |")
    for form, found in rows.items():
        create, run, peak = (
            min(float(row[key]) for row in found) for key in ("create", "run", "peak")
        )
        print(f"| {form} | {create:.0f} | {run:.0f} | {peak:.0f} | {found[0]['logit']} |")


if __name__ == "__main__":
    main()
