"""Extensions that leave the kernels as they are."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

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
    rows=(Row("simfloat/formats/named.py", "FP16 = ", 'FP24 = Format(7, 16, name="FP24")'),),
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
        Row("simfloat/policy/presets.py", "from simfloat.arithmetic._cast", "from simfloat.formats import Format"),
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
    "an operation with a derivative of its own",
    operation_turns_its_gradient,
    rows=(
        Row(
            "simfloat/autodiff/movement.py",
            '"""The shapes of a tensor',
            """
    def flip(self, axis: int) -> Result:
        \"\"\"The numbers in the reverse order along an axis.\"\"\"
        started = begin("flip", self)
        used = started.operands[0]
        flipped = np.flip(used.numbers, axis)
        return self.made(finish(started, flipped, used.format, lambda u, g: u.round(np.flip(g, axis))))
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
        return composed("softmin", lambda x: (-x).softmax(axis), [self], self.made)
""",
        ),
        Row("simfloat/arithmetic/catalog.py", '("softmax", "x",', '    ("softmin", "x", "composite", "softmax(-x)."),'),
    ),
)


def mixed_precision_lists_it():
    import simfloat as sf

    assert sf.policies["amp-fp16"].recipe("", "softmin").activations == sf.FP32


LISTED = Extension(
    "an operation that mixed precision lists",
    mixed_precision_lists_it,
    rows=(Row("simfloat/policy/amp.py", '"exp", "log", "log2", "power",', '    "softmin",'),),
)


LAYER_TEXT = '''"""Scaling by a number that is learned."""

from __future__ import annotations

import numpy as np

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.tensor import as_tensor
from simfloat.nn.module import Module


class Gain(Module):
    """x times a number that is learned, from 1 on.

    Examples:
        >>> layer = sf.nn.Gain()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([1.0, 1.0 + 2.0**-9])
        >>> y.data
        array([1., 1.], dtype=float32)
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(np.ones((), np.float32))

    def forward(self, x: object) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x) * self.weight
'''


def layer_learns():
    import simfloat as sf

    layer = sf.nn.Gain()
    optimizer = sf.optim.SGD(layer.parameters(), lr=0.5)
    with sf.simulate("bf16-standard"):
        layer([1.0, 2.0]).sum().backward()
        optimizer.step()
    assert layer.weight.data == -0.5 and list(dict(layer.named_parameters())) == ["weight"]


LAYER = Extension(
    "a layer",
    layer_learns,
    rows=(
        Row("simfloat/nn/__init__.py", "from simfloat.nn.module import", "from simfloat.nn.gain import Gain"),
        Row("simfloat/nn/__init__.py", '"Flatten",', '    "Gain",'),
        Row("docs/reference/layers.rst", "linear", "   gain"),
    ),
    new={"simfloat/nn/gain.py": LAYER_TEXT},
)


OPTIMIZER_TEXT = '''"""Descent by signs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.step import Step


class SignSGD(Optimizer):
    """w = w - lr sign(g), the product rounded to `weights`; the sum follows the policy's `update`.

    Raises ValueError for an lr that is negative or no finite number. Source: Bernstein et al. 2018, arXiv 1802.04434.
    """

    def __init__(self, params: Params, lr: float = 1e-3) -> None:
        super().__init__(params, lr)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * sign(g)."""
        return step.multiply(-options.lr, np.sign(gradient))
'''


def optimizer_steps():
    import simfloat as sf

    parameter = sf.Parameter([1.0, 2.0, 3.0])
    optimizer = sf.optim.SignSGD([parameter], lr=0.1)
    parameter.grad = np.array([-5.0, 0.0, 1e-30], np.float32)
    with sf.simulate("bf16-standard"):
        optimizer.step()
    assert parameter.data.tolist() == sf.add([1.0, 2.0, 3.0], sf.multiply(0.1, [1, 0, -1], sf.BF16), sf.BF16).tolist()
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.1


OPTIMIZER = Extension(
    "an optimizer",
    optimizer_steps,
    rows=(
        Row("simfloat/optim/__init__.py", "from simfloat.optim.sgd", "from simfloat.optim.sign import SignSGD"),
        Row("simfloat/optim/__init__.py", '"SequentialLR",', '    "SignSGD",'),
        Row("docs/reference/optimizers.rst", "sgd", "   sign"),
    ),
    new={"simfloat/optim/sign.py": OPTIMIZER_TEXT},
)


LOSS_SCALE_TEXT = '''"""A scale that only falls."""

from __future__ import annotations

from simfloat.optim.loss_scale import LossScale


class FallingLossScale(LossScale):
    """S is halved after a step whose gradients are not all finite, and never grows."""

    state_names = {}

    def __init__(self, init_scale: float = 65536.0) -> None:
        super().__init__(init_scale)

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Halve S unless all gradients were finite."""
        if not is_finite:
            self._scale /= 2
'''


def loss_scale_falls():
    import simfloat as sf

    layer, scaler = sf.nn.Linear(2, 1, rng=0), sf.optim.FallingLossScale(1024.0)
    optimizer = sf.optim.SGD(layer.parameters(), lr=0.1)
    for gradient, scale in ((np.inf, 512.0), (1.0, 512.0)):
        for parameter in layer.parameters():
            parameter.grad = np.full(parameter.shape, gradient, np.float32)
        with sf.simulate("fp16-master"):
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == scale
    other = sf.optim.FallingLossScale()
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 512.0


LOSS_SCALE = Extension(
    "a loss scale",
    loss_scale_falls,
    rows=(
        Row(
            "simfloat/optim/__init__.py",
            "from simfloat.optim.dynamic_loss_scale",
            "from simfloat.optim.falling import FallingLossScale",
        ),
        Row("simfloat/optim/__init__.py", '"DynamicLossScale",', '    "FallingLossScale",'),
        Row("docs/reference/optimizers.rst", "dynamic_loss_scale", "   falling"),
    ),
    new={"simfloat/optim/falling.py": LOSS_SCALE_TEXT},
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
        Row("simfloat/policy/serialization.py", '"hadamard": ', '    "given_scale": arithmetic.given_scale,'),
        Row(
            "simfloat/arithmetic/__init__.py",
            "from simfloat.arithmetic.functions",
            "from simfloat.arithmetic.given_scale import given_scale",
        ),
        Row("simfloat/arithmetic/__init__.py", '"delayed",', '    "given_scale",'),
        Row("docs/reference/policies.rst", "arithmetic.hadamard", "   arithmetic.given_scale"),
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
            "simfloat/accumulate/_tensor_core.py",
            "Instruction(FP8, BOTH, 16, 13),",
            "        Instruction((E2M1,), (FP32,), 16, 13),",
        ),
    ),
)


FIGURE_TEXT = '''"""Bits of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from simfloat.plots.figure import label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_signs(axes: Axes, x: ArrayLike) -> None:
    """Draw how many numbers are negative, and how many are not."""
    negative = int(np.signbit(x).sum())
    axes.bar(["negative", "not negative"], [negative, np.size(x) - negative], color="#0072b2")
    label_axes(axes, xlabel="sign", ylabel="numbers", title="")
'''


def figure_is_drawn():
    import simfloat as sf

    figure, axes = sf.plots.new_figure(1, 1, sf.plots.COLUMN_WIDTH, 2.0)
    sf.plots.draw_signs(axes, [1.0, -0.0, -2.0])
    assert [bar.get_height() for bar in axes.patches] == [2, 1]


FIGURE = Extension(
    "a figure",
    figure_is_drawn,
    rows=(
        Row("simfloat/plots/__init__.py", "from simfloat.plots.points", "from simfloat.plots.signs import draw_signs"),
        Row("simfloat/plots/__init__.py", '"draw_points",', '    "draw_signs",'),
    ),
    new={"simfloat/plots/signs.py": FIGURE_TEXT},
)


def torch_rule_rounds():
    torch = pytest.importorskip("torch")
    import simfloat as sf

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.special.erfcx(x)

    model = Model()
    with sf.torch.simulate(model, "bf16-standard"):
        y = model(torch.tensor([0.5, 1.0]))
    x = np.array([0.5, 1.0])
    tail = sf.subtract(1.0, sf.erf(x, sf.BF16), sf.BF16)
    assert y.tolist() == sf.multiply(sf.exp(sf.multiply(x, x, sf.BF16), sf.BF16), tail, sf.BF16).tolist()


TORCH_RULE = Extension(
    "a rule for an operation of PyTorch",
    torch_rule_rounds,
    rows=(
        Row(
            "simfloat/torch/rules/aten_functions.py", '"erfc": Composed', '    "special_erfcx": Composed("erf", erfcx),'
        ),
        Row(
            "simfloat/torch/rules/aten_functions.py",
            "LN10 =",
            """

def erfcx(x: Tensor) -> Tensor:
    \"\"\"exp(x * x) * (1 - erf(x)).\"\"\"
    return (x * x).exp() * (1 - x.erf())
""",
        ),
    ),
)


EXPERIMENT_TEXT = '''"""Does a sum of halves lose one?"""

from __future__ import annotations

import simfloat as sf
from experiments.options import Options
from simfloat.studies import Job, Measured, Result, claim
from simfloat.studies.verdicts import count_test


def jobs(options: Options) -> list[Job]:
    """A length for every seed."""
    return [{"seed": seed, "length": 2 + seed % 8} for seed in options.seed_numbers]


def run(job: Job) -> Result:
    """Carry out a job."""
    return {**job, "sum": float(sf.sum([0.5] * job["length"], accumulate=sf.E4M3))}


@claim("short sums of halves are exact in E4M3", "length / 2 in every case")
def exact(results: list[Result]) -> Measured:
    """How many are not."""
    wrong = sum(result["sum"] != result["length"] / 2 for result in results)
    return f"{wrong} of {len(results)} wrong", count_test(wrong, len(results))
'''


def experiment_runs():
    folder = Path(tempfile.mkdtemp())
    command = [sys.executable, "-m", "experiments", "run", "halves", "--seeds", "3", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "short sums of halves" in done.stdout and "0 of 3" in done.stdout
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3


EXPERIMENT = Extension("an experiment", experiment_runs, new={"experiments/halves/__init__.py": EXPERIMENT_TEXT})


TABLES = (
    FORMAT,
    PRESET,
    OPERATION,
    COMPOSITE,
    LISTED,
    LAYER,
    OPTIMIZER,
    LOSS_SCALE,
    SCALING,
    UNIT,
    FIGURE,
    TORCH_RULE,
    EXPERIMENT,
)
