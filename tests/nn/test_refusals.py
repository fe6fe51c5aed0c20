"""Common mistakes: text instead of booleans, layers in lists, names that a module already has."""

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


@pytest.mark.parametrize("seed", [None, -1, 1.5, "a", True])
def test_the_shared_generator_is_restarted_by_an_integer(seed):
    with pytest.raises(ValueError, match="The seed of initial values must be an integer of at least 0"):
        nn.seed(seed)


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
