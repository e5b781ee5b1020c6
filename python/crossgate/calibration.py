"""Fitting a profile on labelled data, with a cross-validated check and the cost of a wrong pick.

    measure(read_dataset("eval/skills"), Path("skills.run.jsonl"))
    fitted = calibrate([read_run(Path("skills.run.jsonl"))], Objective(max_false_positive_rate=0.1))
    write_profile(Path("skills.profile.json"), fitted.profile)

A decision log can take the place of a run: `run_from_log(Path("decisions.jsonl")).run`.

Needs scipy: `pip install 'crossgate[calibrate]'`.
"""

from crossgate._calibration.calibrating import (
    Calibration,
    Figures,
    Objective,
    calibrate,
)
from crossgate._calibration.from_log import LoggedRun, run_from_log

__all__ = [
    "Calibration",
    "Figures",
    "LoggedRun",
    "Objective",
    "calibrate",
    "run_from_log",
]
