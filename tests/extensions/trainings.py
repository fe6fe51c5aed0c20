"""Extensions of training, of the rules for PyTorch, and of displayed results."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.extensions.extension import Extension, Row

LAYER_TEXT = '''"""Scaling by a number that is learned."""

from __future__ import annotations

import numpy as np

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.record import Operand
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

    def forward(self, x: Operand) -> Tensor:
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


ACTIVATION_TEXT = """

@with_options
class ScaledSoftsign(Activation):
    \"\"\"x / (1 + |x|) * scale.

    Parameters:
        scale: the factor, a finite number.

    Raises:
        ValueError: if scale is not a finite number.

    Examples:
        >>> layer = sf.nn.ScaledSoftsign(2.0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 3.0])
        >>> y.data
        array([-1. ,  0. ,  1.5], dtype=float32)
    \"\"\"

    scale: float = option(as_number, default=1.0)

    _function = composite("scaled_softsign", activations.scaled_softsign, activations.scaled_softsign_slope)
"""

FORMULA_TEXT = """

def scaled_softsign(u: Rounded, x: NDArray, scale: float = 1.0) -> NDArray:
    \"\"\"x / (1 + |x|) * scale.\"\"\"
    return times(u, u.divide(x, u.add(ONE, np.abs(x))), scale)


def scaled_softsign_slope(u: Rounded, g: NDArray, x: NDArray, scale: float = 1.0) -> NDArray:
    \"\"\"g * scale / ((1 + |x|) * (1 + |x|)).\"\"\"
    y = u.add(ONE, np.abs(x))
    return u.divide(times(u, g, scale), u.multiply(y, y))
"""


def activation_bends():
    import simfloat as sf

    x = sf.Tensor([1.0, -3.0], requires_grad=True)
    layer = sf.nn.ScaledSoftsign(2.0)
    with sf.simulate("bf16-standard"):
        y = layer(x)
        y.sum().backward()
    assert (y.data.tolist(), x.grad.tolist()) == ([1.0, -1.5], [0.5, 0.125])
    assert repr(layer) == "ScaledSoftsign(scale=2.0)"
    policy = sf.Policy(compute=sf.BF16).override(operation="scaled_softsign", fused=True)
    assert policy.recipe("", "scaled_softsign").fused


ACTIVATION = Extension(
    "an activation",
    activation_bends,
    rows=(
        Row("simfloat/nn/smooth_activations.py", "from simfloat.simulation.formulas.losses import", ACTIVATION_TEXT),
        Row("simfloat/simulation/formulas/activations.py", "BEND, CUBE, CUBE_SLOPE", FORMULA_TEXT),
        Row(
            "simfloat/arithmetic/catalog.py",
            '("mish", "x", "composite"',
            '    ("scaled_softsign", "x", "composite", "x / (1 + |x|) * scale."),',
        ),
        Row(
            "simfloat/nn/__init__.py",
            "from simfloat.nn.smooth_activations import",
            "from simfloat.nn.smooth_activations import ScaledSoftsign",
        ),
        Row("simfloat/nn/__init__.py", '"SELU",', '    "ScaledSoftsign",'),
    ),
)


OPTIMIZER_TEXT = '''"""Descent by signs."""

from __future__ import annotations

from types import SimpleNamespace

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Step
from simfloat.optim.options import number_from_zero
from simfloat.options import KW_ONLY, option, with_options


@with_options
class SignSGD(Optimizer):
    """w = w - lr (sign(g) + weight_decay w), each step rounded to `weights`; the sum follows the policy's `update`.

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with "params" and options.
        lr: the learning rate.
        weight_decay: the factor of w that is added to the signs.

    Raises:
        ValueError: if an option is negative or not a finite number.

    Source: Bernstein et al. 2018, arXiv 1802.04434.
    """

    is_elementwise = True

    lr: float = option(number_from_zero, default=1e-3)
    _: KW_ONLY
    weight_decay: float = option(number_from_zero, default=0.0)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter: -lr * (sign(g) + weight_decay * w)."""
        return step.multiply(-options.lr, step.with_decay(step.sign(gradient), options.weight_decay))
'''


def optimizer_steps():
    import simfloat as sf

    parameter = sf.Parameter([1.0, 2.0, 3.0])
    optimizer = sf.optim.SignSGD([parameter], lr=0.1)
    parameter.grad = np.array([-5.0, 0.0, 1e-30], np.float32)
    with sf.simulate("bf16-standard"):
        optimizer.step()
    assert parameter.data.tolist() == sf.add([1.0, 2.0, 3.0], sf.multiply(0.1, [1, 0, -1], sf.BF16), sf.BF16).tolist()
    assert optimizer.state_dict()["param_groups"][0] == {"params": [0], "lr": 0.1, "weight_decay": 0.0}
    assert repr(sf.optim.SignSGD([parameter], weight_decay=0.5)) == "SignSGD(lr=0.001, weight_decay=0.5, 1 parameter)"


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


SCHEDULE_TEXT = '''"""A schedule that falls with the root of the epoch."""

from __future__ import annotations

from math import sqrt

from simfloat.optim.options import count_from_one
from simfloat.optim.scheduler import LRScheduler, last_epochs
from simfloat.options import option, with_options


@with_options
class SquareRootLR(LRScheduler):
    """lr is the first lr divided by the square root of 1 + epoch / scale.

    Parameters:
        optimizer: the optimizer.
        scale: the number of epochs after which lr is divided by the root of 2, a positive integer.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if scale is not a positive integer.
    """

    scale: int = option(count_from_one, default=1)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from its first lr."""
        return base / sqrt(1 + self.last_epoch / self.scale)
'''


def schedule_lowers_the_lr():
    import simfloat as sf

    optimizer = sf.optim.SGD(sf.nn.Linear(2, 1, rng=0).parameters(), lr=0.5)
    schedule, rates = sf.optim.SquareRootLR(optimizer), []
    for _ in range(4):
        rates += schedule.get_last_lr()
        schedule.step()
    assert rates[0] == 0.5 and rates[3] == 0.25
    assert repr(sf.optim.SquareRootLR(optimizer, 3)) == "SquareRootLR(scale=3, last_epoch=0)"
    other = sf.optim.SquareRootLR(optimizer)
    other.load_state_dict(schedule.state_dict())
    assert (other.last_epoch, other.get_last_lr()) == (4, schedule.get_last_lr())


SCHEDULE = Extension(
    "a learning-rate schedule",
    schedule_lowers_the_lr,
    rows=(
        Row(
            "simfloat/optim/__init__.py",
            "from simfloat.optim.scheduler",
            "from simfloat.optim.root_schedule import SquareRootLR",
        ),
        Row("simfloat/optim/__init__.py", '"SequentialLR",', '    "SquareRootLR",'),
        Row("docs/reference/optimizers.rst", "schedules", "   root_schedule"),
    ),
    new={"simfloat/optim/root_schedule.py": SCHEDULE_TEXT},
)


LOSS_SCALE_TEXT = '''"""A scale that only falls."""

from __future__ import annotations

from typing import Any

from simfloat.optim.loss_scale import DeclaredLossScale, as_scale, count_from_zero
from simfloat.optim.options import share
from simfloat.options import option, with_options


@with_options
class FallingLossScale(DeclaredLossScale):
    """S is multiplied by a factor after a step whose gradients are not all finite, and never grows.

    Parameters:
        init_scale: the initial S.
        factor: the factor, from 0 to 1.

    Raises:
        ValueError: if an option is outside its range.
    """

    counters = {"falls": count_from_zero}

    init_scale: float = option(as_scale, default=65536.0)
    factor: float = option(share, default=0.5)

    def _start(self, **arguments: Any) -> None:
        self.falls = 0

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Lower S unless all gradients were finite."""
        if not is_finite:
            self._scale *= self.factor
            self.falls += 1
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
    assert other.state_dict() == scaler.state_dict() == {"scale": 512.0, "factor": 0.5, "falls": 1}
    assert repr(sf.optim.FallingLossScale(8.0, 0.25)) == "FallingLossScale(8.0, factor=0.25)"


LOSS_SCALE = Extension(
    "a loss scale",
    loss_scale_falls,
    rows=(
        Row(
            "simfloat/optim/__init__.py",
            "from simfloat.optim.loss_scale",
            "from simfloat.optim.falling import FallingLossScale",
        ),
        Row("simfloat/optim/__init__.py", '"DynamicLossScale",', '    "FallingLossScale",'),
        Row("docs/reference/optimizers.rst", "loss_scale", "   falling"),
    ),
    new={"simfloat/optim/falling.py": LOSS_SCALE_TEXT},
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
        Row("simfloat/plots/__init__.py", "from simfloat.plots.curves", "from simfloat.plots.signs import draw_signs"),
        Row("simfloat/plots/__init__.py", '"draw_points",', '    "draw_signs",'),
        Row("docs/reference/telemetry.rst", "trade_offs", "   signs"),
    ),
    new={"simfloat/plots/signs.py": FIGURE_TEXT},
)


def torch_rule_rounds():
    torch = pytest.importorskip("torch")
    import simfloat as sf

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.special.spherical_bessel_j0(x)

    model = Model()
    with sf.torch.simulate(model, "bf16-standard"):
        y = model(torch.tensor([0.5, 1.0]))
    x = np.array([0.5, 1.0])
    assert y.tolist() == sf.divide(sf.sin(x, sf.BF16), x, sf.BF16).tolist()


TORCH_RULE = Extension(
    "a rule for an operation of PyTorch",
    torch_rule_rounds,
    rows=(
        Row(
            "simfloat/torch/rules/pointwise.py",
            '"sinc": Decomposition',
            '    "special_spherical_bessel_j0": Decomposition("sin", spherical),',
        ),
        Row(
            "simfloat/torch/rules/pointwise.py",
            "Tensor = torch.Tensor",
            """

def spherical(x: Tensor) -> Tensor:
    \"\"\"sin(x) / x.\"\"\"
    return x.sin() / x
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
    from click.testing import CliRunner

    from experiments.command_line import main
    from simfloat.studies import one_by_one

    with tempfile.TemporaryDirectory() as folder:
        done = CliRunner().invoke(main, ["run", "halves", "--seeds", "3", "--out", folder], obj=one_by_one)
        assert done.exit_code == 0 and "short sums of halves" in done.output and "0 of 3" in done.output
        assert len(Path(folder, "metrics.jsonl").read_text().splitlines()) == 3


EXPERIMENT = Extension("an experiment", experiment_runs, new={"experiments/halves/__init__.py": EXPERIMENT_TEXT})


TRAININGS = (LAYER, ACTIVATION, OPTIMIZER, SCHEDULE, LOSS_SCALE, FIGURE, TORCH_RULE, EXPERIMENT)
