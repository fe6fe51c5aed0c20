"""Compare the cost of a policy with counts by hand from the sizes of layers."""

import copy

import numpy as np
import pytest

import simfloat as sf
from simfloat.analysis.cost import value_bits
from tests.bits import assert_bits

RNG = np.random.default_rng(0)
X, LABELS = RNG.standard_normal((4, 3)), RNG.integers(0, 2, 4)
IMAGES = RNG.standard_normal((2, 2, 6, 6))
TOKENS = RNG.integers(0, 11, (3, 5))


class Net(sf.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = sf.nn.Conv2d(2, 4, 3, padding=1, rng=0)
        self.down = sf.nn.Conv2d(4, 6, 2, stride=2, bias=False, rng=1)
        self.head = sf.nn.Linear(54, 2, rng=2)

    def forward(self, x):
        return self.head(self.down(self.conv(x).relu()).reshape(len(x), -1))


class Gpt(sf.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = sf.nn.Embedding(11, 8, rng=0)
        self.block = sf.nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True, rng=1)
        self.head = sf.nn.Linear(8, 11, bias=False, rng=2)

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens), is_causal=True, src_mask=MASK))


MASK = np.triu(np.full((5, 5), -np.inf), 1)


def next_token(output, tokens):
    return sf.nn.cross_entropy(output.reshape(-1, 11), tokens.reshape(-1))


def multiply_adds(found):
    """By layer, (forward, backward)."""
    layers = dict.fromkeys(entry.layer for entry in found.products)
    return {
        layer: tuple(
            sum(entry.amount for entry in found.products if (entry.layer, entry.phase) == (layer, phase))
            for phase in ("forward", "backward")
        )
        for layer in layers
    }


def mlp_cost(policy):
    return sf.cost(sf.nn.MLP([3, 8, 5, 2], rng=0), sf.nn.cross_entropy, (X, LABELS), policy)


def test_a_linear_layer_makes_rows_times_inputs_times_outputs_products_and_twice_as_many_backward():
    assert multiply_adds(mlp_cost("bf16-standard")) == {
        "hidden.0": (4 * 3 * 8, 4 * 3 * 8),  # no gradient of data
        "hidden.1": (4 * 8 * 5, 2 * 4 * 8 * 5),
        "head": (4 * 5 * 2, 2 * 4 * 5 * 2),
    }


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("stride, groups", [(1, 1), (2, 2)])
def test_gradients_of_a_convolution_are_as_much_work_as_itself_and_so_is_a_transposed_one(padding, stride, groups):
    options = {"stride": stride, "padding": padding, "groups": groups, "bias": False, "rng": 0}
    for layer, size in ((sf.nn.Conv2d(4, 4, 3, **options), 5), (sf.nn.ConvTranspose2d(4, 4, 3, **options), 4)):
        model = sf.nn.Sequential(sf.nn.Conv2d(2, 4, 1, rng=0), layer)
        found = multiply_adds(sf.cost(model, lambda y, _: y.sum(), (np.ones((2, 2, size, size)), 0), "fp32"))
        places = (size + 2 * padding - 3) // stride + 1 if size == 5 else size
        work = 2 * 4 * places**2 * 4 // groups * 9
        assert found["1"] == (work, 2 * work)


def test_a_convolution_makes_a_product_for_each_place_of_its_kernels_and_none_of_zeros_between_pixels():
    found = multiply_adds(sf.cost(Net(), sf.nn.cross_entropy, (IMAGES, LABELS[:2]), "bf16-standard"))
    conv, down = 2 * 4 * 6 * 6 * (2 * 3 * 3), 2 * 6 * 3 * 3 * (4 * 2 * 2)
    assert found == {"conv": (conv, conv), "down": (down, 2 * down), "head": (2 * 54 * 2, 2 * 2 * 54 * 2)}


def test_a_block_of_a_gpt_makes_four_products_of_projections_two_of_attention_and_eight_of_its_linear_layers():
    batch, length, width = 3, 5, 8
    found = multiply_adds(sf.cost(Gpt(), next_token, (TOKENS, TOKENS), "bf16-standard"))
    projection = batch * length * width**2
    attention = 3 * projection + 2 * batch * length**2 * width
    linear, head = 4 * batch * length * width**2, batch * length * width * 11
    assert found == {
        "block.self_attn": (attention, 2 * attention),
        "block.self_attn.out_proj": (projection, 2 * projection),
        "block.linear1": (linear, 2 * linear),
        "block.linear2": (linear, 2 * linear),
        "head": (head, 2 * head),
    }


def test_numbers_are_those_of_results_and_of_the_operands_of_products():
    found = sf.cost(sf.nn.Linear(3, 2, rng=0), sf.nn.mse_loss, (X, np.zeros((4, 2))), "fp8-hybrid")
    counts = {(entry.layer, entry.role): entry.amount for entry in found.numbers}
    assert counts["", "compute"] == 2 * 4 * 3, "the data going forward, and for the gradient of the weight"
    assert counts["", "compute_weights"] == 2 * 3
    assert counts["", "compute_gradients"] == 4 * 2 and counts["", "weight_gradients"] == 2 * 3 + 2
    # The product, the bias, difference, square, sum and quotient of the loss.
    assert counts["", "activations"] == 2 * 8 + 2 * 8 + 2


def test_bits_moved_are_those_of_operands_read_and_results_written():
    work = sf.count_work(sf.nn.Linear(3, 2, bias=False, rng=0), lambda y, _: y.sum(), (X, X))
    wide, narrow = (work.cost(sf.Policy(compute=compute, activations="fp32")) for compute in ("fp32", "e4m3"))
    # Operands: x and w going forward, x and the gradient on the way back.
    assert wide.bits_moved - narrow.bits_moved == 24 * (12 + 6 + 12 + 8)
    results = 8 + 1 + 1 + 6  # the product, its sum, the gradients of the sum, one number, and of the weight
    assert wide.bits_moved == 32 * (12 + 6 + 12 + 8 + results + 8)  # and 8 that the sum reads


def test_scales_of_blocks_are_moved_and_kept_with_their_elements():
    assert value_bits(sf.scaled(sf.E4M3, sf.block(32, sf.E8M0))) == 8 + 8 / 32
    assert value_bits(sf.scaled(sf.E4M3, sf.block((128, 128), sf.FP32))) == 8 + 32 / 128**2


def test_mixed_precision_with_adam_keeps_sixteen_bytes_a_parameter():
    # Rajbhandari et al., ZeRO, arXiv 1910.02054, section 3.1: 2 + 2 + (4 + 4 + 4).
    assert mlp_cost("amp-fp16").bytes_per_parameter == mlp_cost("fp16-master").bytes_per_parameter == 16
    assert mlp_cost("bf16-standard").bytes_per_parameter == 8 and mlp_cost("bf16-kahan").bytes_per_parameter == 10


def test_bit_operations_are_products_of_widths():
    fp32, bf16, fp8 = (mlp_cost(name).bit_operations for name in ("fp32", "bf16-standard", "fp8-hybrid"))
    assert fp32 == 4 * bf16 == 16 * fp8 == 792 * 32 * 32


def test_overrides_price_their_layer_alone():
    policy = sf.policies["bf16-standard"].override("head", compute=sf.E4M3, accumulate=sf.FP16)
    products = {(str(e.a), str(e.accumulate)) for e in mlp_cost(policy).products if e.layer == "head"}
    assert products == {("E4M3", "sequential(FP16)")}
    assert {str(e.a) for e in mlp_cost(policy).products if e.layer != "head"} == {"BF16"}


@pytest.mark.parametrize("policy", ["fp8-hybrid", "bf16-standard", "amp-bf16"])
def test_work_counted_once_is_priced_as_that_of_the_policy_itself(policy):
    work = sf.count_work(sf.nn.MLP([3, 8, 5, 2], rng=0), sf.nn.cross_entropy, (X, LABELS))
    chosen = sf.policies[policy].override("hidden.1.weight", compute_weights=sf.E5M2)
    found, counted = work.cost(chosen), work._count_under(chosen)
    assert found.products == work.cost(chosen).products
    assert found.multiply_adds == sum(counted.products.values())
    assert sum(entry.amount for entry in found.numbers) == sum(counted.results.values()) + sum(
        counted.operands.values()
    )


def test_a_pytorch_model_costs_what_ours_does():
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear
    model = torch.nn.Sequential(linear(3, 8), torch.nn.ReLU(), linear(8, 5), torch.nn.ReLU(), linear(5, 2))
    batch = torch.tensor(X).float(), torch.tensor(LABELS)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    widest = sf.Policy(compute=sf.BF16, weights=sf.FP32, activations="widest")
    for policy in ("fp8-hybrid", "mxfp8", "bf16-standard", "amp-bf16", "amp-fp16", "apex-o1", "fp64", widest):
        ours = sf.cost(sf.nn.MLP([3, 8, 5, 2], rng=0), sf.nn.cross_entropy, (X.astype("f4"), LABELS), policy)
        theirs = sf.cost(model, torch.nn.functional.cross_entropy, batch, policy)
        assert ours.by_role() == theirs.by_role(), policy
        assert ours.by_formats() == theirs.by_formats()
        assert ours.bits_moved == theirs.bits_moved and ours.state_bytes == theirs.state_bytes
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())


def test_where_results_take_the_widest_format_a_pytorch_models_types_count():
    torch = pytest.importorskip("torch")
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, activations="widest")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    batch = torch.tensor(X).float(), torch.zeros(4, 2)
    formats = []
    for each in (model, copy.deepcopy(model).bfloat16(), copy.deepcopy(model).double()):
        like = [x.to(next(each.parameters()).dtype) for x in batch]
        found = sf.cost(each, torch.nn.functional.mse_loss, tuple(like), policy)
        formats.append({str(entry.value) for entry in found.numbers if entry.role == "activations"})
    assert formats == [{"FP32"}, {"FP32"}, {"FP64"}]


def test_an_addition_that_hands_its_gradient_on_is_no_work_under_any_policy():
    model = sf.nn.Linear(3, 2, rng=0)
    found = set()
    for policy in ("fp32", "amp-bf16", sf.Policy(compute=sf.BF16, weights=sf.FP32, activations="widest")):
        numbers = sf.cost(model, lambda y, _: y.sum(), (X, X), policy).numbers
        found.add(sum(entry.amount for entry in numbers if entry.role == "activation_gradients"))
    assert found == {1}, "the gradient of the sum"


def test_a_cost_prints_as_tables():
    found = mlp_cost("bf16-standard")
    assert repr(found).count("BF16 x BF16") == 2
    assert found.by_layer().splitlines()[-1].split() == ["total", "792", "773", f"{found.bits_moved:,.0f}", "89", "8"]
    assert found._repr_html_().count("<table>") == 3


def test_the_model_does_not_change():
    model = sf.nn.MLP([3, 8, 5, 2], rng=0)
    before = {name: np.array(x) for name, x in model.state_dict().items()}
    sf.cost(model, sf.nn.cross_entropy, (X, LABELS), "bf16-stochastic")
    for name, x in model.state_dict().items():
        assert_bits(x, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_gradients_that_a_model_has_already_are_no_work():
    model = sf.nn.MLP([3, 8, 5, 2], rng=0)
    fresh = sf.cost(model, sf.nn.cross_entropy, (X, LABELS), "bf16-standard")
    with sf.simulate("fp32"):
        sf.nn.cross_entropy(model(X), LABELS).backward()
    assert sf.cost(model, sf.nn.cross_entropy, (X, LABELS), "bf16-standard") == fresh


@pytest.mark.parametrize(
    "change, words",
    [
        ({"model": 3}, "cost takes a simfloat.nn.Module or a torch.nn.Module, got a int"),
        ({"loss_fn": "mse"}, "loss_fn is called as loss_fn(model(x), y); got a str"),
        ({"loss_fn": sf.nn.L1Loss}, "loss_fn is called as loss_fn(model(x), y); got the class L1Loss: give one of it"),
        ({"loss_fn": lambda output, y: output}, "must be a Tensor of one number"),
        ({"batch": X}, "batch is a pair (x, y), got a ndarray"),
        ({"policy": "bf15"}, "Unknown policy 'bf15'"),
        ({"policy": sf.policies["fp32"].override("haed", compute=sf.BF16)}, "'haed'"),
        ({"moments": -1}, "moments"),
    ],
)
def test_nonsense_is_refused(change, words):
    given = {"model": sf.nn.MLP([3, 2], rng=0), "loss_fn": sf.nn.cross_entropy, "batch": (X, LABELS), "policy": "fp32"}
    with pytest.raises(ValueError) as refused:
        sf.cost(**given | change)
    assert words in str(refused.value)
