"""Fitting the gate and the guardrails from labelled data, with a hold-out and an explicit cost.

    run = measure(read_dataset("eval/skills"), Path("skills.run.jsonl"))
    found = calibrate([read_run(Path("skills.run.jsonl"))], Objective(max_false_inject=0.1))
    write_profile(Path("skills.profile.json"), found.profile)

A decision log takes the place of a run: `run_from_log(Path("decisions.jsonl")).run`.

Needs scipy: `pip install '.[calibrate]'`.
"""

from crossgate._calibration.bar import set_bar
from crossgate._calibration.calibrating import Calibration, Figures, Objective, calibrate
from crossgate._calibration.from_log import LoggedRun, run_from_log

__all__ = [
    "Calibration",
    "Figures",
    "LoggedRun",
    "Objective",
    "calibrate",
    "run_from_log",
    "set_bar",
]
