"""A write between the forward pass and backward raises an error if a gradient would read the written values."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.autodiff.variable import SAMPLE, digest_of
from tests.bits import assert_bits

REMEDY = "between the forward pass and backward, which needs its original values. Call backward"


def refused(loss, what):
    with pytest.raises(ValueError, match=f"{what} {REMEDY}"):
        loss.backward()


@pytest.mark.parametrize("policy, weights", [("fp32", sf.FP32), ("bf16-standard", sf.BF16)])
@pytest.mark.parametrize("lent_before", [False, True])
def test_a_parameter_that_was_written_to(policy, weights, lent_before):
    w = sf.Parameter([1.0, 2.0, 3.1])
    w.name = "w"
    assert not lent_before or w.data[0] == 1
    with sf.simulate(policy):
        loss = (w * w).sum()
        w.data[:] = 100
        refused(loss, "multiply: the parameter 'w' was changed")
        w.data[:] = [1.0, 2.0, 3.1]
        loss.backward()
    assert_bits(w.grad, 2 * sf.round(np.float32([1.0, 2.0, 3.1]), weights))


def changes(model):
    optimizer = sf.optim.SGD(model.parameters(), lr=0.5)
    yield optimizer.step
    yield lambda: model.load_state_dict({name: x + 1 for name, x in model.state_dict().items()})
    yield lambda: setattr(model.head.weight, "data", np.ones((1, 4)))


@pytest.mark.parametrize("number", range(3))
def test_a_step_loading_and_assigning_are_writes_too(number):
    model = sf.nn.MLP([2, 4, 1], rng=0)
    with sf.simulate("bf16-standard"):
        model(np.ones((3, 2))).sum().backward()
        loss = model(np.ones((3, 2))).sum()
        list(changes(model))[number]()
        refused(loss, "linear in layer 'head': the parameter 'head.weight' was changed")


def test_arrays_that_no_gradient_reads_may_be_written():
    model, x = sf.nn.Linear(2, 1, rng=0), np.ones((3, 2), np.float32)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.5)
    with sf.simulate("bf16-standard"):
        y = model(x)  # the gradient of its only weight reads x, which needs none
        y.sum().backward()
        loss = model(x).sum()
        optimizer.step()
        model.weight.grad = None
        loss.backward()
        assert_bits(model.weight.grad, np.float32([[3, 3]]))
        total = (y + x).sum()  # nor does that of a sum
        x[:] = 7
        total.data[...] = 7
        with pytest.raises(ValueError, match="linear: an array that it reads was written to"):
            total.backward()  # but that of y still reads x


def test_reading_data_and_other_policies_between_are_no_writes():
    w, x = sf.Parameter([0.1, 0.2]), sf.Tensor([0.3, 0.4])
    with sf.simulate("bf16-standard"):
        loss = ((w * x).exp() * w).sum()
        assert w.data[0] == 0.1 and x.data[0] == 0.3
        with sf.simulate("fp8-hybrid"), sf.no_grad():
            assert (w * w).data.size == 2
        loss.backward()
    assert w.grad is not None


def test_a_batch_buffer_that_is_used_again():
    model, batch, labels = sf.nn.MLP([4, 8, 3], rng=0), np.ones((5, 4), np.float32), np.arange(5) % 3
    with sf.simulate("bf16-standard"):
        sf.nn.cross_entropy(model(batch), labels).backward()
        expected = [p.grad for p in model.parameters()]
        model.zero_grad()
        loss = sf.nn.cross_entropy(model(batch), labels)
        labels[:] = 0  # labels, like indices and masks, are copied
        loss.backward()
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert_bits(parameter.grad, gradient)
        loss = sf.nn.cross_entropy(model(batch), labels)
        batch[:] = batch[::-1] * 2
        refused(loss, "linear in layer 'hidden.0': an array that it reads was written to")


@pytest.mark.parametrize("operation", [
    lambda h: h.log().sum(), lambda h: (h * h).sum(), lambda h: (h.T @ h).sum(),
    lambda h: h.reshape(4).square().sum(), lambda h: h[1:].log().sum(),
])  # fmt: skip
def test_results_that_were_handed_out(operation):
    leaf = sf.Tensor(np.arange(1.0, 5.0).reshape(2, 2), requires_grad=True)
    with sf.simulate("fp32"):
        h = leaf * 1.0
        early = operation(h)
        handed_out = h.data
        late = operation(h)
        handed_out[1, 1] = 9.0
        h.data[1, 0] = 8.0
        for loss in (early, late):
            refused(loss, "an array that it reads was written to")
        operation(h).backward()  # what was written before is what it reads
        leaf.backward(np.ones((2, 2)))


@pytest.mark.parametrize("inside", [lambda y: y.data, np.asarray])
def test_a_result_that_its_own_gradient_reads(inside):
    x = sf.Tensor([1.0, 2.0], requires_grad=True)
    with sf.simulate("fp32"):
        y = x.exp()
        loss = y.sum()
        inside(y)[0] = 0
        refused(loss, "exp: an array that it reads was written to")


def test_indices_and_masks_are_copied():
    x, index, mask = sf.Tensor([1.0, 2.0, 3.0], requires_grad=True), np.array([0, 0]), np.array([True, False, True])
    with sf.simulate("fp32"):
        loss = x[index].sum() + x[mask].sum() + sf.where(mask, x, 0.0).sum()
        index[:], mask[:] = 1, False
        loss.backward()
    assert x.grad.tolist() == [4.0, 0.0, 2.0]


def test_digests_tell_orders_and_large_arrays():
    x = np.arange(3 * SAMPLE, dtype=np.float32)
    assert digest_of(x[:10]) != digest_of(x[:10][::-1].copy())
    assert digest_of(x) != digest_of(x + 1) and digest_of(x) == digest_of(x.copy())


@pytest.mark.parametrize("size", [8, 5000, SAMPLE - 1, SAMPLE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digests_tell_one_bit_and_two_numbers_that_changed_places(size, dtype, rng):
    x = rng.standard_normal(size).astype(dtype)
    whole = digest_of(x)
    for i in rng.integers(0, size, 50):
        changed = x.copy()
        changed.view(f"u{x.itemsize}")[i] ^= np.array(1 << int(rng.integers(8 * x.itemsize)), f"u{x.itemsize}")
        assert digest_of(changed) != whole
        changed[:] = x
        changed[[i, i - 1]] = x[[i - 1, i]]
        assert digest_of(changed) != whole and digest_of(x) == whole
    # Two numbers whose sign is the highest bit of a word, and every second column, as in a rotary embedding.
    for where in ([1, 3], [2, 5], slice(1, None, 2), slice(0, None, 2)):
        changed[:] = x
        changed[where] *= -1
        assert digest_of(changed) != whole
