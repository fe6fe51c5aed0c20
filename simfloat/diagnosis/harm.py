"""How much of a gradient is wrong, or gone, beside the reference's at the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simfloat.diagnosis.trial import TrainingTrial, TrialMoment
from simfloat.policy import Policy

#: Gradients of parameters below this share of the whole gradient's norm are not judged by what is gone of them, nor
#: relative to less than that share by their error: what should cancel, such as the gradient of a bias in front of a
#: normalization, is rounding errors alone.
LEAST_GONE, LEAST_WRONG = 1e-4, 0.1


class Harm:
    """Gradients under policies beside those of the reference, at the weights of some moments of a training."""

    def __init__(self, trial: TrainingTrial, reference: Policy, moments: Sequence[TrialMoment]) -> None:
        self._trial, self._moments = trial, moments
        self._exact = [trial.gradients(reference, moment._replace(state=None)) for moment in moments]

    def gone(self, policy: Policy, scale: float = 1.0) -> float:
        """The largest share of a parameter's gradient that is zero, in the 2-norm; `scale` is one of the loss."""
        return self._worst(policy, _gone, scale)

    def wrong(self, policy: Policy, scale: float = 1.0) -> float:
        """The largest relative error of a parameter's gradient, in the 2-norm; infinite if it is not finite."""
        return self._worst(policy, _wrong, scale)

    def _worst(self, policy: Policy, measure: Any, scale: float) -> float:
        found = 0.0
        for moment, exact in zip(self._moments, self._exact, strict=True):
            given = self._trial.gradients(policy, moment, scale)
            total = _norm(np.array([_norm(g) for g in exact.values()]))
            found = max([found, *(measure(given[path], exact[path], total) for path in exact)])
        return found


def _gone(given: Any, exact: Any, total: float) -> float:
    norm = _norm(exact)
    return _norm(exact[given == 0]) / norm if norm > LEAST_GONE * total else 0.0


def _wrong(given: Any, exact: Any, total: float) -> float:
    if not np.isfinite(given).all():
        return float("inf")
    least = max(_norm(exact), LEAST_WRONG * total)
    return _norm(given - exact) / least if least else 0.0


def _norm(x: Any) -> float:
    return float(np.linalg.norm(np.ravel(x)))
