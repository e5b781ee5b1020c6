"""Fitting the gate and the guardrails from labelled data, with a hold-out and an explicit cost.

    run = measure(read_dataset("eval/skills"), Path("skills.run.jsonl"))
    found = calibrate([read_run(Path("skills.run.jsonl"))], Objective(max_false_inject=0.1))
    write_profile(Path("skills.profile.json"), found.profile)

Needs scipy: `pip install 'crossgate[calibrate]'`.
"""

from crossgate.calibration.calibrating import Calibration, Figures, Objective, calibrate

__all__ = ["Calibration", "Figures", "Objective", "calibrate"]
