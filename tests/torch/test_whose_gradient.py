"""The operand to which a gradient belongs is found by autograd's edges, and determines the role."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import simfloat as sf

torch.manual_seed(0)
H, P = torch.rand(4, 5) + 0.5, torch.rand(4, 5) + 1.5
LOSS = torch.arange(1, 21) / 8


class Squared(torch.autograd.Function):
    """A function of a program's own, whose backward pass has one intermediate number for both operands."""

    @staticmethod
    def forward(ctx, h, p):
        ctx.save_for_backward(h, p)
        return (h * p) * (h * p)

    @staticmethod
    def backward(ctx, g):
        h, p = ctx.saved_tensors
        slope = g * (h * p * 2)
        return slope * p, slope * h


class Truncated(torch.autograd.Function):
    """A function whose backward pass cuts numbers off by their bits."""

    @staticmethod
    def forward(ctx, h, p):
        ctx.save_for_backward(h, p)
        return h * p

    @staticmethod
    def backward(ctx, g):
        h, p = ctx.saved_tensors
        slope = (g * 3).view(torch.int32)[1:].bitwise_and(-(2**16)).view(torch.float32)
        slope = torch.cat([g[:1], slope])
        return slope * p, slope * h


OPERATIONS = {
    "multiply": lambda h, p: h * p,
    "divide": lambda h, p: h / p,
    "divide by h": lambda h, p: p / h,
    "subtract": lambda h, p: p - h,
    "add": lambda h, p: h + p,
    "add a row": lambda h, p: h * p[:1] + p[0],
    "add, alpha": lambda h, p: torch.add(h, p, alpha=0.3),
    "subtract, alpha": lambda h, p: torch.sub(h, p, alpha=0.3),
    "lerp": lambda h, p: torch.lerp(h, p, 0.3),
    "lerp by p": lambda h, p: torch.lerp(h, h + 0.3, p),
    "addcmul": lambda h, p: torch.addcmul(h, p, h, value=0.3),
    "addcdiv": lambda h, p: torch.addcdiv(h, h, p, value=0.3),
    "power": torch.pow,
    "xlogy": torch.xlogy,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "matmul": lambda h, p: h @ p.T,
    "cross": lambda h, p: torch.linalg.cross(h[:, :3], p[:, :3]),
    "cdist": torch.cdist,
    "mse": functional.mse_loss,
    "smooth l1": functional.smooth_l1_loss,
    "huber": functional.huber_loss,
    "gaussian nll": lambda h, p: functional.gaussian_nll_loss(h, h + 1, p),
    "bce": lambda h, p: functional.binary_cross_entropy_with_logits(h, p, pos_weight=LOSS[:5], reduction="none"),
    "views": lambda h, p: h / p.reshape(5, 4).clone().reshape(4, 5),
    "used twice": lambda h, p: (h * p).tanh() * p,
    "own function": Squared.apply,
    "own function, by bits": Truncated.apply,
}  # fmt: skip


#: Made of several operations, between which gradients are activations'.
SEVERAL = ("gaussian nll", "used twice")


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.p, self.function = torch.nn.Parameter(P.clone()), function

    def forward(self, h):
        return self.function(h, self.p)


def gradients(function, to_activation, to_weight, observer=None):
    """Those of an activation and of a parameter, of a loss whose own gradients are numbers of all formats."""
    policy = sf.Policy(compute=sf.FP32, activation_gradients=to_activation, weight_gradients=to_weight)
    model, h = Model(function), H.clone().requires_grad_()
    with sf.torch.simulate(model, policy, observer=observer):
        result = model(h)
        (result * LOSS[: result.numel()].reshape(result.shape)).sum().backward()
    return h.grad, model.p.grad


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_have_the_role_of_what_they_belong_to_and_each_is_counted_once(name):
    function = OPERATIONS[name]
    # Where both roles are one format, nothing depends on whose gradient it is.
    alone = {format: gradients(function, format, format) for format in (sf.BF16, sf.FP32)}
    for to_activation, to_weight in ((sf.BF16, sf.FP32), (sf.FP32, sf.BF16)):
        recorder = sf.Recorder()
        found = gradients(function, to_activation, to_weight)
        assert torch.equal(found[0], alone[to_activation][0])
        if name not in SEVERAL:
            assert torch.equal(found[1], alone[to_weight][1])
        elif to_weight is sf.FP32:
            assert not torch.equal(found[1], found[1].bfloat16().float())
    observed = gradients(function, to_activation, to_weight, recorder)
    assert all(map(torch.equal, found, observed)), "an observer changes no bits"
    assert recorder.counts("p", "backward")["total"] == P.numel()


class Scaled(torch.autograd.Function):
    """A function whose operations all have other names than its first one."""

    @staticmethod
    def forward(ctx, h, p):
        ctx.save_for_backward(h, p)
        return h.abs() * p

    @staticmethod
    def backward(ctx, g):
        h, p = ctx.saved_tensors
        return g * p, g * h.abs()


def test_each_operation_in_the_backward_pass_of_a_programs_own_function_has_a_place_of_its_own():
    policy, recorder = sf.Policy(compute=sf.FP32), sf.Recorder()
    narrow = policy.override(operation="multiply", activation_gradients=sf.E5M2)
    found = []
    for each in (policy, narrow, policy.override(operation="abs", activation_gradients=sf.E5M2)):
        model, h = Model(Scaled.apply), H.clone().requires_grad_()
        with sf.torch.simulate(model, each, observer=recorder):
            model(h).backward(LOSS.reshape(H.shape))
        found.append(h.grad)
    assert np.array_equal(sf.round(found[0].numpy(), sf.E5M2), found[1].numpy())
    assert torch.equal(found[0], found[2])
    backward = [row for row in recorder.table().rows if row[2] == "backward"]
    assert {row[1] for row in backward} == {"abs", "multiply"}


class Ours(sf.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.p, self.function = sf.Parameter(P.numpy().copy()), function

    def forward(self, h):
        return self.function(h, self.p)


def test_two_backward_passes_have_the_bits_and_the_counts_of_our_own():
    policy = sf.Policy(compute=sf.FP32, activation_gradients=sf.BF16, weight_gradients=sf.E5M2)
    loss = LOSS.reshape(H.shape)
    for name in ("multiply", "subtract", "add", "power", "used twice"):
        theirs, recorders = Model(OPERATIONS[name]), (sf.Recorder(), sf.Recorder())
        ours = Ours(OPERATIONS[name] if name != "power" else lambda h, p: h**p)
        h, own_h = H.clone().requires_grad_(), sf.Tensor(H.numpy(), requires_grad=True)
        for _ in range(2):  # the second one adds to what the first one left
            with sf.torch.simulate(theirs, policy, observer=recorders[0]):
                (theirs(h) * loss).sum().backward()
            with sf.simulate(policy, observer=recorders[1]):
                (ours(own_h) * loss.numpy()).sum().backward()
        assert h.grad.tolist() == own_h.grad.tolist() and theirs.p.grad.tolist() == ours.p.grad.tolist(), name
        counts = [recorder.counts("p", "backward") for recorder in recorders]
        assert counts[0] == counts[1] and counts[0]["total"] == 2 * P.numel()


def test_a_gradient_that_is_a_single_number_for_many_elements_is_counted_for_each():
    recorder = sf.Recorder()
    gradients(lambda h, p: h.sum() + p.sum(), sf.BF16, sf.BF16, recorder)
    assert recorder.counts("p", "backward")["total"] == P.numel()


def test_gradients_that_are_asked_for_by_name_have_their_role_too():
    model, h = Model(torch.mul), (H / 3).requires_grad_()
    policy = sf.Policy(compute=sf.FP32, activation_gradients=sf.BF16, weight_gradients=sf.E5M2)
    with sf.torch.simulate(model, policy):
        to_weight, to_activation = torch.autograd.grad(model(h).sum(), [model.p, h])
    assert to_weight.tolist() == sf.round(h.detach().numpy(), sf.E5M2).tolist()
    assert to_activation.tolist() == sf.round(P.numpy(), sf.BF16).tolist()


def test_a_function_of_a_programs_own_may_not_look_at_a_gradient_whose_role_is_not_known_yet():
    class Curious(Squared):
        @staticmethod
        def backward(ctx, g):
            slope = g * 3
            return (slope, slope) if slope.sum() > 0 else (g, g)

    with pytest.raises(ValueError, match="reads a number .* before it is known which gradient"):
        gradients(Curious.apply, sf.BF16, sf.FP32)
    gradients(Curious.apply, sf.BF16, sf.BF16)


#: Gradients of activations are narrow, those of weights are not.
NARROW = sf.Policy(compute=sf.FP32, activation_gradients=sf.BF16, weight_gradients=sf.FP32)


def test_both_biases_of_a_recurrent_layer_have_the_same_gradient():
    for kind in (torch.nn.RNN, torch.nn.LSTM):
        torch.manual_seed(0)
        layer, x, loss = kind(3, 4), torch.rand(5, 2, 3), torch.randn(5, 2, 4)
        with sf.torch.simulate(layer, NARROW):
            (layer(x)[0] * loss).sum().backward()
        # Sums of a few BF16 numbers of similar size are exact in FP32, in any order.
        torch.testing.assert_close(layer.bias_ih_l0.grad, layer.bias_hh_l0.grad, rtol=1e-6, atol=1e-6)


def test_parts_of_a_weights_gradient_do_not_enter_its_layer_again():
    weight, bias, x = (torch.nn.Parameter(torch.rand(shape)) for shape in ((3, 4), (4,), (5, 3)))
    model = torch.nn.ParameterList([weight, bias])
    with sf.torch.simulate(model, NARROW):
        torch.addmm(bias, x, weight, alpha=0.25).sum().backward()
    assert torch.equal(weight.grad, 0.25 * x.detach().sum(0)[:, None].expand(3, 4))


@pytest.mark.parametrize("count", [4, 1])
def test_a_bilinear_layers_weight_has_a_weights_gradient(count):
    layer, x, y = torch.nn.Bilinear(3, 2, count), torch.rand(5, 3), torch.rand(5, 2)
    with sf.torch.simulate(layer, NARROW):
        layer(x, y).sum().backward()
    torch.testing.assert_close(layer.weight.grad, (x.T @ y).expand(count, 3, 2), rtol=1e-6, atol=0)


def test_what_is_summed_for_a_norms_weight_is_rounded_as_its_gradient():
    torch.manual_seed(0)
    for layer, shape in (
        (torch.nn.LayerNorm(3), (5, 3)),
        (torch.nn.BatchNorm1d(3), (5, 3)),
        (torch.nn.BatchNorm1d(3).eval(), (5, 3)),
        (torch.nn.GroupNorm(1, 3), (5, 3)),
        (torch.nn.InstanceNorm1d(3, affine=True), (2, 3, 5)),
    ):
        x, loss = torch.randn(shape), torch.randn(shape).bfloat16().float()
        with sf.torch.simulate(layer, NARROW):
            (layer(x) * loss).sum().backward()
        found, _ = layer.weight.grad, layer.zero_grad()
        (layer(x) * loss).sum().backward()
        torch.testing.assert_close(found, layer.weight.grad, rtol=1e-5, atol=1e-6)


#: Policies under which the gradient of a weight is wider than the layer's results: by an override, or by its roles.
WIDER = {
    **{
        mode.mode: sf.Policy(compute=sf.FP32, rounding=mode).override(operation="add", activations=sf.FP16)
        for mode in (sf.nearest_even, sf.stochastic(bits=6))
    },
    **{name: sf.policies[name] for name in ("amp-bf16", "amp-fp16")},
}


@pytest.mark.parametrize("name", WIDER)
def test_gradients_of_several_passes_are_added_as_wide_as_parameters_and_data_are_as_by_our_own(name):
    theirs, own, data = torch.nn.Linear(4, 3), sf.nn.Linear(4, 3), torch.linspace(-1, 2, 20).reshape(5, 4)
    own.load_state_dict({key: value.numpy().copy() for key, value in theirs.state_dict().items()})
    x, own_x = data.clone().requires_grad_(), sf.Tensor(data.numpy(), requires_grad=True)
    with sf.torch.simulate(theirs, WIDER[name]), sf.simulate(WIDER[name]):
        for factor in (1.0, 0.7, 1.3):
            (theirs(x * factor) ** 2).sum().backward()
            (own(own_x * factor) ** 2).sum().backward()
    pairs = [(theirs.weight, own.weight), (theirs.bias, own.bias)]
    for leaf, ours in [*pairs, (x, own_x)] if name.startswith("amp") else pairs:
        np.testing.assert_array_equal(leaf.grad, ours.grad)
    narrow = sf.BF16 if name == "amp-bf16" else sf.FP16
    assert not np.array_equal(own.weight.grad, sf.round(own.weight.grad, narrow))
