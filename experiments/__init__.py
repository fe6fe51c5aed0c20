"""Questions and their answers: one folder for each, run by ``python -m experiments``."""

from experiments.experiment import Experiment
from experiments.update_cancellation import UPDATE_CANCELLATION

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (UPDATE_CANCELLATION,)}
