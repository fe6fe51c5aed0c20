"""All experiments by name."""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.update_cancellation import UPDATE_CANCELLATION

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (UPDATE_CANCELLATION,)}
