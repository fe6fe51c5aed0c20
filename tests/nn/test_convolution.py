"""Layers of convolutions and pooling: torch's names, shapes and values; two roundings and their events."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.nn.against_torch import compare

torch = pytest.importorskip("torch", reason="needs torch as an oracle")

#: The sizes of x, by the number of axes.
SIZES = {1: (7,), 2: (7, 8), 3: (4, 5, 6)}

#: Layer, arguments, options.
LAYERS = [
    ("Conv1d", (4, 6, 3), {}),
    ("Conv1d", (4, 6, (3,), 2, 1, 2, 2, False), {}),
    ("Conv1d", (4, 2, 3, 1, "same", 2), {}),
    ("Conv1d", (4, 2, 1), {}),
    ("ConvTranspose1d", (4, 6, 3), {}),
    ("ConvTranspose1d", (4, 6, 3, 2, 1, 1, 2, True, 2), {}),
    ("MaxPool1d", (2,), {}),
    ("MaxPool1d", (3, 2, 1, 2, False, True), {}),
    ("AvgPool1d", (2,), {}),
    ("AvgPool1d", (3, 2, 1, True, False), {}),
    ("AdaptiveAvgPool1d", (7,), {}),
    ("AdaptiveAvgPool1d", (3,), {}),
    ("AdaptiveMaxPool1d", (3,), {}),
    ("Conv2d", (3, 4, 3), {}),
    ("Conv2d", (4, 6, (3, 2)), dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, bias=False)),
    ("Conv2d", (3, 3, 3), dict(padding="same", groups=3)),
    ("ConvTranspose2d", (4, 3, 4), dict(stride=2, padding=1)),
    ("ConvTranspose2d", (4, 6, 3, 2, 1, 1, 2), dict(bias=False, dilation=(1, 2))),
    ("MaxPool2d", (2,), {}),
    ("MaxPool2d", (3, 2, 1), dict(dilation=1, ceil_mode=True)),
    ("AvgPool2d", ((3, 2),), dict(stride=1, padding=(1, 0), count_include_pad=False)),
    ("AvgPool2d", (2,), dict(divisor_override=3, ceil_mode=True)),
    ("AdaptiveAvgPool2d", (1,), {}),
    ("AdaptiveAvgPool2d", ((None, 4),), {}),
    ("AdaptiveAvgPool2d", ((3, 5),), {}),
    ("AdaptiveAvgPool2d", ((9, 2),), {}),
    ("AdaptiveMaxPool2d", ((3, 5),), {}),
    ("AdaptiveMaxPool2d", ((None, 9),), {}),
    ("Conv3d", (3, 4, 3), {}),
    ("Conv3d", (4, 6, (1, 3, 2)), dict(stride=(1, 2, 1), padding=(0, 1, 2), dilation=(2, 1, 2), groups=2, bias=False)),
    ("Conv3d", (3, 3, (3, 5, 1)), dict(padding="same", groups=3)),
    ("ConvTranspose3d", (4, 3, 3), dict(stride=2, padding=1)),
    ("ConvTranspose3d", (4, 6, 3, 2, 1, (1, 0, 1), 2), dict(bias=False, dilation=(1, 2, 1))),
    ("MaxPool3d", (2,), {}),
    ("MaxPool3d", (3, 2, 1), dict(ceil_mode=True)),
    ("AvgPool3d", ((3, 2, 1),), dict(stride=1, padding=(1, 0, 0), count_include_pad=False)),
    ("AvgPool3d", (2,), dict(divisor_override=3, ceil_mode=True)),
    ("AdaptiveAvgPool3d", (1,), {}),
    ("AdaptiveAvgPool3d", ((None, 4, 3),), {}),
    ("AdaptiveMaxPool3d", ((2, 6, 3),), {}),
]


@pytest.mark.parametrize("name, arguments, options", LAYERS, ids=str)
@pytest.mark.parametrize("batch", [(2,), ()], ids=("two", "without"))
def test_layers_are_torchs_in_double_precision(name, arguments, options, batch, rng):
    mine, theirs = (getattr(nn, name)(*arguments, **options) for nn in (sf.nn, torch.nn))
    channels = arguments[0] if name.startswith("Conv") else 3
    compare(mine, theirs, rng.standard_normal((*batch, channels, *SIZES[mine.axes])))


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("window", [(6,), (3, 2), (3, 2, 1)])
def test_initial_values_fill_torchs_range(kind, window):
    first, again = (getattr(sf.nn, f"{kind}{len(window)}d")(3, 4, window, rng=0) for _ in range(2))
    bound = 1 / np.sqrt(first.weight.shape[1] * 6)
    for parameter in first.parameters():
        assert 0.5 * bound < np.abs(parameter.data).max() <= bound
    assert_bits(again.weight.data, first.weight.data)


def test_operand_casts_are_observed_at_the_layers_path_without_the_padding(rng):
    recorder, model = sf.Recorder(), sf.nn.Sequential(sf.nn.Conv2d(2, 3, 3, stride=2, padding=1, rng=0))
    policy = sf.Policy(compute=sf.E4M3, compute_gradients=sf.E5M2, weights=sf.FP32, activations=sf.FP32)
    x = sf.Tensor(rng.standard_normal((2, 2, 6, 6)), requires_grad=True)
    with sf.simulate(policy, observer=recorder):
        y = model(x)
        y.backward(np.ones(y.shape))
    counted = {
        (name, phase): recorder.counts("0", phase, operation=name)["total"]
        for name in ("cast_input", "cast_weight", "cast_gradient")
        for phase in ("forward", "backward")
    }
    assert counted == {
        ("cast_input", "forward"): x.size, ("cast_input", "backward"): x.size,
        ("cast_weight", "forward"): 54, ("cast_weight", "backward"): 54,
        ("cast_gradient", "forward"): 0, ("cast_gradient", "backward"): 2 * y.size,
    }  # fmt: skip
    assert recorder.counts("0.weight", "backward")["total"] == 54
    assert recorder.counts("0.bias", "backward")["total"] == 3


def test_overrides_reach_a_convolution_by_path_and_by_name(rng):
    model = sf.nn.Sequential(sf.nn.Conv2d(2, 3, 3, rng=0), sf.nn.ConvTranspose2d(3, 2, 3, bias=False, rng=0))
    policy = sf.policies["fp32"].override("0", compute=sf.E4M3).override(operation="conv_transpose2d", compute=sf.BF16)
    x = rng.standard_normal((1, 2, 5, 5)).astype(np.float32)
    with sf.simulate(policy):
        y = model[0](x)
        z = model[1](y)
    weight, bias = (sf.round(p.data, sf.E4M3) for p in model[0].parameters())
    narrow = sf.conv2d(x, weight, inputs=sf.E4M3, accumulate=sf.FP32, output=sf.E4M3)
    assert y.format == sf.E4M3 and z.format == sf.BF16
    assert_bits(y.data, sf.add(narrow, bias[:, None, None], sf.E4M3))


@pytest.mark.parametrize("layer, text", [
    (sf.nn.Conv1d(3, 4, 3, padding=1), "Conv1d(3, 4, kernel_size=(3,), stride=(1,))"),
    (
        sf.nn.Conv2d(3, 4, 3, padding=1, bias=False),
        "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)",
    ),
    (
        sf.nn.ConvTranspose2d(3, 4, 2, 2, output_padding=1),
        "ConvTranspose2d(3, 4, kernel_size=(2, 2), stride=(2, 2), output_padding=(1, 1))",
    ),
    (
        sf.nn.Conv3d(3, 4, 3, padding=1),
        "Conv3d(3, 4, kernel_size=(3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1))",
    ),
    (sf.nn.MaxPool1d(2), "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1)"),
    (
        sf.nn.MaxPool2d(2),
        "MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1), ceil_mode=False)",
    ),
    (sf.nn.AvgPool1d(3, 2), "AvgPool1d(kernel_size=3, stride=2, padding=0)"),
    (sf.nn.AdaptiveAvgPool1d(1), "AdaptiveAvgPool1d(output_size=1)"),
    (sf.nn.AdaptiveAvgPool2d(1), "AdaptiveAvgPool2d(output_size=(1, 1))"),
    (sf.nn.AdaptiveMaxPool3d(1), "AdaptiveMaxPool3d(output_size=(1, 1, 1))"),
])  # fmt: skip
def test_layers_print_their_arguments(layer, text):
    assert str(layer).partition("  #")[0] == text


@pytest.mark.parametrize("sizes, targets, bad, message", [
    ((4,), ([10], [12], (2, 2, 11)), ([9], [13], []), r"a length from \[10\] to \[12\], got"),
    (
        (4, 5), ([10, 13], [12, 14], (2, 2, 11, 15)), ([9, 13], [10, 16], [10], [10.5, 13]),
        r"rows and columns from \[10, 13\] to \[12, 15\], got",
    ),
    ((2, 3, 4), ([5, 8, 11],), ([3, 8, 11],), r"slices, rows and columns from \[4, 7, 10\] to \[6, 9, 12\], got"),
])  # fmt: skip
def test_a_size_of_the_result_takes_the_place_of_output_padding(sizes, targets, bad, message, rng):
    name, x = f"ConvTranspose{len(sizes)}d", rng.standard_normal((2, 3, *sizes))
    mine, theirs = (getattr(nn, name)(3, 2, 3, stride=3, padding=1) for nn in (sf.nn, torch.nn))
    for target in targets:
        compare(mine, theirs, x, output_size=list(target))
        with sf.simulate("fp64"):
            assert mine(x, output_size=target).shape[2:] == tuple(target)[-len(sizes) :]
    for target in bad:
        with pytest.raises(ValueError, match=message), sf.simulate("fp64"):
            mine(x, output_size=target)
