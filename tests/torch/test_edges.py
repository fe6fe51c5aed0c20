"""Edge cases of operations: options of one number, empty sums, values without rules."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.torch.compared import Function, compare_with_plain

RANDOM = torch.Generator().manual_seed(5)


def numbers(*shape):
    return torch.randn(shape, generator=RANDOM, dtype=torch.float64)


@pytest.mark.parametrize("options", [{"padding": (1,)}, {"stride": (2,)}, {"dilation": (2,)}], ids=str)
@pytest.mark.parametrize("axes", [2, 3])
def test_one_number_for_all_axes_of_a_convolution(options, axes):
    x, w = numbers(1, 2, *[5] * axes), numbers(3, 2, *[2] * axes)
    convolve = F.conv2d if axes == 2 else F.conv3d
    compare_with_plain(Function.of(lambda x, w: convolve(x, w, **options)), x, w)


def test_one_number_for_all_axes_of_a_transposed_convolution():
    x, w = numbers(1, 2, 3, 4), numbers(2, 3, 2, 2)
    options = dict(stride=(2,), padding=(1,), output_padding=(1,))
    compare_with_plain(Function.of(lambda x, w: F.conv_transpose2d(x, w, **options)), x, w)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax, torch.logsumexp], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape, dim", [((3, 0), 1), ((0, 3), 1), ((3, 0), 0)])
def test_an_axis_without_elements(function, shape, dim):
    x = torch.ones(shape)
    with sf.torch.simulate(nn.Identity(), "fp32"):
        assert torch.equal(function(x, dim), function(torch.ones(shape).double(), dim).float())


NORMS = {
    "layer_norm": lambda x, weight, bias: F.layer_norm(x, (6,), weight, bias),
    "group_norm": lambda x, weight, bias: F.group_norm(x, 2, weight, bias),
    "batch_norm": lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, True),
}


@pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])  # PyTorch itself fails for group_norm
def test_norms_with_a_bias_and_without_a_weight(name):
    compare_with_plain(Function.of(lambda x, bias: NORMS[name](x, None, bias)), numbers(4, 6), numbers(6))


@pytest.mark.parametrize("name", NORMS)
def test_the_gradient_of_a_bias_without_a_weight_is_a_parameters(name):
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(6))

        def forward(self, x):
            return NORMS[name](x, None, self.bias)

    model = Normed()
    with sf.torch.simulate(model, sf.Policy(compute=sf.BF16, weight_gradients=sf.FP32)):
        (model(torch.ones(3, 6)) * torch.tensor([1.0, 2.0, 3.0]).mul(1 / 3).unsqueeze(1)).sum().backward()
    rounded = sf.sum(sf.round([1 / 3, 2 / 3, 1.0], sf.BF16), accumulate=sf.FP32)
    assert model.bias.grad.tolist() == [rounded] * 6


@pytest.mark.parametrize("shape, target", [((), 0), ((3,), 1), ((3,), [1]), ((2, 3), [1, 0])], ids=str)
def test_margins_of_one_example_and_of_several(shape, target):
    compare_with_plain(Function.of(lambda x: F.multi_margin_loss(x, torch.tensor(target))), numbers(*shape))


def test_statistics_that_were_kept_leave_none_for_the_backward_pass():
    given = torch.ones(2, 3), None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5
    with sf.torch.simulate(nn.Identity(), "fp32"):
        assert [x.shape for x in torch.native_batch_norm(*given)] == [x.shape for x in torch.native_batch_norm(*given)]


@pytest.mark.parametrize("operation, message", [
    (lambda: torch.ones(3) * torch.ones(3, dtype=torch.complex64), "aten.mul.Tensor outside of .* complex numbers"),
    (lambda: torch.ones(3, dtype=torch.complex64)[1:], "aten.slice.Tensor outside of any layer .* complex numbers"),
    (lambda: torch.eye(2).to_sparse_csr().clone(), "sparse tensors have no rules; make the layer dense"),
    (
        lambda: torch.ones(1).addbmm_(torch.ones(2, 5, 3), torch.ones(2, 3, 4)),
        r"addbmm_.* of shape \(5, 4\) to a tensor of shape \(1,\); compute the result out of place",
    ),
    (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "torch.fake_quantize_per_tensor_affine"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0, -1])), "Class numbers must be .* got -1 to 0"),
    (lambda: F.cross_entropy(torch.ones(2, 3, 4), torch.full((2, 4), 3)), "Class numbers must be .* got 3 to 3"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(2)), r"integers of shape \(2,\), got float32 of shape"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(2, 1).long()), r"\(2,\), got int64 of shape \(2, 1\)"),
    (
        lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]), weight=torch.ones(4)),
        r"weight must have one element for each of 3 classes, got shape \(4,\)",
    ),
    (lambda: F.binary_cross_entropy(torch.tensor([1.5]), torch.ones(1)), "For logits, use binary_cross_entropy_with"),
], ids=[
    "complex", "a part of complex numbers", "sparse", "a larger result in place", "integers", "a class below 0",
    "a class too large", "classes that are no integers", "a column of classes", "weights of other classes", "logits",
])  # fmt: skip
def test_refused_operations_are_named(operation, message):
    with sf.torch.simulate(nn.Identity(), "fp32"), pytest.raises(ValueError, match=message):
        operation()


def test_a_lazy_module_is_called_once_before():
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ValueError, match="'0.weight' has no shape yet; call the model once on a sample"):
        sf.torch.simulate(model, "fp32").__enter__()
    model(torch.ones(2, 4))
    with sf.torch.simulate(model, "fp32"):
        assert model(torch.ones(2, 4)).shape == (2, 3)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_scripted_layer_is_refused_by_its_path():
    model = nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="A ScriptModule, the layer '1', hides its operations"):
        sf.torch.simulate(model, "fp32")


def test_operations_in_place_and_to_out_are_recognised_by_their_arguments():
    x, exponent = torch.tensor([0.3, 1.7]), torch.tensor([2.0, 3.0])
    due = sf.power(x.numpy(), exponent.numpy(), sf.BF16).tolist()
    with sf.torch.simulate(nn.Identity(), "bf16-standard"):
        assert x.clone().pow_(exponent).tolist() == due
        assert torch.div(x, 0.3, rounding_mode="floor", out=torch.empty(2)).tolist() == [1, 5]
        assert torch.xlogy(x, exponent, out=torch.empty(2)).tolist() == torch.xlogy(x, exponent).tolist()


def test_sequences_of_several_lengths_are_packed_and_padded():
    class Packed(nn.LSTM):
        def forward(self, x):
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
            return nn.utils.rnn.pad_packed_sequence(super().forward(packed)[0])[0]

    compare_with_plain(lambda: Packed(3, 4), numbers(5, 2, 3))


def test_numbers_that_are_scattered_by_a_mask():
    mask = torch.tensor([[True, False, True], [False, True, True]])
    compare_with_plain(Function.of(lambda x, source: x.masked_scatter(mask, source)), numbers(2, 3), numbers(5))


MOVEMENTS = {
    "heaviside": lambda x: torch.heaviside(x, x.flip(0)),
    "isposinf": torch.isposinf,
    "logical_xor": lambda x: torch.logical_xor(x, x.flip(0)),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([1, 0]), x),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[0, :2]),
    "unfold_copy": lambda x: torch.unfold_copy(x, 1, 2, 1),
    "nonzero_static": lambda x: torch.nonzero_static(x, size=4),
    "unique_consecutive": torch.unique_consecutive,
}


@pytest.mark.parametrize("name", MOVEMENTS)
def test_movements_and_tests_round_nothing(name):
    x = torch.tensor([[0.1, torch.inf, -3.3], [0.0, -0.0, 0.7]])
    with sf.torch.simulate(nn.Identity(), "bf16-standard"):
        assert torch.equal(MOVEMENTS[name](x), MOVEMENTS[name](x.clone()))


CHOSEN = {
    "max": lambda x: x.max(),
    "amax": lambda x: x.amax(0),
    "min": lambda x: x.min(),
    "amin": lambda x: x.amin(0),
    "aminmax": lambda x: sum(torch.aminmax(x)),
    "median": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(),
    "scatter_reduce": lambda x: torch.zeros(1).scatter_reduce(0, torch.zeros(5, dtype=torch.long), x, "amax").sum(),
}


@pytest.mark.parametrize("policy", ["bf16-standard", "bf16-stochastic"])
@pytest.mark.parametrize("name", CHOSEN)
def test_an_operand_that_is_rounded_with_the_result_has_the_gradient_of_one_that_was_rounded_before(name, policy):
    x = torch.tensor([0.1, 0.7001, 0.3, 0.7002, 0.5])  # in bfloat16 the second equals the fourth
    rounded = x.bfloat16().float().requires_grad_()
    CHOSEN[name](rounded).backward()
    x.requires_grad_()
    with sf.torch.simulate(nn.Identity(), policy):
        CHOSEN[name](x).backward()
    assert torch.equal(x.grad, rounded.grad)


def test_elementwise_results_lie_in_memory_as_their_operands_do():
    x = numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    with sf.torch.simulate(nn.Identity(), "fp32"):
        for function in (torch.exp, torch.neg, F.relu, F.relu6, F.hardswish, F.hardtanh, F.gelu):
            assert function(x).stride() == x.stride(), function
