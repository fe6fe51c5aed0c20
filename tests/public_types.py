"""Types of public names: mypy accepts these lines, and reports an error in each that ignores one."""

from typing import assert_type

import simfloat as sf
from simfloat import exp
from simfloat.arithmetic.typed_functions import _OfOne, _OfThree


def names_have_types() -> None:
    assert_type(exp, _OfOne)
    assert_type(sf.fma, _OfThree)
    assert_type(sf.BF16, sf.Format)
    assert_type(sf.Recorder(), sf.Recorder)
    assert_type(sf.plots.Curve.smooth, int)
    assert_type(sf.Tensor(1.0).sum(), sf.Tensor)
    assert_type((sf.Parameter([1.0]) @ [1.0]).exp(), sf.Tensor)


def calls_of_modules_return_what_forward_does() -> None:
    assert_type(sf.nn.Linear(1, 1), sf.nn.Linear)
    assert_type(sf.nn.Linear(1, 1)([1.0]), sf.Tensor)
    assert_type(sf.nn.LSTM(1, 1)([[1.0]])[0], sf.Tensor)


def options_are_attributes() -> None:
    assert_type(sf.nn.ELU(alpha=0.5).alpha, float)
    assert_type(sf.optim.AdamW([], 0.1, betas=(0.5, 0.5)).betas, tuple[float, float])


def other_names_and_arguments_are_errors() -> None:
    _ = sf.FP61  # type: ignore[attr-defined]
    _ = sf.optim.Adagard  # type: ignore[attr-defined]
    sf.tensor_core("hoper")  # type: ignore[arg-type]
    sf.matrix_core("cdna4", sf.FP16)  # type: ignore[arg-type]
    sf.nn.ELU(alpha="a")  # type: ignore[arg-type]
    sf.optim.SGD([], 0.1, 0.9)  # type: ignore[call-arg]
    sf.optim.StepLR(sf.optim.SGD([]))  # type: ignore[call-arg]
