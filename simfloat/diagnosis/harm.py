"""How much of a gradient is wrong, or gone, beside the reference's at the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simfloat.arithmetic._cast import as_cast
from simfloat.diagnosis.trial import Arrays, TrainingTrial, TrialMoment
from simfloat.policy import Policy

#: Gradients of parameters below this share of the whole gradient's norm are not judged by what is gone of them, nor
#: relative to less than that share by their error: what should cancel, such as the gradient of a bias in front of a
#: normalization, is rounding errors alone.
LEAST_GONE, LEAST_WRONG = 1e-4, 0.1

#: The share of a gradient from which it is wrong.
WRONG_SHARE = 0.1

#: The roles of operands, and how many of their roundings a gradient may be wrong by.
OPERANDS, ROUNDOFFS = ("compute", "compute_weights", "compute_gradients"), 4

#: So many times a loss scale is halved at most.
HALVINGS = 40


class GradientErrors:
    """Gradients under policies beside those of the reference, at the weights of some moments of a training."""

    def __init__(self, trial: TrainingTrial, reference: Policy, moments: Sequence[TrialMoment]) -> None:
        self._trial = trial
        self._errors_by_policy: dict[tuple[Policy, float], tuple[float, float]] = {}
        exact = [self._gradients(reference, moment._replace(state=None), 1.0) for moment in moments]
        # Beside a gradient that is not finite itself nothing is judged.
        self._exact_gradients = [(moment, g) for moment, g in zip(moments, exact, strict=True) if _are_finite(g)]

    def largest_zero_share(self, policy: Policy, scale: float = 1.0) -> float:
        """The largest share of a parameter's gradient that is zero, in the 2-norm; `scale` is one of the loss."""
        return self._measure(policy, scale)[0]

    def largest_error(self, policy: Policy, scale: float = 1.0) -> float:
        """The largest relative error of a parameter's gradient, in the 2-norm; infinite if it is not finite."""
        return self._measure(policy, scale)[1]

    def agrees(self, policy: Policy) -> bool:
        """Whether gradients are those of the reference, as far as the digits of the policy's operands allow it."""
        recipe = policy.recipe()
        unit = max(as_cast(getattr(recipe, role)).format.unit_roundoff for role in OPERANDS)
        return self.largest_error(policy) <= max(WRONG_SHARE, ROUNDOFFS * unit)

    def worst_path(self, policy: Policy) -> str:
        """The path of the parameter of whose gradient the largest share is zero."""
        shares: dict[str, float] = {}
        for moment, exact in self._exact_gradients:
            gradients = self._gradients(policy, moment, 1.0)
            total = _norm(np.array([_norm(g) for g in exact.values()]))
            shares |= {
                path: max(shares.get(path, 0.0), _zero_share(gradients[path], g, total)) for path, g in exact.items()
            }
        return max(shares, key=lambda path: shares[path])

    def _measure(self, policy: Policy, scale: float) -> tuple[float, float]:
        """The largest share of a gradient that is zero, and its largest error, measured once for a policy."""
        if (policy, scale) not in self._errors_by_policy:
            gone = wrong = 0.0
            for moment, exact in self._exact_gradients:
                gradients = self._gradients(policy, moment, scale)
                total = _norm(np.array([_norm(g) for g in exact.values()]))
                gone = max([gone, *(_zero_share(gradients[path], exact[path], total) for path in exact)])
                wrong = max([wrong, *(_relative_error(gradients[path], exact[path], total) for path in exact)])
            self._errors_by_policy[policy, scale] = gone, wrong
        return self._errors_by_policy[policy, scale]

    def _gradients(self, policy: Policy, moment: TrialMoment, scale: float) -> Arrays:
        """Gradients at a moment. A loss scale that would skip the step is halved until it would not."""
        gradients = self._trial.gradients(policy, moment, scale)
        scaler = moment.parts[2]
        if scaler is None or scale != 1.0 or _are_finite(gradients):
            return gradients
        smaller = scaler.get_scale() / 2
        for _ in range(HALVINGS):
            again = self._trial.gradients(policy, moment, smaller)
            if _are_finite(again):
                return again
            smaller /= 2
        return gradients


def _are_finite(gradients: Arrays) -> bool:
    return all(bool(np.isfinite(g).all()) for g in gradients.values())


def _zero_share(gradient: Any, exact: Any, total: float) -> float:
    norm = _norm(exact)
    return _norm(exact[gradient == 0]) / norm if norm > LEAST_GONE * total else 0.0


def _relative_error(gradient: Any, exact: Any, total: float) -> float:
    if not np.isfinite(gradient).all():
        return float("inf")
    least = max(_norm(exact), LEAST_WRONG * total)
    return _norm(gradient - exact) / least if least else 0.0


def _norm(x: Any) -> float:
    return float(np.linalg.norm(np.ravel(x)))
