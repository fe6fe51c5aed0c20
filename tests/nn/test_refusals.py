"""Refused arguments of layers, and common mistakes: layers in lists, names that a module already has."""

import numpy as np
import pytest

import simfloat as sf
from simfloat import nn

TRUTH = "must be True or False, got 'no'"
IMAGES = np.ones((1, 1, 4, 4))


@pytest.mark.parametrize("make", [
    lambda: nn.Linear(2, 2, bias="no"),
    lambda: nn.Conv2d(1, 1, 2, bias="no"),
    lambda: nn.ConvTranspose2d(1, 1, 2, bias="no"),
    lambda: nn.RNN(2, 2, batch_first="no"),
    lambda: nn.LSTM(2, 2, bidirectional="no"),
    lambda: nn.GRU(2, 2, bias="no"),
    lambda: nn.MultiHeadAttention(2, 1, batch_first="no"),
    lambda: nn.MultiHeadAttention(2, 1)(*np.ones((3, 2, 2)), is_causal="no"),
    lambda: nn.scaled_dot_product_attention(*np.ones((3, 2, 2)), is_causal="no"),
    lambda: nn.TransformerEncoderLayer(2, 1, norm_first="no"),
    lambda: nn.LayerNorm(2, elementwise_affine="no"),
    lambda: nn.BatchNorm2d(2, track_running_stats="no"),
    lambda: nn.EmbeddingBag(2, 2, include_last_offset="no"),
    lambda: nn.MaxPool2d(2, ceil_mode="no"),
    lambda: nn.AvgPool2d(2, count_include_pad="no"),
    lambda: nn.CTCLoss(zero_infinity="no"),
    lambda: nn.Module().register_buffer("x", None, persistent="no"),
    lambda: nn.Module().train("no"),
    lambda: nn.Linear(2, 2).zero_grad("no"),
    lambda: nn.Linear(2, 2).load_state_dict({}, "no"),
    lambda: sf.optim.SGD([sf.Parameter([1.0])], 0.1, nesterov="no"),
    lambda: sf.optim.SGD([sf.Parameter([1.0])], 0.1).zero_grad("no"),
    lambda: sf.Tensor([1.0], requires_grad="no"),
    lambda: sf.Tensor([1.0]).sum(keepdims="no"),
    lambda: sf.Tensor([1.0]).mean(keepdims="no"),
    lambda: sf.Tensor([1.0]).max(keepdims="no"),
    lambda: sf.Tensor([1.0]).logsumexp(keepdims="no"),
    lambda: sf.Recorder(more="no"),
    lambda: sf.train.Batches(np.ones(2), np.ones(2), shuffle="no"),
])  # fmt: skip
def test_text_is_no_truth_value(make):
    with sf.simulate("fp32"), pytest.raises(ValueError, match=TRUTH):
        make()


def test_numpys_truth_values_are_some():
    assert nn.Linear(2, 2, bias=np.False_).bias is None


class Listed(nn.Module):
    def __init__(self, hold):
        super().__init__()
        self.head = nn.Linear(2, 2, rng=0)
        self.held = []
        self.held = hold(self)

    def forward(self, x):
        return self.head(x)


@pytest.mark.parametrize(
    "make",
    [lambda: nn.Softmax("a"), lambda: nn.LogSoftmax(1.0), lambda: nn.GLU(True), lambda: nn.Flatten(end_dim="last")],
)
def test_axes_are_integers(make):
    with pytest.raises(ValueError, match="dim must be an integer, the number of an axis, got "):
        make()


@pytest.mark.parametrize("hold, kind, part", [
    (lambda m: [nn.Linear(2, 2)], "list", "Linear"),
    (lambda m: (m.head, nn.ReLU()), "tuple", "ReLU"),
    (lambda m: {"a": sf.Parameter([1.0])}, "dict", "Parameter"),
])  # fmt: skip
def test_parts_in_a_list_are_refused_when_the_model_runs(hold, kind, part):
    model = nn.Sequential(Listed(hold))
    with (
        sf.simulate("fp32"),
        pytest.raises(ValueError, match=f"Listed.held is a {kind} with a {part} inside.*ModuleList"),
    ):
        model(np.ones((1, 2)))


def test_a_list_of_what_the_module_holds_by_name_is_its_own_matter():
    model = Listed(lambda m: [m.head, m.head.weight, "text", 5])
    with sf.simulate("fp32"):
        assert model(np.ones((1, 2))).shape == (1, 2)


def test_attributes_of_users_hide_nothing_that_simulations_ask_for():
    model = Listed(lambda m: None)
    model.names, model._names, model._is_outermost = ["a"], ["b"], "c"
    with sf.simulate("bf16-standard"):
        model(np.ones((1, 2)))
    assert model.names == ["a"] and model._names == ["b"] and model._is_outermost == "c"
    for name in ("path", "parameters", "modules", "named_modules", "state_dict", "forward", "eval"):
        with pytest.raises(
            ValueError, match=f"{name!r} is an attribute of every module; choose another name for yours"
        ):
            setattr(model, name, ["a"])
    model.eval = lambda: None  # a method may be replaced by another one


def test_lists_of_modules_are_made_of_several():
    with pytest.raises(
        ValueError, match=r"ModuleList takes several modules, got one ReLU: write ModuleList\(\[ReLU\(...\)\]\)"
    ):
        nn.ModuleList(nn.ReLU())
    with pytest.raises(ValueError, match="ModuleList takes several modules, got one int"):
        nn.ModuleList().extend(5)


def test_tensors_are_compared_with_numbers_and_not_written_to_by_index():
    t = sf.Tensor([1.0, 2.0])
    assert (t < 2).tolist() == [True, False] and (t >= [1, 3]).tolist() == [True, False]
    for compare in (lambda: t < "a", lambda: t >= None, lambda: t <= {}):
        with pytest.raises(ValueError, match="A tensor cannot be compared with"):
            compare()
    with pytest.raises(ValueError, match="Elements of a tensor cannot be assigned.* simfloat.where"):
        t[0] = 5.0


def test_a_layer_whose_name_reads_as_a_pattern_is_overridden_by_it():
    class Bracketed(nn.Module):
        def __init__(self):
            super().__init__()
            setattr(self, "[x]", nn.Linear(2, 2, rng=0))

        def forward(self, x):
            return getattr(self, "[x]")(x)

    model, recorder = Bracketed(), sf.Recorder()
    policy = sf.policies["fp32"].override("[x]", activations=sf.BF16)
    assert "[x]" in policy.explain(model)
    with sf.simulate(policy, observer=recorder):
        assert model(np.ones((1, 2))).format == sf.BF16
    assert recorder.counts("[x]")["total"] > 0


@pytest.mark.parametrize("call, message", [
    (lambda: sf.nn.MLP([3]), r"at least the sizes of its input and its output, got \[3\]"),
    (lambda: sf.nn.MLP(3), r"at least the sizes of its input and its output, got \[3\]"),
    (lambda: sf.nn.Linear(2, 2).load_state_dict({"weight": np.ones((2, 2)), "bas": 1}), r"missing \['bias'\], unknown"),
    (lambda: sf.nn.mse_loss(sf.Tensor([1.0, 2.0]), [[1.0], [2.0]]), r"of one shape, got \(2,\) and \(2, 1\)"),
    (lambda: sf.nn.cross_entropy(sf.Tensor([[1.0, 2.0]]), [2]), "must be from 0 to 1, got 2 to 2"),
    (lambda: sf.nn.cross_entropy(1.0, 0), r"of shape \(..., classes\), got a single number"),
    (lambda: sf.nn.cross_entropy([1.0, 2.0], 0.0), "class numbers as integers, got dtype float64"),
    (lambda: sf.nn.cross_entropy(sf.Tensor([[1.0, 2.0]]), [0, 1]), r"target of shape \(1,\), got \(2,\)"),
    (lambda: sf.nn.seed(-1), "The seed of initial values must be an integer of at least 0, got -1"),
    (lambda: sf.nn.seed(0.5), "must be an integer of at least 0, got 0.5"),
    (lambda: sf.nn.Linear(2, 2, rng="1"), "a NumPy generator or a seed, an integer from 0; got '1'"),
    (lambda: sf.nn.Linear(0, 3), "in_features must be a positive integer, got 0"),
    (lambda: sf.nn.Linear(3, -1), "out_features must be a positive integer, got -1"),
    (lambda: sf.nn.Linear(2.0, 3), "in_features must be a positive integer, got 2.0"),
    (lambda: sf.nn.Sequential(sf.nn.Linear(2, 2), abs), "Sequential takes modules, got a builtin.* at 1"),
    (lambda: sf.nn.LayerNorm(0), "normalized_shape must be a positive integer, got 0"),
    (lambda: sf.nn.LayerNorm(()), "normalized_shape must be a positive integer, got None"),
    (lambda: sf.nn.LayerNorm(3, eps=-1), "eps must be a finite number from 0.0, got -1"),
    (lambda: sf.nn.LayerNorm(3, eps=np.inf), "eps must be a finite number from 0.0, got inf"),
    (lambda: sf.nn.LayerNorm((2, 3))(np.ones((3, 2))), r"A LayerNorm of \(2, 3\) takes .* got \(3, 2\)"),
    (lambda: sf.nn.LayerNorm((2, 3))(np.ones(3)), r"takes .* got \(3,\)"),
    (lambda: sf.nn.BatchNorm2d(0), "num_features must be a positive integer, got 0"),
    (lambda: sf.nn.BatchNorm2d(2, eps="a"), "eps must hold real numbers"),
    (lambda: sf.nn.BatchNorm2d(2, momentum=np.nan), "momentum must be a finite number"),
    (lambda: sf.nn.BatchNorm2d(2)(np.ones((2, 3, 4, 4))), r"BatchNorm2d\(2\) needs images .* got shape"),
    (lambda: sf.nn.BatchNorm2d(2)(np.ones((2, 2))), "needs images"),
    (lambda: sf.nn.BatchNorm1d(2)(np.ones((1, 2))), "needs more than one element per channel in training"),
    (lambda: sf.nn.SiLU(inplace=True), "inplace must be False, got True"),
    (lambda: sf.nn.Softplus(0.0), "beta must be above 0, got 0.0"),
    (lambda: sf.nn.CELU(0.0), "alpha must not be 0"),
    (lambda: sf.nn.Hardtanh(1.0, 1.0), "min_val must be below max_val, got 1.0 and 1.0"),
    (lambda: sf.nn.Softshrink(-1.0), "lambd must be a finite number from 0.0, got -1.0"),
    (lambda: sf.nn.GLU()(np.ones(3)), r"GLU\(dim=-1\) needs an even number of elements along this axis"),
    (lambda: sf.nn.GLU("last"), "dim must be an integer, the number of an axis, got 'last'"),
    (lambda: sf.nn.PReLU(3)(np.ones((2, 4))), r"PReLU\(3\) needs x with as many channels as axis 1"),
    (lambda: sf.nn.GroupNorm(3, 4), "num_channels must be a multiple of num_groups, got 4 and 3"),
    (lambda: sf.nn.GroupNorm(2, 4)(np.ones((2, 3))), r"of 4 channels takes \(N, channels, ...\), got \(2, 3\)"),
    (lambda: sf.nn.RMSNorm(3)(np.ones(4)), r"An RMSNorm of \(3,\) takes"),
    (lambda: sf.nn.InstanceNorm1d(3, track_running_stats=True), "leave track_running_stats out"),
    (lambda: sf.nn.InstanceNorm1d(3)(np.ones((2, 4, 5))), r"needs sequences \(N, C, L\) with C = 3"),
    (lambda: sf.nn.InstanceNorm2d(3)(np.ones((2, 3, 1, 1))), "needs more than one element per channel"),
    (lambda: sf.nn.Dropout2d()(np.ones((2, 3))), "Dropout2d needs x of 4 or 3 axes"),
    (lambda: sf.nn.Unflatten(1, 4), "takes the number of an axis and a tuple of sizes"),
    (lambda: sf.nn.Unflatten(2, (1, 1))(np.ones((2, 3))), r"needs the axis 2 of x, got shape \(2, 3\)"),
    (lambda: sf.nn.HuberLoss(delta=0.0), "delta must be above 0, got 0.0"),
    (lambda: sf.nn.KLDivLoss(reduction="all"), "must be one of 'mean', 'sum', 'none', 'batchmean', got 'all'"),
    (lambda: sf.nn.kl_div([1.0], [1.0, 2.0]), "kl_div needs input and target of one shape"),
    (lambda: sf.nn.binary_cross_entropy([1.5], [1.0]), "takes probabilities from 0 to 1, got values outside"),
    (lambda: sf.nn.binary_cross_entropy([0.5], sf.Tensor([1.0], requires_grad=True)), "has no gradient of its target"),
    (lambda: sf.nn.TransformerEncoderLayer(6, 4), "embed_dim must be a multiple of num_heads, got 6 and 4"),
    (lambda: sf.nn.TransformerEncoderLayer(6, 2, 0), "dim_feedforward must be a positive integer, got 0"),
    (lambda: sf.nn.TransformerEncoderLayer(6, 2, activation="tanh"), "must be 'relu' or 'gelu', got 'tanh'"),
    (lambda: sf.nn.TransformerEncoderLayer(6, 2, dropout=-1), "dropout is a probability"),
    (lambda: sf.nn.Embedding(0, 3), "num_embeddings must be a positive integer, got 0"),
    (lambda: sf.nn.Embedding(3, 2.0), "embedding_dim must be a positive integer, got 2.0"),
    (lambda: sf.nn.Embedding(10**400, 3), "num_embeddings must be a positive integer, got an integer of 1329 bits"),
    (lambda: sf.nn.Embedding(3, 3, 3), "padding_idx must be a row, from -3 to 2; got 3"),
    (lambda: sf.nn.Embedding(3, 3, None, 1.0), "max_norm must be None, got 1.0: .* Shorten rows after optimizer.step"),
    (lambda: sf.nn.EmbeddingBag(3, 3, max_norm=1.0), "max_norm must be None, got 1.0"),
    (lambda: sf.nn.Embedding(3, 3, norm_type="2"), "norm_type must"),
    (lambda: sf.nn.Embedding(3, 3, scale_grad_by_freq=True), "scale_grad_by_freq must be False: .* Divide rows"),
    (lambda: sf.nn.EmbeddingBag(3, 3, sparse=True), "sparse must be False: gradients are dense arrays"),
    (lambda: sf.nn.Embedding(3, 3)([[0, 3]]), r"Indices of an embedding go from 0 to 2; got 3 at \(0, 1\)"),
    (lambda: sf.nn.Embedding(3, 3)([-1]), "go from 0 to 2; got -1 at 0"),
    (lambda: sf.nn.Embedding(3, 3)([0.5]), "Indices of an embedding must be integers, got dtype float64"),
    (lambda: sf.nn.Embedding(3, 3)([[0], [1, 2]]), "rectangular array of integers"),
    (lambda: sf.nn.EmbeddingBag(3, 3, mode="min"), "mode must be one of sum, mean, max; got 'min'"),
    (lambda: sf.nn.EmbeddingBag(3, 3)([0, 1]), r"or an input with one axis together with offsets; got shape \(2,\)"),
    (lambda: sf.nn.EmbeddingBag(3, 3)([[0, 1]], [0]), r"got shape \(1, 2\) and offsets"),
    (lambda: sf.nn.EmbeddingBag(3, 3)([0, 1], [1]), r"Offsets ascend from 0, got \[1\]"),
    (lambda: sf.nn.EmbeddingBag(3, 3)([0, 1], []), r"Offsets ascend from 0, got \[\]"),
    (lambda: sf.nn.EmbeddingBag(3, 3)([0, 1], [[0]]), r"Offsets ascend from 0, got \[\[0\]\]"),
    (lambda: sf.nn.EmbeddingBag(3, 3)([0, 1], [0, 2, 1]), "Offsets ascend from 0"),
    (lambda: sf.nn.EmbeddingBag(3, 3)([0, 1], [0, 3]), "Offsets go from 0 to 2; got 3 at 1"),
    (
        lambda: sf.nn.EmbeddingBag(3, 3, include_last_offset=True)([0, 1], [0, 1]),
        r"The last offset is 2, the end of the input, got \[0, 1\]",
    ),
    (
        lambda: sf.nn.EmbeddingBag(3, 3)([[0, 1]], per_sample_weights=np.ones((1, 2))),
        r"are for mode='sum' and have the input's shape \(1, 2\); got \(1, 2\) and mode='mean'",
    ),
    (lambda: sf.nn.Conv2d(0, 4, 3), "in_channels must be a positive integer, got 0"),
    (lambda: sf.nn.Conv2d(3, 4, 3, groups=2), "multiples of groups, got 3 and 4 with groups=2"),
    (lambda: sf.nn.Conv2d(3, 4, 3, padding_mode="reflect"), "padding_mode must be 'zeros', .* got 'reflect'"),
    (lambda: sf.nn.Conv2d(3, 4, 0), "kernel_size must be an integer of at least 1"),
    (lambda: sf.nn.Conv2d(3, 4, 3, padding=-1), "padding must be an integer of at least 0"),
    (lambda: sf.nn.Conv2d(3, 4, 3, padding="some"), "padding is an integer, .* got 'some'"),
    (lambda: sf.nn.Conv2d(3, 4, 3, stride=2, padding="same"), "with a stride of 1, 'same'"),
    (lambda: sf.nn.ConvTranspose2d(3, 4, 3, padding="same"), "padding must be an integer of at least 0"),
    (lambda: sf.nn.ConvTranspose2d(3, 4, 3, output_padding=1)(np.ones((1, 3, 4, 4))), "output_padding must be"),
    (lambda: sf.nn.Conv2d(3, 4, 3)(np.ones((1, 2, 8, 8))), "with C and O multiples of groups"),
    (lambda: sf.nn.Conv2d(3, 4, 3)(np.ones((8, 8))), r"needs x \(N, C, H, W\)"),
    (lambda: sf.nn.MaxPool2d(2, return_indices=True), "leave return_indices out"),
    (lambda: sf.nn.AvgPool2d(2, divisor_override=0), "divisor_override must be None or an integer from 1"),
    (lambda: sf.nn.AdaptiveAvgPool2d((1, 2, 3)), "output_size is a positive integer, None, or a pair"),
    (lambda: sf.nn.AdaptiveAvgPool2d(3)(np.ones((8, 9))), r"AdaptiveAvgPool2d needs images \(N, C, H, W\)"),
    (lambda: sf.nn.Conv1d(2, 3, (1, 2)), "kernel_size must be an integer of at least 1"),
    (lambda: sf.nn.Conv1d(2, 3, 1, padding_mode="reflect"), "padding_mode must be 'zeros'"),
    (lambda: sf.nn.Conv1d(2, 3, 1, groups=2), "multiples of groups"),
    (lambda: sf.nn.Conv1d(2, 3, 1)(np.ones((2, 2, 4, 4))), r"conv1d needs x \(N, C, L\)"),
    (lambda: sf.nn.Conv1d(2, 3, 1)(np.ones((2, 4, 5))), r"conv1d needs x .*shapes \(2, 4, 5\) and \(3, 2, 1\)"),
    (lambda: sf.nn.ConvTranspose1d(2, 3, 1)(np.ones((2, 4, 5))), r"conv_transpose1d needs x \(N, C, L\).*\(2, 4, 5\)"),
    (lambda: sf.nn.MaxPool1d(2, return_indices=True), "leave return_indices out"),
    (lambda: sf.nn.AdaptiveAvgPool1d(0), "output_size must be a positive integer, got 0"),
    (lambda: sf.nn.Conv3d(3, 4, (3, 3)), r"kernel_size must be .* a triple \(slices, rows, columns\) of them"),
    (lambda: sf.nn.Conv3d(3, 4, 3, padding="some"), "padding is an integer, a triple of them, .* got 'some'"),
    (lambda: sf.nn.Conv3d(3, 4, 3)(np.ones((1, 2, 8, 8, 8))), r"conv3d needs x \(N, C, D, H, W\) .* multiples"),
    (lambda: sf.nn.Conv3d(3, 4, 3)(np.ones((8, 8))), r"conv3d needs x \(N, C, D, H, W\)"),
    (lambda: sf.nn.Conv3d(3, 4, 3)(np.ones((1, 3, 2, 8, 8))), "spans 3 x 3 x 3, x of shape .* has 2 x 8 x 8"),
    (lambda: sf.nn.ConvTranspose3d(3, 4, 3)(np.ones((1, 2, 4, 4, 4))), r"conv_transpose3d needs x \(N, C, D"),
    (lambda: sf.nn.ConvTranspose3d(3, 4, 3, padding=3)(np.ones((1, 3, 1, 4, 4))), "-3 slices, 0 rows and 0 columns"),
    (lambda: sf.nn.MaxPool3d(2, return_indices=True), "MaxPool3d returns only the largest pixels"),
    (lambda: sf.nn.MaxPool3d(2)(np.ones((8, 8))), r"max_pool3d needs volumes \(N, C, D, H, W\)"),
    (lambda: sf.nn.AvgPool3d(9)(np.ones((1, 1, 8, 8, 8))), "Windows of 9 x 9 x 9 do not fit"),
    (lambda: sf.nn.AdaptiveAvgPool3d((1, 2)), "output_size is a positive integer, None, or a triple"),
    (lambda: sf.nn.AdaptiveMaxPool3d(3)(np.ones((8, 9))), r"AdaptiveMaxPool3d needs volumes \(N, C, D, H, W\)"),
    (lambda: sf.nn.AdaptiveMaxPool2d(2, return_indices=True), "AdaptiveMaxPool2d returns only the largest pixels"),
    (lambda: sf.nn.AdaptiveMaxPool1d(0), "output_size must be a positive integer, got 0"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call()
