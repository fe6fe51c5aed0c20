"""Parameters: every stored value is rounded to `weights`, and only a write changes it."""

import copy
import pickle

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

BF16 = sf.policies["bf16-standard"]


def used(parameter, policy=BF16):
    with sf.simulate(policy):
        return (parameter * 1.0).data


def test_one_that_is_not_to_learn_has_no_gradient_and_is_used_in_weights_all_the_same():
    fixed, learning = sf.Parameter([0.1, 0.2], requires_grad=False), sf.Parameter([0.1, 0.2])
    optimizer = sf.optim.SGD([fixed, learning], lr=0.5, weight_decay=0.1)
    with sf.simulate(BF16):
        (fixed * learning).sum().backward()
        optimizer.step()
    assert fixed.grad is None
    assert_bits(learning.grad, np.float32(sf.round([0.1, 0.2], sf.BF16)))
    assert_bits(fixed.data, np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match="requires_grad must be True or False, got 1"):
        sf.Parameter([0.1], 1)


POLICIES = ["fp8-hybrid", "bf16-standard", "fp16-standard", "fp32", BF16.override("*.weight", weights=sf.E4M3)]


@pytest.mark.parametrize("order", [1, -1])
def test_comparing_policies_on_one_model_does_not_depend_on_their_order(order):
    def evaluated(model, policy):
        with sf.simulate(policy), sf.no_grad():
            return sf.nn.mse_loss(model(x), x[:, :1]).data

    x = np.random.default_rng(0).normal(size=(16, 3))
    model = sf.nn.Sequential(sf.nn.MLP([3, 8, 8], rng=0), sf.nn.BatchNorm1d(8), sf.nn.Linear(8, 1, rng=1)).eval()
    alone = [evaluated(copy.deepcopy(model), policy) for policy in POLICIES]
    before = model.state_dict()
    together = [evaluated(model, policy) for policy in POLICIES[::order]]
    assert_bits(np.stack(together[::order]), np.stack(alone))
    for name, numbers in model.state_dict().items():
        assert_bits(numbers, before[name])


def test_forward_and_backward_leave_what_is_stored_and_a_step_writes_numbers_of_weights():
    w, tied = sf.Parameter([0.1, 0.2]), sf.Parameter([0.3, 0.4])
    with sf.simulate(BF16):
        (w * tied + tied).sum().backward()
        for p, values in ((w, [0.1, 0.2]), (tied, [0.3, 0.4])):
            assert_bits(p.data, np.array(values))
        assert_bits(w.grad, np.float32(sf.round([0.3, 0.4], sf.BF16)))
        sf.optim.SGD([w], 0.5).step()
    start = sf.round([0.1, 0.2], sf.BF16)
    expected = sf.add(start, sf.multiply(w.grad, -0.5, sf.BF16), sf.BF16)
    assert_bits(w.data, np.float32(expected))
    assert w.format == sf.BF16 and tied.format is None


def test_the_rounded_copy_is_made_once():
    w = sf.Parameter(np.ones((3, 2)) / 3)
    with sf.simulate(BF16) as simulation:
        first = w.operand_in(simulation).numbers
        assert w.operand_in(simulation).numbers is first
        assert w.data[0, 0] == 1 / 3  # lent, but not written to
        assert w.operand_in(simulation).numbers is first
        w.data[0] = 0.2
        assert w.operand_in(simulation).numbers is not first
    known = sf.Parameter(np.float32([1.0, 2.0]))
    with sf.simulate(BF16) as simulation:
        assert known.operand_in(simulation).numbers is known.numbers  # there is nothing to round


@pytest.mark.parametrize("operation", [
    lambda w: w.softmax(), lambda w: w.log_softmax(), lambda w: sf.nn.cross_entropy(w, [0, 1]), lambda w: w.max(),
    lambda w: w.sum(0), lambda w: w.gelu(), lambda w: w[1:], lambda w: w.T @ w, lambda w: w + np.float32(1.0),
    lambda w: sf.Tensor(np.ones((2, 3), np.float32)) @ w.T,
    lambda w: sf.Tensor(np.ones((1, 3), np.float32)).linear(w).mean(), lambda w: w.reshape(3, 2),
    lambda w: w.flatten(), lambda w: w.pad((1, 1), 0.5), lambda w: w.broadcast_to((2, 2, 3)), lambda w: w.mean(1),
    lambda w: w.min(0), lambda w: w.var(), lambda w: w.logsumexp(), lambda w: sf.concatenate([w, w]),
    lambda w: sf.stack([w, w]), lambda w: sf.where(np.ones((2, 3), bool), w, 1.0), lambda w: w.split([1, 2], 1)[1],
    lambda w: w[np.array([1, 0, 1])], lambda w: w[np.ones((2, 3), bool)],
    lambda w: w.embedding(np.array([1, 1, 0])), lambda w: sf.nn.MaxPool2d(1)(w.reshape(1, 1, 2, 3)),
])  # fmt: skip
@pytest.mark.parametrize("activations", [sf.FP32, "widest"])
def test_every_operation_sees_it_rounded(operation, activations):
    values = np.random.default_rng(0).normal(size=(2, 3))
    with sf.simulate(sf.Policy(compute=sf.BF16, activations=activations, gradients=sf.FP32)):
        fresh, written = sf.Parameter(values), sf.Parameter(values + 1)
        known = sf.Parameter(np.float32(sf.round(values, sf.BF16)))
        written * known  # both are used
        written.data[...] = values
        results = [operation(w) for w in (fresh, written, known)]
        for w, result in zip((fresh, written, known), results, strict=True):
            result.backward(np.ones(result.shape))
            assert_bits(result.data, results[-1].data)
            assert result.format == results[-1].format
            assert_bits(w.grad, fresh.grad)


SATURATING = sf.cast(sf.BF16, sf.nearest_even.saturating())


@pytest.mark.parametrize("cast", [sf.cast(sf.BF16), SATURATING, sf.cast(sf.E4M3), sf.cast(sf.FP32)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_as_an_operand_of_a_product_it_is_rounded_whatever_is_known_of_it(transposed, cast):
    policy = sf.Policy(compute=sf.BF16, weights=sf.BF16, activations=sf.FP32).override("w", compute=cast)
    x = sf.round([[-2.0, 0.5], [0.3, 1.7]], sf.BF16)
    values = np.array([[0.1, np.inf], [-0.0, 500.0]])
    w = sf.Parameter(values)
    w.name = "w"
    with sf.simulate(policy):
        for step in range(4):  # as it was given, twice as it is known, as it was written to
            stored = sf.round(w.numbers, sf.BF16)
            right, got = (stored.T, sf.Tensor(x).linear(w)) if transposed else (stored, sf.Tensor(x) @ w)
            assert_bits(got.data, sf.matmul(x, right, inputs=(sf.BF16, cast), accumulate=sf.FP32))
            if step == 2:
                w.data[0] = values[0] + 0.01


def test_an_array_that_was_handed_out_stays_the_one_that_is_used():
    w = sf.Parameter(np.float32([1.0, 2.0]))
    handle = w.data
    used(w)
    handle[0] = 0.1
    assert_bits(used(w), sf.round([0.1, 2.0], sf.BF16))
    assert_bits(handle, np.float32([0.1, 2.0]))
    handle[1] = 0.3
    w.grad = np.ones(2)
    with sf.simulate(BF16):
        sf.optim.SGD([w], 0.5).step()
    assert_bits(w.data, sf.add(sf.round([0.1, 0.3], sf.BF16), -0.5, sf.BF16))


def test_numbers_that_weights_cannot_hold_are_refused_with_the_path():
    model = sf.nn.Sequential(sf.nn.Linear(2, 1, rng=0))
    model[0].bias.data[0] = np.nan
    with pytest.raises(
        ValueError, match="The parameter '0.bias' cannot be rounded to E2M1, its role weights: E2M1 has no NaN"
    ):
        with sf.simulate(sf.Policy(compute=sf.FP32, weights=sf.E2M1)):
            model(np.ones((1, 2)))


def test_writing_to_an_array_that_a_step_replaced_is_an_error():
    w = sf.Parameter(np.float32([1.0, 2.0]))
    stale = w.data
    w.grad = np.ones(2)
    with sf.simulate(BF16):
        sf.optim.SGD([w], 0.5).step()
    with pytest.raises(ValueError, match="read-only"):
        stale[0] = 7.0
    w.data[0] = 7.0
    assert used(w).tolist() == [7.0, 1.5]


def test_tensors_that_share_its_memory_are_rounded_too():
    w = sf.Parameter(np.float32([[1.0, 2.0]]))
    used(w)
    sf.Tensor(w).data[0, 0] = 0.1
    assert_bits(used(w), sf.round([[0.1, 2.0]], sf.BF16))
    w.detach().data[0, 1] = 0.3
    assert_bits(used(w), sf.round([[0.1, 0.3]], sf.BF16))
    with sf.simulate(BF16):
        for view in (w.T, w.reshape(2), w[0]):
            with pytest.raises(ValueError, match="read-only"):
                view.data[...] = 0.7
    w.data = [[1.0, 2.0]]


def test_an_assigned_array_is_copied():
    w, array = sf.Parameter([0.0, 0.0]), np.array([1.0, 2.0])
    w.data = array
    array[:] = 9
    assert used(w).tolist() == [1.0, 2.0] and array.flags.writeable
    given = np.array([3.0, 4.0])
    v = sf.Parameter(given)
    given[:] = 9
    assert used(v).tolist() == [3.0, 4.0]


def test_assigning_in_place_arithmetic_rounds_too():
    w = sf.Parameter(np.float32([1.0, 2.0]))
    w.data -= np.float32(0.1)
    assert_bits(used(w), sf.round(np.float32([1.0, 2.0]) - np.float32(0.1), sf.BF16))
    w.data *= 3
    w.data = w.data + 1
    assert w.format is None and w.data.flags.writeable


def test_its_format_is_that_of_weights_once_it_was_updated():
    w = sf.Parameter([0.1])
    w.grad = np.ones(1)
    used(w)
    assert w.format is None
    with sf.simulate(BF16):
        sf.optim.SGD([w], 0.5).step()
    assert w.format == sf.BF16
    assert used(w, sf.policies["fp16-master"]).dtype == np.float32 and w.format == sf.BF16
    w.data = [0.2]
    assert w.format is None


@pytest.mark.parametrize("bad, message", [
    (np.ones((3, 1)), r"the gradient of w must have the shape of its data, \(3,\), got \(3, 1\)"),
    (1.0, r"\(3,\), got \(\)"),
    ("abc", "the gradient of w must hold real numbers"),
    ([[1.0], [1.0, 2.0]], "the gradient of w must be a rectangular array"),
])  # fmt: skip
def test_gradients_that_do_not_fit_are_refused(bad, message):
    w = sf.Parameter(np.ones(3))
    w.name = "w"
    with pytest.raises(ValueError, match=message):
        w.grad = bad
    assert w.grad is None


@pytest.mark.parametrize("given", [[1, 2, 3], np.arange(1, 4), (1.0, 2.0, 3.0), np.float32([1, 2, 3])], ids=repr)
def test_gradients_are_given_as_anything_that_holds_numbers_exactly(given):
    w = sf.Parameter(np.ones(3))
    w.grad = given
    assert w.grad.tolist() == [1.0, 2.0, 3.0] and w.grad.dtype in (np.float32, np.float64)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_leaves_of_their_own(duplicate):
    w = sf.Parameter([0.1, 0.2])
    w.name = "w"
    with sf.simulate(BF16):
        (w * 2.0).sum().backward()
        sf.optim.SGD([w], 0.5).step()
    twin = duplicate(w)
    assert_bits(twin.data, w.data)
    assert_bits(twin.grad, w.grad)
    assert twin.name == "w" and twin.format == sf.BF16 and twin.requires_grad
    twin.data[0], twin.grad[0] = 5.0, 5.0
    assert w.data[0] != 5.0 and w.grad[0] != 5.0
    t = duplicate(sf.Tensor([1.0], requires_grad=True))
    assert t.requires_grad and t.data.tolist() == [1.0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_tensor_with_a_history_is_not_copied(duplicate):
    with sf.simulate("fp32"):
        y = sf.Tensor([1.0], requires_grad=True) * 2.0
    with pytest.raises(ValueError, match=r"cannot be copied or pickled with its history: use tensor.detach\(\)"):
        duplicate(y)
    assert duplicate(y.detach()) is not None


@pytest.mark.parametrize("loss", [
    lambda w: w.sum(), lambda w: w.mean(), lambda w: w.sum(0).max(), lambda w: w.broadcast_to((4, 2, 3)).sum(),
    lambda w: w.sum() + w.sum(), lambda w: (w * w).sum(), lambda w: w[0].sum() + w[1].sum(),
])  # fmt: skip
def test_every_element_of_a_parameters_gradient_is_observed_once_at_its_path(loss):
    w, recorder = sf.Parameter(np.full((2, 3), 2.0**-120)), sf.Recorder()
    w.name = "w"
    with sf.simulate("bf16-standard", observer=recorder):
        loss(w).backward()
    assert recorder.counts("w", phase="backward")["total"] == 6
