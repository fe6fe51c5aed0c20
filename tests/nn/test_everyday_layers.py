"""Compare everyday layers and losses with torch's: names, arguments, states, results and gradients."""

import inspect

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.nn.against_torch import compare

torch = pytest.importorskip("torch", reason="needs torch as an oracle")

RNG = np.random.default_rng(31)
SEQUENCES, IMAGES = RNG.standard_normal((3, 4, 7)), RNG.standard_normal((2, 4, 5, 6))
ROWS = np.concatenate([3 * RNG.standard_normal(19), [0.0, 1.0, -1.0, 6.0, 30.0]]).reshape(4, 6)

#: The layer, its arguments, and what it gets.
CASES = [
    *[(name, (), ROWS) for name in ("Sigmoid", "Tanh", "SiLU", "Mish", "Softplus", "LogSigmoid", "ELU", "CELU")],
    *[(name, (), ROWS) for name in ("SELU", "GLU", "PReLU", "Hardtanh", "ReLU6", "Hardswish", "Softshrink")],
    ("Softplus", (0.7, 2.0), ROWS), ("ELU", (0.3,), ROWS), ("CELU", (-1.5,), ROWS), ("GLU", (0,), ROWS),
    ("PReLU", (6, 0.1), ROWS), ("PReLU", (4,), IMAGES), ("PReLU", (), RNG.standard_normal(5)),
    ("LogSoftmax", (0,), ROWS), ("Softmax", (0,), ROWS), ("Softmax", (1,), ROWS), ("Softmax", (-1,), ROWS),
    ("GELU", ("none",), ROWS), ("GELU", ("tanh",), ROWS), ("LeakyReLU", (0.2,), ROWS),
    *[("Flatten", axes, RNG.standard_normal((2, 3, 4, 5))) for axes in ((), (0,), (1, 2), (-2,))],
    ("Hardtanh", (-0.5, 2.0), ROWS), ("Softshrink", (1.5,), ROWS),
    ("Hardshrink", (), ROWS), ("Hardshrink", (0.0,), ROWS),
    ("GroupNorm", (2, 4), IMAGES), ("GroupNorm", (1, 4, 0.1), SEQUENCES), ("GroupNorm", (1, 4), IMAGES[:, :, 0, 0]),
    ("LayerNorm", (7,), SEQUENCES), ("LayerNorm", ((4, 7), 0.1), SEQUENCES),
    ("LayerNorm", ([7], 1e-5, True, False), SEQUENCES), ("LayerNorm", (7, 1e-5, False), SEQUENCES),
    ("GroupNorm", (4, 4, 1e-5, False), IMAGES), ("RMSNorm", (6,), IMAGES), ("RMSNorm", ((5, 6), 0.1, False), IMAGES),
    ("InstanceNorm1d", (4,), SEQUENCES), ("InstanceNorm1d", (4, 0.1, 0.1, True), SEQUENCES),
    ("InstanceNorm2d", (4, 1e-5, 0.1, True), IMAGES), ("InstanceNorm1d", (4,), SEQUENCES[0]),
    ("Identity", (), ROWS), ("Unflatten", (1, (2, 3)), ROWS), ("Unflatten", (-1, (-1, 3)), ROWS),
]  # fmt: skip


@pytest.mark.parametrize("name, arguments, x", CASES)
def test_a_layer_is_torchs(name, arguments, x):
    theirs = getattr(torch.nn, name)(*arguments)
    for parameter in theirs.parameters():
        torch.nn.init.uniform_(parameter, 0.25, 1.5)
    compare(getattr(sf.nn, name)(*arguments), theirs, x)


KINDS = sorted(
    {name for name, *_ in CASES} | {"Dropout1d", "Dropout2d"}
    | {f"{name}{n}d" for name in ("Conv", "ConvTranspose", "MaxPool", "AvgPool") for n in (1, 2, 3)}
    | {f"Adaptive{name}Pool{n}d" for name in ("Avg", "Max") for n in (1, 2, 3)}
)  # fmt: skip


def test_hardsigmoid_is_its_formula():  # whose derivative torch multiplies by 1/6 in float32
    class Formula(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.relu6(x + 3) / 6

    compare(sf.nn.Hardsigmoid(), Formula(), ROWS)


@pytest.mark.parametrize("options", [{"bias": False}, {"affine": False, "bias": True}])
def test_norms_of_groups_without_a_bias_are_torchs(options):
    compare(sf.nn.GroupNorm(2, 4, **options), torch.nn.GroupNorm(2, 4, **options), IMAGES)
    options = {"affine": True, **options}
    compare(sf.nn.InstanceNorm1d(4, **options), torch.nn.InstanceNorm1d(4, **options), SEQUENCES)


@pytest.mark.parametrize("name", KINDS)
def test_arguments_are_torchs(name):
    def arguments(kind):
        found = inspect.signature(kind).parameters.items()
        return [
            (k, p.default)
            for k, p in found
            if k not in ("rng", "device", "dtype", "min_value", "max_value", "args", "kwargs")
        ]

    if name == "Identity":
        return
    mine, theirs = (arguments(getattr(nn, name)) for nn in (sf.nn, torch.nn))
    # Of an axis that torch leaves open it warns.
    assert [(k, None if k == "dim" else v) for k, v in mine] == [(k, None if k == "dim" else v) for k, v in theirs]


def test_dropped_channels_are_dropped_whole_and_by_the_layers_own_stream():
    layer, x = sf.nn.Dropout2d(0.5), np.ones((8, 16, 3, 2), np.float32)
    with sf.simulate("bf16-standard", seed=4):
        first, second = layer(x).data, layer(x).data
    with sf.simulate("fp32", seed=4):
        again, evaluated = layer(x).data, layer.eval()(x).data
    assert_bits(first, again)
    assert (first == first[:, :, :1, :1]).all() and set(np.unique(first)) == {0.0, 2.0}
    assert 40 < (first[:, :, 0, 0] == 0).sum() < 88 and (first != second).any()
    assert_bits(evaluated, x)
    one = sf.nn.Dropout1d(0.5)
    with sf.simulate("fp32"):
        dropped = one(np.ones((64, 3), np.float32)).data
    assert (dropped == dropped[:, :1]).all() and 0 < (dropped == 0).sum() < dropped.size


X, Y = RNG.uniform(0.05, 0.95, (2, 4, 3))
TRUTH, FAR = (Y > 0.5).astype(float), X - 9 * (Y > 0.4)
CLASSES, FACTORS = RNG.integers(0, 3, 4), RNG.uniform(0.5, 2, 3)
SOME = np.array([0, -100, 2, 1])
LOSSES = [
    ("MSELoss", {}, Y), ("L1Loss", {}, Y), ("HuberLoss", {"delta": 0.2}, Y), ("SmoothL1Loss", {}, FAR),
    ("SmoothL1Loss", {"beta": 0.25}, Y), ("SmoothL1Loss", {"beta": 0.0}, Y), ("BCELoss", {}, Y),
    ("BCELoss", {"weight": FACTORS}, Y), ("BCEWithLogitsLoss", {}, TRUTH),
    ("BCEWithLogitsLoss", {"weight": X[:, :1], "pos_weight": FACTORS}, TRUTH),
    ("KLDivLoss", {"reduction": "batchmean"}, Y), ("KLDivLoss", {"reduction": "sum", "log_target": True}, Y),
    ("KLDivLoss", {"reduction": "none"}, Y), ("NLLLoss", {"weight": FACTORS, "ignore_index": 1}, CLASSES),
    ("CrossEntropyLoss", {"ignore_index": 1}, CLASSES), ("CrossEntropyLoss", {}, SOME),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}, SOME), ("CrossEntropyLoss", {"weight": FACTORS}, CLASSES),
    ("CrossEntropyLoss", {"weight": FACTORS, "label_smoothing": 0.3}, SOME),
]  # fmt: skip


@pytest.mark.parametrize("name, options, target", LOSSES)
def test_a_loss_is_torchs_with_its_state(name, options, target):
    def run(layer, inputs):
        x, aim = inputs
        return layer(x, aim.detach() if name == "BCELoss" else aim)  # which has no gradient of its target

    for reduction in [options["reduction"]] if "reduction" in options else ["mean", "sum", "none"]:
        options = {**options, "reduction": reduction}
        theirs = getattr(torch.nn, name)(**{k: torch.tensor(v) if "weight" in k else v for k, v in options.items()})
        ours = getattr(sf.nn, name)(**options)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        compare(ours, theirs, X, target, run=run)
        with sf.simulate("fp64"):
            want = theirs(*map(torch.tensor, (X, target))).numpy()
            np.testing.assert_allclose(ours(X, target).data, want, rtol=1e-12)
