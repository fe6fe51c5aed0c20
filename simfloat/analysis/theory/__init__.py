"""Bounds of rounding error analysis, condition numbers, and the errors that they bound.

u is the largest relative error of one rounding: :func:`roundoff` returns it for a format and a mode. Bounds of sums are
relative to the sum of the magnitudes of the terms. They are valid if no result overflows and no product
underflows.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002; Higham and Mary, SIAM J. Sci. Comput. 41
(2019), A2815; Connolly, Higham and Mary, SIAM J. Sci. Comput. 43 (2021), A566; El Arar, Sohier, de Oliveira Castro and
Petit, SIAM J. Sci. Comput. 45 (2023), C255.
"""

from simfloat.analysis.theory.bounds import (
    azuma_bound,
    bias,
    chebyshev_bound,
    confidence,
    confidence_factor,
    gamma,
    probable_gamma,
    roundoff,
    stochastic_variance,
)
from simfloat.analysis.theory.conditions import (
    dot_condition,
    elimination_bound,
    growth_factor,
    matvec_condition,
    sum_condition,
)
from simfloat.analysis.theory.sum_errors import (
    count_roundings,
    error_bound,
    measure_errors,
    probable_error_bound,
    uniform_operands,
)

__all__ = [
    "azuma_bound", "bias", "chebyshev_bound", "confidence", "confidence_factor", "count_roundings", "dot_condition",
    "elimination_bound", "error_bound", "gamma", "growth_factor", "matvec_condition", "measure_errors",
    "probable_error_bound", "probable_gamma", "roundoff", "stochastic_variance", "sum_condition", "uniform_operands",
]  # fmt: skip
