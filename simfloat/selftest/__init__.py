"""Checks of the installed library on this machine, without any oracle package.

A check is a function `check(quick)` that yields batches of results beside what they should be; its name in `CHECKS`
and the first line of its docstring say what it checks. To add one, write the function and name it here.
"""

from simfloat.selftest import (
    function_checks,
    operation_checks,
    random_checks,
    rounding_checks,
    scaled_sums,
    sum_checks,
)
from simfloat.selftest.comparison import Batch, Check, run

#: Every check by the name under which it is reported, in the order in which they run.
CHECKS: dict[str, Check] = {
    "golden vectors": rounding_checks.golden_vectors,
    "codes round trip": rounding_checks.codes_round_trip,
    "numbers are fixed points": rounding_checks.fixed_points,
    "ties and edges": rounding_checks.ties_and_edges,
    "stochastic variants": rounding_checks.stochastic_variants,
    "all pairs, 8 bits": operation_checks.all_pairs,
    "all a * b + c, 4 to 8 bits": operation_checks.all_triples,
    "a * b + c, sampled": operation_checks.fma_of_narrow_numbers,
    "operations, whole range": operation_checks.whole_range,
    "operations in FP16": operation_checks.in_fp16,
    "operations on float32": operation_checks.on_float32,
    "square roots": function_checks.square_roots,
    "elementary functions": function_checks.elementary_functions,
    "powers": function_checks.powers,
    "angles": function_checks.angles,
    "sums of powers": function_checks.zetas,
    "functions at specials": function_checks.special_operands,
    "sequential sums": sum_checks.sequential,
    "sums in other orders": sum_checks.other_orders,
    "sums in FP16": sum_checks.in_fp16,
    "exact sums": sum_checks.exact,
    "fused sums": sum_checks.fused,
    "sums from an addend": sum_checks.addends,
    "FP8 sums in two steps": sum_checks.two_steps,
    "scaled sums": scaled_sums.scaled_sums,
    "matrix units": sum_checks.matrix_units,
    "convolutions": sum_checks.convolutions,
    "stagnation table": sum_checks.stagnation,
    "random generator": random_checks.generator,
    "stochastic frequencies": random_checks.frequencies,
    "threads": random_checks.threads,
    "streams": random_checks.streams,
}

__all__ = ["CHECKS", "Batch", "Check", "run"]
