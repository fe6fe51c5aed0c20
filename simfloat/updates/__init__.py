"""Updates of parameters, for both front ends: the arithmetic of an optimizer's step, and its steps as a program.

`update_arithmetic.UpdateArithmetic` has the operations that an update may consist of, each rounded by its role at the
parameter's place. Where all of them are elementwise, `update_programs.run_as_program` writes down what a function does
with it (`recorded_step.RecordedStep`), and carries that out in one go for every parameter that is updated alike.
"""

__all__: list[str] = []
