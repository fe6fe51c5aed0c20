"""All experiments by name: the packages of this folder, except for shared ones."""

from __future__ import annotations

from pathlib import Path
from pkgutil import iter_modules

from experiments.experiment import Experiment

#: Packages that are not experiments.
SHARED = ("datasets", "independent", "models")

PACKAGES = [module.name for module in iter_modules([str(Path(__file__).parent)]) if module.ispkg]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (Experiment.of(f"experiments.{name}") for name in PACKAGES if name not in SHARED)
}
