"""Extensions of numbers, sums and policies, which do not change the kernels."""

import numpy as np

from tests.extensions.extension import Extension, Row


def format_is_everywhere():
    import simfloat as sf

    assert sf.FP24 == sf.Format(7, 16) and "FP24" in sf.__all__
    assert sf.as_format("fp24") is sf.FP24 and sf.Policy(compute="fp24").compute is sf.FP24
    assert sf.round(1 + 2.0**-17, sf.FP24) == 1.0 and sf.round(1 + 2.0**-16, sf.FP24) != 1.0
    assert sf.matmul([[1.0]], [[2.0**-16]], accumulate=sf.FP24) == 2.0**-16


FORMAT = Extension(
    "a format",
    format_is_everywhere,
    rows=(
        Row("simfloat/formats/catalog.py", "FP16 = ", 'FP24 = Format(7, 16, name="FP24")'),
        Row("docs/tables.py", "SOURCES = {", '    "FP24": "AMD R300",'),
    ),
)


def preset_is_a_policy():
    import simfloat as sf

    assert sf.policies["fp24-standard"] == sf.Policy(compute=sf.Format(7, 16, name="FP24"))
    layer = sf.nn.Linear(3, 2, rng=0)
    with sf.simulate("fp24-standard"):
        assert layer(np.ones((1, 3))).format == sf.FP24


PRESET = Extension(
    "a preset",
    preset_is_a_policy,
    rows=(
        Row(
            "simfloat/policy/presets.py",
            '("fp32", lambda:',
            '    ("fp24-standard", lambda: Policy(compute=Format(7, 16, name="FP24")), "CONTRIBUTING.md"),',
        ),
        Row("simfloat/policy/presets.py", "from simfloat.arithmetic.casts", "from simfloat.formats import Format"),
    ),
)


def operation_turns_its_gradient():
    import simfloat as sf

    x = sf.Tensor([1.0, 2.0], requires_grad=True)
    with sf.simulate("bf16-standard"):
        y = x.flip(0)
        y.backward(np.array([1.0 + 2.0**-10, 3.0], np.float32))
    assert (y.data.tolist(), x.grad.tolist()) == ([2.0, 1.0], [3.0, 1.0])
    assert sf.Policy(compute=sf.BF16).override(operation="flip", gradients=sf.FP32) is not None


OPERATION = Extension(
    "an operation with its own derivative",
    operation_turns_its_gradient,
    rows=(
        Row(
            "simfloat/autodiff/movement.py",
            '"""The shape operations of a tensor',
            """
    def flip(self, axis: int) -> Result:
        \"\"\"The numbers in the reverse order along an axis.\"\"\"
        started = begin("flip", self)
        used = started.operands[0]
        flipped = np.flip(used.numbers, axis)
        return self.from_result(finish(started, flipped, used.format, lambda u, g: u.round(np.flip(g, axis))))
""",
        ),
        Row(
            "simfloat/arithmetic/catalog.py",
            '("transpose", "x",',
            '    ("flip", "x", "movement", "The same elements in the reverse order."),',
        ),
    ),
)


def composite_has_steps():
    import simfloat as sf

    x = sf.Tensor([1.0, 2.0], requires_grad=True)
    with sf.simulate("bf16-standard"):
        y = x.softmin()
        y.sum().backward()
        assert y.data.tolist() == sf.Tensor([-1.0, -2.0]).softmax().data.tolist()
    policy = sf.policies["amp-bf16"].override(operation="softmin", fused=True)
    assert policy.recipe("", "softmin").fused


COMPOSITE = Extension(
    "a composite",
    composite_has_steps,
    rows=(
        Row(
            "simfloat/autodiff/composites.py",
            '"""The composites of a tensor',
            """
    def softmin(self, axis: int = -1) -> Result:
        \"\"\"softmax(-x).\"\"\"
        return run_composite("softmin", lambda x: (-x).softmax(axis), [self], self.from_result)
""",
        ),
        Row("simfloat/arithmetic/catalog.py", '("softmax", "x",', '    ("softmin", "x", "composite", "softmax(-x)."),'),
    ),
)


def mixed_precision_lists_it():
    import simfloat as sf

    assert sf.policies["amp-fp16"].recipe("", "softmin").activations == sf.FP32


LISTED = Extension(
    "an operation in the lists of mixed precision",
    mixed_precision_lists_it,
    rows=(Row("simfloat/policy/presets.py", '"exp", "log", "log2", "power",', '    "softmin",'),),
)


SCALING_TEXT = '''"""A scale that is given."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import NDArray

from simfloat.arithmetic.scaling import AmaxHistory, WholeScaling
from simfloat.formats import Format


def given_scale(exponent: int) -> GivenScale:
    """One scale for every operand: 2^exponent.

    Examples:
        >>> sf.dot([2.0**-12], [1.0], inputs=sf.scaled(sf.E4M3, sf.given_scale(6)), accumulate=sf.FP32)
        array(0.00024414)
    """
    return GivenScale(exponent)


@dataclass(frozen=True)
class GivenScale(WholeScaling):
    """See :func:`given_scale`."""

    exponent: int

    def scale(self, x: NDArray, format: Format, history: AmaxHistory | None) -> float:
        """2^exponent."""
        return 2.0**self.exponent

    def __repr__(self) -> str:
        return f"given_scale({self.exponent})"
'''


def scaling_scales():
    import simfloat as sf

    cast = sf.scaled(sf.E4M3, sf.given_scale(6))
    assert sf.dot([2.0**-12], [1.0], inputs=cast, accumulate=sf.FP32) == 2.0**-12
    assert sf.dot([2.0**-12], [1.0], inputs=sf.E4M3, accumulate=sf.FP32) == 0
    policy = sf.Policy(compute=cast)
    assert sf.Policy.from_toml(policy.to_toml()) == policy


SCALING = Extension(
    "a scaling of operands",
    scaling_scales,
    rows=(
        Row("simfloat/policy/text.py", '"hadamard": ', '    "given_scale": arithmetic.given_scale,'),
        Row(
            "simfloat/arithmetic/__init__.py",
            "from simfloat.arithmetic.functions",
            "from simfloat.arithmetic.given_scale import given_scale",
        ),
        Row("simfloat/arithmetic/__init__.py", '"delayed",', '    "given_scale",'),
        Row("docs/reference/policies.rst", "arithmetic.scaling", "   arithmetic.given_scale"),
    ),
    new={"simfloat/arithmetic/given_scale.py": SCALING_TEXT},
)


def unit_sums():
    import simfloat as sf

    unit = sf.tensor_core("ada", sf.E2M1)
    assert sf.matmul([[1.0, 2.0]], [[3.0], [2.0]], accumulate=unit) == 7.0
    with sf.simulate(sf.Policy(compute=sf.E2M1, accumulate=unit)):
        assert (sf.Tensor([[6.0]]) @ sf.Tensor([[1.0]])).data == 6.0


UNIT = Extension(
    "a unit of an architecture",
    unit_sums,
    rows=(
        Row(
            "simfloat/sums/units.py",
            "Instruction(FP8, FP32_AND_FP16, 16, 13),",
            "        Instruction((E2M1,), (FP32,), 16, 13),",
        ),
    ),
)


TABLES = (FORMAT, PRESET, OPERATION, COMPOSITE, LISTED, SCALING, UNIT)
