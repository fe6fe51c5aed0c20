"""Check the installed library on this computer, without any other package.

A check is a function `check(quick)` that yields batches of results with the expected ones. Its name in `CHECKS` and the
first line of its docstring say what it checks. To add one, write the function and add it to `CHECKS`.
"""

from simfloat.tools.selftest import checks, operations, orders, sums
from simfloat.tools.selftest.checks import Batch, Check, run

#: The checks by the name in the report, in the order in which they run.
CHECKS: dict[str, Check] = {
    "golden vectors": operations.golden_vectors,
    "codes round trip": operations.codes_round_trip,
    "numbers are fixed points": operations.fixed_points,
    "ties and edges": operations.ties_and_edges,
    "stochastic variants": operations.stochastic_variants,
    "all pairs, 8 bits": operations.all_pairs,
    "all a * b + c, 4 to 8 bits": operations.all_triples,
    "a * b + c, sampled": operations.fma_of_narrow_numbers,
    "operations, whole range": operations.whole_range,
    "operations in FP16": operations.in_fp16,
    "operations on float32": operations.on_float32,
    "square roots": operations.square_roots,
    "elementary functions": operations.elementary_functions,
    "powers": operations.powers,
    "angles": operations.angles,
    "sums of powers": operations.zetas,
    "functions at specials": operations.special_operands,
    "sequential sums": sums.sequential,
    "sums in other orders": sums.other_orders,
    "sums in FP16": sums.in_fp16,
    "exact sums": sums.exact,
    "fused sums": sums.fused,
    "sums from an addend": sums.addends,
    "FP8 sums in two steps": sums.two_steps,
    "scaled sums": orders.scaled_sums,
    "matrix units": sums.matrix_units,
    "convolutions": sums.convolutions,
    "stagnation table": sums.stagnation,
    "random generator": checks.generator,
    "stochastic frequencies": checks.frequencies,
    "threads": checks.threads,
    "streams": checks.streams,
}

__all__ = ["CHECKS", "Batch", "Check", "run"]
