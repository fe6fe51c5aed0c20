"""Functions, layers and losses of both front ends have the same results and gradients, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.autodiff.pointwise import DIFFERENTIABLE
from tests.torch.compared import assert_functions_alike, assert_layers_alike

RNG = np.random.default_rng(3)
EDGES = np.array([0.0, 1.0, 2.0, 3.0, 0.5, 1e-3, 3e-5, 7.0, 100.0, 2.0**-126], np.float32)
LEFT, RIGHT = (each.ravel() for each in np.meshgrid(EDGES, np.concatenate([EDGES, -EDGES[1:]])))
UNIT = np.concatenate([RNG.uniform(-1, 1, 64).astype(np.float32), EDGES[EDGES < 1]])
POSITIVE = np.concatenate([RNG.uniform(0.05, 6, 64).astype(np.float32), LEFT])
A, B = (np.concatenate([2 * RNG.standard_normal(64).astype(np.float32), x]) for x in (RIGHT, LEFT))

BF16 = sf.policies["bf16-standard"]
POLICIES = {
    "roles": sf.Policy(
        compute=sf.E4M3, activations=sf.FP16, activation_gradients=sf.E5M2, weight_gradients=sf.BF16, weights=sf.FP32
    ),
    **{
        name: sf.policies[name]
        for name in ("fp32", "bf16-standard", "fp16-standard", "amp-bf16", "amp-fp16", "apex-o2", "fp8-hybrid")
        + ("fp8-delayed", "nvfp4")
    },
    "fused": sf.Policy(compute=sf.BF16, fused=True),
    "widest": sf.Policy(compute=sf.BF16, activations="widest"),
    "operations of their own": BF16.override(operation=("exp", "log"), activations=sf.FP16).override(
        operation=("sum", "mean"), activations=sf.FP32
    ),
    "toward zero": sf.Policy(compute=sf.BF16, rounding=sf.toward_zero),
    # Products before and after are wider than the results between them, which underflow and overflow there; and
    # powers, for x.square() is one in PyTorch, and a product here.
    "narrow between": sf.Policy(compute=sf.FP32, activations=sf.E4M3, gradients=sf.BF16).override(
        operation=("multiply", "power"), activations=sf.FP32
    ),
    # The bias's gradient adds what came to the addition, and the product's gradients read what it was rounded to.
    "narrow additions": sf.Policy(compute=sf.FP32, reduce=sf.BF16).override(operation="add", activations=sf.FP16),
    # Sums in an order and a format that bits depend on.
    "sums": sf.Policy(compute=sf.FP32, activation_gradients=sf.BF16, reduce=sf.pairwise(sf.BF16)),
}
OF_LAYERS = (
    "fp32", "bf16-standard", "fp16-standard", "amp-bf16", "apex-o2", "fp8-hybrid", "fp8-delayed", "nvfp4", "fused",
    "widest", "toward zero",
)  # fmt: skip
OF_LOSSES = (
    "fused", "fp32", "bf16-standard", "fp16-standard", "amp-bf16", "amp-fp16", "widest", "operations of their own",
    "toward zero", "apex-o2",
)  # fmt: skip
OF_POINTS = ("narrow between", "bf16-standard", "toward zero", "fp16-standard", "fp8-hybrid", "amp-bf16")


def in_turn(table, names, count=2):
    """Each row of a table with the policy that tells all roles apart, and so many others in turn."""
    for number, (name, row) in enumerate(table.items()):
        turn = [names[(count * number + i) % len(names)] for i in range(count)]
        yield name, row, {key: POLICIES[key] for key in ("roles", *turn)}


#: Where functions are defined.
OPERANDS = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "log1p"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh", "lgamma", "digamma", "erfinv"), UNIT),
    "acosh": POSITIVE + 1,
    "ndtri": np.abs(UNIT),
}

#: Functions of one operand that PyTorch has under our names.
OF_ONE = {
    name: getattr(torch, name, None) or getattr(torch.special, name, None)
    for name, row in FUNCTIONS.items()
    if len(row.operands) == 1
}

#: By our name: the operation in PyTorch, in this package, and operands.
OPERATIONS = {
    **{name: (getattr(torch, name), getattr(sf.Tensor, name), A) for name in ("relu", "square", "negative")},
    **{
        name: (theirs, getattr(sf.Tensor, name), OPERANDS.get(name, A))
        for name, theirs in OF_ONE.items()
        if theirs is not None
    },
    # PyTorch has no slope in the first operand.
    "zeta": (lambda x: torch.special.zeta(2.5, x), lambda x: sf.Tensor(2.5).zeta(x), POSITIVE),
    **{
        name: (getattr(torch, name), getattr(sf.Tensor, name), A, B)
        for name in ("add", "subtract", "multiply", "divide", "atan2")
    },
    **{  # of zeros of unlike signs PyTorch's largest and smallest is any
        name: (getattr(torch, name), getattr(sf.Tensor, name), A[:64], B[:64]) for name in ("maximum", "minimum")
    },
    **{name: (getattr(torch, name), getattr(sf.Tensor, name), A) for name in ("floor", "ceil", "trunc")},
    "rint": (torch.round, sf.Tensor.rint, A),
    "fmod": (torch.fmod, sf.Tensor.fmod, A, B),
    "abs": (torch.abs, sf.Tensor.abs, A[:64]),  # beyond E4M3 lies NaN, whose sign is 0 in PyTorch
    "gelu": (F.gelu, sf.Tensor.gelu, A),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.3), lambda x: x.leaky_relu(0.3), A),
    "clip": (lambda x: x.clip(-1.0, 1.5), lambda x: x.clip(-1.0, 1.5), A),
    "hardtanh": (lambda x: F.hardtanh(x, -1.0, 0.5), lambda x: x.hardtanh(-1.0, 0.5), A),
    "power": (torch.pow, sf.Tensor.power, POSITIVE, A),
    **{
        f"power {n}": (lambda x, n=n: x**n, lambda x, n=n: x**n, POSITIVE) for n in (0.0, 0.5, 0.7, 1.0, 2.0, 3.0, -1.0)
    },
    **{f"{n} to the power": (lambda x, n=n: n**x, lambda x, n=n: n**x, A[:64]) for n in (2.7, 2.0, 1.0, 0.3)},
    "divide by a number": (lambda x: x / 3.0, lambda x: x / 3.0, A),
}


def test_a_pointwise_operation_has_the_same_bits_under_both_front_ends():
    lacking = {name for name, theirs in OF_ONE.items() if theirs is None}
    # PyTorch has no fma: addcmul rounds the product. It computes hypot by a formula, its remainder is the modulo, and
    # the gradient of copysign has a quotient of the result and the operand.
    assert set(DIFFERENTIABLE) - set(OPERATIONS) == {"fma", "hypot", "remainder", "copysign"} | lacking - {"gelu"}
    for _, (theirs, ours, *operands), policies in in_turn(OPERATIONS, OF_POINTS):
        assert_functions_alike(
            policies, lambda _, *x, theirs=theirs: theirs(*x), lambda _, *x, ours=ours: ours(*x), *operands
        )


EVERYWHERE = np.array([0, -0.0, 0.5, -0.5, 1, -1, 3, -3, 6, 25, -25, 100, -100, 2.0**-20], np.float32)
ROWS = np.concatenate([2 * RNG.standard_normal(50).astype(np.float32), EVERYWHERE]).reshape(4, 4, 4)
IMAGES = RNG.standard_normal((2, 4, 5, 6)).astype(np.float32)

#: The layer in either package, and what it gets.
LAYERS = [
    *(
        (lambda nn, name=name, options=options: getattr(nn, name)(*options), ROWS)
        for name, *options in (
            ("SiLU",), ("Sigmoid",), ("Tanh",), ("LogSoftmax", -1), ("Mish",), ("Softplus",), ("Softplus", 3.0, 5.0),
            ("LogSigmoid",), ("ELU",), ("ELU", 0.3), ("CELU", 1.5), ("SELU",), ("GLU", 1), ("PReLU",), ("Hardtanh",),
            ("ReLU6",), ("Hardsigmoid",), ("Hardswish",), ("Softshrink", 0.7), ("Hardshrink", 0.7), ("GELU",),
            ("GELU", "tanh"), ("Softmax", -1), ("LogSoftmax", 0), ("LeakyReLU", 0.3), ("InstanceNorm1d", 4),
            ("MaxPool1d", 3, 2, 1), ("AdaptiveAvgPool1d", 2), ("Unflatten", 1, (2, -1)), ("Identity", 54),
        )
    ),
    (lambda nn: nn.GroupNorm(2, 4), IMAGES),
    (lambda nn: nn.GroupNorm(4, 4, 1e-3, affine=False), IMAGES),
    (lambda nn: nn.InstanceNorm2d(4, affine=True), IMAGES),
    (lambda nn: nn.Conv1d(4, 6, 2, stride=2, padding=1, dilation=2, groups=2), ROWS),
    (lambda nn: nn.Conv1d(4, 2, 3, padding="same", bias=False), ROWS),
    (lambda nn: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2), ROWS),
    (lambda nn: nn.MaxPool1d(2, stride=1, dilation=2, ceil_mode=True), ROWS),
    (lambda nn: nn.AvgPool1d(3, 2, 1, count_include_pad=False), ROWS),
    (lambda nn: nn.Dropout2d(0.5).eval(), IMAGES),
    (lambda nn: nn.RMSNorm(6), IMAGES),
    (lambda nn: nn.RMSNorm((5, 6), 1e-3), IMAGES),
    (lambda nn: nn.RMSNorm(6, elementwise_affine=False), IMAGES),
]  # fmt: skip


def test_a_layer_has_the_same_bits_under_both_front_ends():
    for _, layer, policies in in_turn(dict(enumerate(LAYERS)), OF_LAYERS):
        assert_layers_alike(policies, *layer)
    # The gradient of the slopes is two operations in PyTorch, and the first one also rounds: no policy fuses them.
    slopes = {name: POLICIES[name] for name in ("roles", "toward zero", "amp-bf16")}
    assert_layers_alike(slopes, lambda nn: nn.PReLU(4, 0.1), ROWS)


#: Layers of many sums, and the shape of their images.
POOLS = [
    ("MaxPool1d", (3, 2, 1), (2, 3, 9)),
    ("MaxPool2d", (3, 2, 1), (2, 3, 7, 6)),
    ("MaxPool3d", ((1, 2, 3), (2, 1, 1), 0, (1, 2, 1), False, True), (2, 3, 4, 6, 7)),
    ("AvgPool1d", (3, 2, 1), (2, 3, 9)),
    ("AvgPool2d", ((3, 2), 2, 1, True, False), (2, 3, 7, 6)),
    ("AvgPool2d", (3, 1, 1), (2, 3, 7, 6)),
    ("AvgPool2d", (2, None, 0, False, True, 3), (2, 3, 7, 6)),
    ("AvgPool3d", (3, 2, 1, True, False), (2, 3, 5, 6, 7)),
    ("AvgPool3d", (2, 1, 0, False, True, 3), (3, 5, 6, 7)),
    ("AdaptiveAvgPool2d", ((3, 4),), (2, 3, 7, 6)),
    ("AdaptiveAvgPool3d", ((None, 1, 7),), (2, 3, 5, 6, 7)),
    ("AdaptiveAvgPool3d", (1,), (2, 3, 5, 6, 7)),
    ("AdaptiveMaxPool1d", (4,), (2, 3, 9)),
    ("AdaptiveMaxPool2d", ((3, None),), (2, 3, 7, 6)),
    ("AdaptiveMaxPool2d", (9,), (2, 3, 7, 6)),
    ("AdaptiveMaxPool3d", ((2, 3, 4),), (2, 3, 5, 6, 7)),
]


@pytest.mark.parametrize("part", range(4))
def test_pooling_and_convolution_have_the_same_bits_under_both_front_ends_and_all_presets(part):
    presets = [name for name in sf.policies if name not in POLICIES]
    for number, (name, arguments, shape) in list(enumerate(POOLS))[part::4]:
        turn = [presets[(2 * number + i) % len(presets)] for i in range(2)]
        # CUDA kernels multiply the gradient of a mean by a reciprocal, which rounds twice.
        policies = {key: sf.policies[key] for key in turn if key != "as-written-cuda" or arguments != (1,)}
        policies["sums"] = POLICIES["sums"]
        x = np.random.default_rng(4).normal(size=shape)
        if name != "AdaptiveAvgPool2d":  # whose gradients simfloat adds one window after the other
            assert_layers_alike(policies, lambda nn, n=name, a=arguments: getattr(nn, n)(*a), x)
        else:
            with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"), sf.simulate("bf16-standard"):
                x = x.astype(np.float32)
                theirs, ours = F.adaptive_avg_pool2d(torch.from_numpy(x), (3, 4)), sf.nn.AdaptiveAvgPool2d((3, 4))(x)
            np.testing.assert_array_equal(theirs.numpy(), ours.data)
    kind, axes = (("Conv", 2), ("Conv", 3), ("ConvTranspose", 2), ("ConvTranspose", 3))[part]
    options = {"padding": 2, "stride": 2, "dilation": 2, "groups": 2}
    every = [*presets, *sf.policies, "roles", "sums", "narrow additions"]
    policies = {name: POLICIES.get(name) or sf.policies[name] for name in [*every[part::4], "narrow additions"]}
    x = np.random.default_rng(1).normal(size=(2, 4, *((7, 6), (4, 5, 6))[axes - 2]))
    assert_layers_alike(policies, lambda nn: getattr(nn, f"{kind}{axes}d")(4, 6, 3, **options), x)


@pytest.mark.parametrize("scale", [None, sf.per_tensor()])
def test_numbers_of_a_volume_are_rounded_once_and_scaled_as_a_whole(scale):
    cast = sf.cast(sf.E4M3, sf.stochastic(9), scale=scale)
    policy = sf.Policy(compute=cast, weights=sf.FP32, activations=sf.FP32, accumulate=sf.FP32)
    x, results, recorded = torch.randn(2, 1, 6, 5, generator=torch.Generator().manual_seed(1)), [], []
    x[:, :, 5] = 100.0  # which no kernel meets
    for kind, shape in (("Conv2d", x.shape), ("Conv3d", (*x.shape, 1))):
        layer, recorder = getattr(torch.nn, kind)(1, 1, (3, *[1] * (len(shape) - 3)), bias=False), sf.Recorder()
        layer.stride = (2, *[1] * (len(shape) - 3))
        torch.nn.init.ones_(layer.weight)
        image = x.reshape(shape).requires_grad_()
        with sf.torch.simulate(layer, policy, 3, observer=recorder):
            layer(image).square().sum().backward()
        results.append((image.grad.ravel(), layer.weight.grad.ravel()))
        recorded.append(recorder.table())
    for two, three in zip(*results, strict=True):
        np.testing.assert_array_equal(two, three)
    assert str(recorded[0]) == str(recorded[1])


X, Y = (2 * RNG.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
TRUTH = RNG.uniform(size=(6, 4)).astype(np.float32)
WEIGHT, CLASSES = RNG.uniform(0.5, 2, 4).astype(np.float32), RNG.integers(0, 4, 6)
SOME = np.where(np.arange(6) % 3, CLASSES, -100)
STEPS = RNG.standard_normal((6, 3, 5)).astype(np.float32)
TARGETS, INPUTS, LENGTHS = np.array([[1, 2], [3, 3], [4, 0]]), np.array([6, 2, 3]), np.array([2, 2, 1])  # 3 3: 3 steps

#: By the function: operands, where "x" and "y" are the model's, and options.
LOSSES = [
    *(("mse_loss", "x", "y", {"reduction": how}) for how in ("mean", "sum", "none")),
    ("smooth_l1_loss", "x", "y", {"beta": 0.7}),
    ("smooth_l1_loss", "x", "y", {"beta": 1.3, "reduction": "none"}),
    ("huber_loss", "x", "y", {"delta": 0.7}),
    ("huber_loss", "x", "y", {"delta": 1.3, "reduction": "sum"}),
    ("l1_loss", "x", "y", {}),
    ("l1_loss", "x", "y", {"reduction": "none"}),
    ("binary_cross_entropy", "x", TRUTH, {}),
    ("binary_cross_entropy", "x", TRUTH, {"weight": WEIGHT, "reduction": "sum"}),
    ("kl_div", "x", TRUTH, {"reduction": "batchmean"}),
    ("nll_loss", "x", SOME, {"reduction": "sum"}),
    # PyTorch's backward passes of these are several operations, of which a policy that fuses them rounds others.
    ("kl_div", "x", TRUTH, {"reduction": "sum", "log_target": True}),
    ("binary_cross_entropy_with_logits", "x", TRUTH, {}),
    ("binary_cross_entropy_with_logits", "x", "y", {"reduction": "sum"}),
    ("binary_cross_entropy_with_logits", "x", TRUTH, {"weight": WEIGHT, "pos_weight": WEIGHT}),
    ("cross_entropy", "x", CLASSES, {}),
    ("cross_entropy", "x", SOME, {"weight": WEIGHT}),
    ("cross_entropy", "x", SOME, {"reduction": "none"}),
    ("smooth_l1_loss", "x", "y", {"beta": 0.0}),
    ("cross_entropy", "x", CLASSES, {"label_smoothing": 0.1}),
    ("cross_entropy", "x", SOME, {"weight": WEIGHT, "label_smoothing": 0.3}),
]


def of_package(name, x_or_data, y_or_data, options):
    """The loss as a function of a package and two operands."""

    def loss(package, x, y):
        on = torch.from_numpy if package is F else np.asarray
        first, second = (
            (x, y)["xy".index(each)] if isinstance(each, str) else on(each) for each in (x_or_data, y_or_data)
        )
        given = {key: on(value) if isinstance(value, np.ndarray) else value for key, value in options.items()}
        first = first.sigmoid() if name == "binary_cross_entropy" else first
        return getattr(package, name)(first, second, **given)

    return loss


def test_a_loss_has_the_same_bits_under_both_front_ends():
    for number, row, policies in in_turn(dict(enumerate(LOSSES)), OF_LOSSES, 3):
        left_out = {"fused"} if number > 12 else set()
        if "label_smoothing" in row[3]:  # several operations in PyTorch, some of which lose the format of constants
            left_out |= {"widest", "apex-o2"}
        elif row[3] == {"beta": 0.0}:
            left_out |= {"apex-o2"}
        loss = of_package(*row)
        assert_functions_alike({key: p for key, p in policies.items() if key not in left_out}, loss, loss, X, Y)


def test_an_override_of_all_that_cross_entropy_is_names_its_two_operations():
    loss = of_package("cross_entropy", "x", CLASSES, {})
    policies = {
        role: sf.policies["fp32"].override(operation=["cross_entropy", "log_softmax"], **{role: sf.BF16})
        for role in ("activations", "gradients")
    }
    assert_functions_alike(policies, loss, loss, X, Y)


def test_ctc_has_the_same_bits_under_both_front_ends():
    for number, (reduction, zero_infinity) in enumerate([("mean", True), ("none", True), ("none", False)]):

        def loss(package, x, reduction=reduction, zero_infinity=zero_infinity):
            on = torch.from_numpy if package is F else np.asarray
            given = map(on, (TARGETS, INPUTS, LENGTHS))
            return package.ctc_loss(x.log_softmax(-1), *given, reduction=reduction, zero_infinity=zero_infinity)

        names = "roles", *OF_LOSSES[1 + 3 * number : 4 + 3 * number]
        assert_functions_alike({name: POLICIES[name] for name in names if name != "apex-o2"}, loss, loss, STEPS)


FUSED = sf.policies["bf16-standard"].override(
    operation=("softmax", "log_softmax", "logsumexp", "layer_norm"), fused=True
)
FUSED_X = sf.round(RNG.normal(size=(5, 9)).astype(np.float32), sf.BF16)
FUSED_G = sf.round(RNG.normal(size=(5, 9)).astype(np.float32), sf.BF16)


def softmax_slope(y, g):
    """y * g - y * sum(y * g), every operation in FP32."""
    product = sf.multiply(y, g, sf.FP32)
    total = sf.sum(product, accumulate=sf.FP32, axis=1)[:, None]
    return sf.subtract(product, sf.multiply(y, total, sf.FP32), sf.FP32)


def through(function, x=FUSED_X, g=FUSED_G, policy=FUSED):
    """The result and the gradient, by PyTorch."""
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    with sf.torch.simulate(torch.nn.Identity(), policy):
        y = function(leaf * 1.0)
        y.backward(torch.from_numpy(g.copy())[tuple(map(slice, y.shape))])
    return y.detach().numpy(), leaf.grad.numpy()


def test_the_result_of_a_fused_composite_has_the_bits_of_our_own():
    for theirs, ours in (
        (lambda x: x.softmax(1), lambda x: x.softmax(1)),
        (lambda x: x.log_softmax(1), lambda x: x.log_softmax(1)),
        (lambda x: x.logsumexp(1), lambda x: x.logsumexp(1)),
        (lambda x: F.layer_norm(x, (9,)), lambda x: sf.nn.LayerNorm(9, elementwise_affine=False)(x)),
    ):
        fused, apart = (
            through(lambda x, of=theirs: torch.atleast_2d(of(x)), policy=p)[0] for p in (FUSED, "bf16-standard")
        )
        with sf.simulate(FUSED):
            own = ours(sf.Tensor(FUSED_X)).data
        np.testing.assert_array_equal(fused.reshape(own.shape), own)
        assert not np.array_equal(fused, apart)


def test_the_gradient_of_a_fused_softmax_is_computed_in_fp32_and_rounded_once():
    y, gradient = through(lambda x: x.softmax(1))
    np.testing.assert_array_equal(gradient, sf.round(softmax_slope(y, FUSED_G), sf.BF16))
    assert not np.array_equal(gradient, through(lambda x: x.softmax(1), policy="bf16-standard")[1])


def test_gradients_of_a_fused_layer_norm_are_rounded_to_the_roles_of_what_they_belong_to():
    policy = replace(sf.policies["bf16-standard"], fused=True, activation_gradients=sf.E5M2, weight_gradients=sf.FP16)
    torch.manual_seed(0)
    model, x = torch.nn.LayerNorm(9), torch.from_numpy(FUSED_X.copy()).requires_grad_()
    with sf.torch.simulate(model, policy):
        model(x).backward(torch.from_numpy(FUSED_G.copy()))
    for gradient, format in ((x.grad, "e5m2"), (model.weight.grad, "fp16"), (model.bias.grad, "fp16")):
        np.testing.assert_array_equal(gradient, sf.round(gradient.numpy(), format))
    y = F.layer_norm(torch.from_numpy(FUSED_X).double(), (9,)).numpy()
    np.testing.assert_allclose(model.weight.grad, (y * FUSED_G).sum(0), rtol=2**-11, atol=2**-18)


def test_sums_that_are_exact_and_means_of_bags_are_not_fused():
    policy = replace(sf.policies["bf16-standard"], fused=True)
    bag = torch.nn.EmbeddingBag(4, 3, mode="mean")
    with sf.torch.simulate(bag, policy), pytest.raises(ValueError, match="_embedding_bag.*fused=False"):
        bag(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="fused softmax"):
        through(lambda x: x.softmax(1), policy=replace(policy, reduce=sf.exact))
