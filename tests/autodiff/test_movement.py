"""Operations that move values: the values, the format of results, and gradients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, basic_indices, integer_array_indices

import simfloat as sf
from tests.bits import assert_bits

RNG = np.random.default_rng(9)
A, B = RNG.standard_normal((4, 5)), RNG.standard_normal((4, 5))
ROW, CUBE = RNG.standard_normal(5), RNG.standard_normal((3, 4, 5))
MASK = A > 0
ROWS = np.array([[2, 0, 2], [-1, 2, 1]])


class Torch:
    """torch's functions under the names that ours have."""

    def __init__(self, torch):
        self.torch = torch
        self.concatenate, self.stack = torch.cat, torch.stack

    def where(self, condition, a, b):
        return self.torch.where(self.torch.as_tensor(condition), a, b)


CASES = {
    "concatenate": (lambda m, a, b: m.concatenate([a, b * 2.0, a]), (A, B)),
    "concatenate the last axis": (lambda m, a, b: m.concatenate((a[:, :2], b), -1), (A, B)),
    "stack": (lambda m, a, b: m.stack([a, b, a]), (A, B)),
    "stack on a new last axis": (lambda m, a, b: m.stack([a, b], -1), (A, B)),
    "where": (lambda m, a, b: m.where(MASK, a, b), (A, B)),
    "where with a row": (lambda m, a, b: m.where(MASK, a, b), (A, ROW)),
    "where with a number": (lambda m, a: m.where(MASK, a, -np.inf).softmax(-1), (A,)),
    "where with a row of truths": (lambda m, a: m.where(MASK[0], a * a, a), (CUBE,)),
    "masked_fill": (lambda m, a: a.masked_fill(m.torch.tensor(MASK) if isinstance(m, Torch) else MASK, 0.5), (A,)),
    "split by sizes": (lambda m, a: [x * x for x in a.split([1, 0, 4], 1)][2] + a.split([1, 4], 1)[1], (A,)),
    "split by size": (lambda m, a: m.concatenate([x * (i + 1) for i, x in enumerate(a.split(3, -1))], -1), (A,)),
    "unbind": (lambda m, a: sum(x * x for x in a.unbind(1)), (A,)),
    "iteration": (lambda m, a: sum(x * (i + 1.0) for i, x in enumerate(a)) + a[0], (CUBE,)),
    "parts of parts": (lambda m, a: a.split(2)[1].unbind()[0] * a.split(3)[0].sum(0) * a.T.sum(-1), (A,)),
    "one part of a sequence": (lambda m, a: a.unbind()[2], (CUBE,)),
    "rows by integers": (lambda m, a: a[ROWS], (A,)),
    "rows of a cube": (lambda m, a: a[ROWS] * a[[0, 0, 1]], (CUBE,)),
    "pairs of integers": (lambda m, a: a[[0, 1, 0, 3], [4, 4, 4, -1]], (A,)),
    "an axis in the middle": (lambda m, a: a[:, [3, 0, 3, 3], 1:], (CUBE,)),
    "integers and slices": (lambda m, a: a[[[1], [2]], :, [0, 0, 4]], (CUBE,)),
    "a mask": (lambda m, a: a[MASK], (A,)),
    "a mask of rows": (lambda m, a: a[MASK[:, 0]], (A,)),
    "no rows": (lambda m, a: a[np.array([], int)], (A,)),
    "swapaxes": (lambda m, a: a.swapaxes(0, -1) * 2.0, (CUBE,)),
    "squeeze": (lambda m, a: a[:, None, :1].squeeze() * a[:, :1].squeeze(1), (A,)),
    "unsqueeze": (lambda m, a: a.unsqueeze(-1) * a.unsqueeze(0)[:, :, :, None], (A,)),
    "broadcast_to": (lambda m, a: a.broadcast_to((4, 3, 5)) * 2.0, (ROW,)),
    "maximum": (lambda m, a, b: a.maximum(b), (A, ROW)),
    "minimum": (lambda m, a, b: a.minimum(b), (A, ROW)),
    "ties of maximum": (lambda m, a, b: a.maximum(b) * b.minimum(a), (np.array([1.0, 2.0, 0.0]), np.ones(3))),
    "clip": (lambda m, a: a.clip(-0.5, 0.5), (np.array([-1.0, -0.5, 0.0, 0.5, 1.0]),)),
    "clip with one bound": (lambda m, a: a.clip(min=0) + a.clip(max=0.25) * 3.0, (A,)),
    "clip by tensors": (lambda m, a, b: a.clip(b, b * b), (A, B)),
    "var": (lambda m, a: a.var(-1, correction=0), (CUBE,)),
    "var of a sample": (lambda m, a: a.var((0, 2), True, correction=1) if m is sf else
                        a.var((0, 2), correction=1, keepdim=True), (CUBE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_torch_in_double_precision(name):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    function, arrays = CASES[name]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    result = function(Torch(torch), *theirs)
    weights = np.random.default_rng(1).standard_normal(tuple(result.shape))
    (result * torch.tensor(weights)).sum().backward()
    with sf.simulate("fp64"):
        ours = [sf.Tensor(x, requires_grad=True) for x in arrays]
        mine = function(sf, *ours)
        (mine * weights).sum().backward()
    np.testing.assert_allclose(mine.data, result.detach().numpy(), rtol=1e-13)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-12, atol=1e-15)


shapes = array_shapes(min_dims=1, max_dims=4, max_side=4)


@st.composite
def indexed(draw):
    """An array's shape, and a key of any kind."""
    shape = draw(shapes)
    masks = st.integers(1, len(shape)).flatmap(lambda n: arrays(bool, shape[:n]))
    rows = arrays(np.int8, array_shapes(max_dims=2, max_side=3), elements=st.integers(-shape[0], shape[0] - 1))
    mixed = st.tuples(rows, basic_indices(shape[1:], allow_newaxis=True)).map(
        lambda pair: (pair[0], *(pair[1] if isinstance(pair[1], tuple) else (pair[1],)))
    )
    kinds = [basic_indices(shape, allow_newaxis=True), integer_array_indices(shape), masks, rows]
    return shape, draw(st.one_of(*kinds, *([mixed] if len(shape) > 1 else [])))


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(indexed())
def test_any_key_selects_as_in_numpy_and_gradients_are_added_there(case):
    shape, key = case
    numbers = np.arange(float(np.prod(shape))).reshape(shape)
    with sf.simulate("fp32"):
        t = sf.Tensor(numbers, requires_grad=True)
        chosen = t[key]
        g = 1.0 + np.arange(float(chosen.size)).reshape(chosen.shape)
        chosen.backward(g)
    assert_bits(chosen.data, numbers[key])
    want = np.zeros(shape)
    np.add.at(want, key, g)
    assert_bits(t.grad, want)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(shapes, st.data())
def test_split_and_joined_arrays_are_unchanged(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis]), max_size=4)))
    sizes = np.diff([0, *cuts, shape[axis]]).tolist()
    numbers = np.arange(float(np.prod(shape))).reshape(shape)[::-1]
    with sf.simulate("fp32"):
        t = sf.Tensor(numbers, requires_grad=True)
        joined = sf.concatenate(t.split(sizes, axis), axis)
        stacked = sf.stack(joined.unbind(axis), axis)
        stacked.backward(numbers + 1)
    assert_bits(stacked.data, numbers)
    assert_bits(t.grad, numbers + 1)


def test_min_gives_its_gradient_to_the_first_of_the_smallest():
    with sf.simulate("fp32"):
        t = sf.Tensor([[3.0, 1.0, 1.0], [0.0, -0.0, np.inf]], requires_grad=True)
        y = t.min(1)
        y.backward([2.0, 3.0])
    assert_bits(y.data, [1.0, 0.0])
    assert t.grad.tolist() == [[0, 2, 0], [3, 0, 0]]


def test_maximum_and_minimum_know_signed_zeros_and_nan():
    a, b = [0.0, -0.0, -0.0, np.nan, 1.0, -np.inf], [-0.0, 0.0, -0.0, 1.0, np.nan, np.inf]
    with sf.simulate("fp32"):
        assert_bits(sf.Tensor(a).maximum(b).data, [0.0, 0.0, -0.0, np.nan, np.nan, np.inf])
        assert_bits(sf.Tensor(a).minimum(b).data, [-0.0, -0.0, -0.0, np.nan, np.nan, -np.inf])
        t = sf.Tensor([1.0, 1.0, 2.0], requires_grad=True)
        t.maximum([2.0, 1.0, 1.0]).backward([np.inf, 3.0, np.nan])
    assert_bits(t.grad, [0.0, 1.5, np.nan])


def test_the_variance_of_too_few_numbers_is_no_number():
    with sf.simulate("fp32"):
        assert sf.Tensor([1.0, 2.0]).var(correction=5).item() == np.inf
        assert np.isnan(sf.Tensor([1.0]).var(correction=1).item())


def test_clip_passes_nan_and_follows_torch_where_the_bounds_are_reversed():
    with sf.simulate("fp32"):
        t = sf.Tensor([np.nan, 0.0, 5.0], requires_grad=True)
        y = t.clip(2.0, 1.0)
        y.backward([1.0, 1.0, 1.0])
    assert_bits(y.data, [np.nan, 1.0, 1.0])
    assert t.grad.tolist() == [0, 0, 0]
    with sf.simulate("bf16-standard"):
        assert sf.Tensor([1.0]).clip(max=0.1).item() == sf.round(0.1, sf.BF16), "a bound is rounded as a result"


def test_gradients_of_repeated_indices_are_added_through_reduce_in_row_major_order():
    policy = sf.Policy(compute=sf.BF16, reduce=sf.Format(8, 9), gradients=sf.FP16)
    places = np.array([[3, 1, 3], [3, 0, 1], [4, 3, 3]])
    g = np.random.default_rng(2).standard_normal((3, 3, 2)) * 2.0 ** np.arange(-4, 5).reshape(3, 3, 1)
    t = sf.Tensor(np.zeros((6, 2)), requires_grad=True)
    with sf.simulate(policy):
        t[places].backward(g)
    rows, names = g.reshape(9, 2), places.reshape(9)
    for place in range(6):
        mine = rows[names == place]
        if len(mine) > 1:
            want = sf.sum(mine, 0, accumulate=sf.Format(8, 9), output=sf.FP16)
        else:
            want = sf.round(mine[0], sf.FP16) if len(mine) else np.zeros(2)
        assert_bits(t.grad[place], want)


def test_indices_may_be_integers_of_any_width():
    t = sf.Tensor(np.arange(300.0), requires_grad=True)
    with sf.simulate("fp32"):
        y = t[np.array([255, 0, 255], np.uint8)]
        y.backward([1.0, 2.0, 4.0])
    assert y.data.tolist() == [255, 0, 255] and t.grad[[0, 255]].tolist() == [2, 5] and t.grad.sum() == 7


def test_each_element_of_a_gathered_gradient_is_observed_once():
    recorder, table = sf.Recorder(), sf.Parameter(np.zeros((7, 2)))
    table.name = "table"
    with sf.simulate(sf.Policy(compute=sf.BF16, gradients=sf.E4M3), observer=recorder):
        table[[5, 1, 5, 5, 1, 0]].backward(np.full((6, 2), 400.0))
    counts = recorder.counts("table", "backward")
    assert counts["total"] == 14 and counts["overflow"] == 4
    assert recorder.histogram("table", "backward") == {8: 2, "zero": 8}


def test_parts_of_one_operation_are_put_side_by_side_and_others_are_added():
    g = np.float32([1 + 2.0**-6, 2.0**-9])
    t, w = sf.Tensor([0.0, 0.0], requires_grad=True), np.array([1.0, 1.0])
    with sf.simulate(sf.Policy(compute=sf.BF16)):
        a, b = t.split(1)
        (sf.concatenate([a, b]) * w).backward(g)
        assert_bits(t.grad, g), "nothing is added"
        t.grad = None
        first, second = t.unbind(), t.unbind()
        (sf.stack([*first, *second]) * 1.0).backward([1.0, -0.0, 2.0**-9, 0.0])
    assert_bits(t.grad, [1.0, 0.0]), "2^-9 is lost beside 1"


def test_the_gradient_of_a_part_writes_to_no_array_of_others():
    t, g = sf.Tensor([1.0, 2.0], requires_grad=True), np.float32([1.0, 1.0])
    with sf.simulate("fp32"):
        y = t * 1.0
        (y + y.split(1)[0]).backward(g)
    assert g.tolist() == [1, 1] and t.grad.tolist() == [3, 1]


def test_movement_keeps_the_format_that_its_operands_have_in_common():
    x, data = [1.0, 2.0], sf.Tensor([1.0, 2.0])
    with sf.simulate("bf16-standard"):
        b = sf.Tensor(x) * 1.0
    with sf.simulate("fp16-standard"):
        h = sf.Tensor(x) * 1.0
    with sf.simulate(sf.Policy(compute=sf.E4M3)):
        e = sf.Tensor(x) * 1.0
    truth = np.array([True, False])
    with sf.simulate("fp32"):
        for join in (sf.concatenate, sf.stack, lambda pair: sf.where(truth, *pair)):
            assert join([b, b]).format == sf.BF16 and join([b, b]).data.dtype == np.float32
            assert join([b, e]).format == join([e, b]).format == sf.BF16, "the narrowest that holds both"
            assert join([b, h]).format == sf.FP32, "neither holds the other"
            assert join([b, data]).format is None and join([data, data]).format is None
        for number in (0.0, -np.inf, np.nan, 0.5):
            filled = b.masked_fill(truth, number)
            assert filled.format == sf.BF16 and filled.data.dtype == np.float32
        assert sf.where(truth, data, 0.1).data[1] == 0.1, "data take numbers as they are"
        assert sf.where(truth, np.float32([1, 2]), 0.0).data.dtype == np.float32
        for moved in (b.swapaxes(0, 0), b.squeeze(), b.unsqueeze(0), b.broadcast_to((3, 2)), b[[1, 0]], b[truth],
                      *b.split(1)):  # fmt: skip
            assert moved.format == sf.BF16
        assert [float(row) for row in b] == x


@pytest.mark.parametrize("format", [sf.BF16, sf.FP16, sf.E4M3, sf.E2M1], ids=str)
def test_a_number_put_among_others_is_rounded_to_their_format(format):
    truth = np.array([True, False])
    with sf.simulate(sf.Policy(compute=format)):
        x = sf.Tensor([1.0, 2.0]) * 1.0
    with sf.simulate("fp32"):
        wide = (sf.Tensor([0.1, 0.3]) * 1.0).sum()
        for number in (0.1, 1 / 3, -1e9, 1e-9, -0.0, np.inf, wide):
            exact = np.float64(float(number))
            wanted = sf.round(exact, format).astype(np.float32)
            for put in (x.masked_fill(truth, number), sf.where(truth, number, x), np.where(truth, number, x)):
                assert put.format == format
                assert_bits(put.data, np.array([wanted, 2.0], np.float32))
            if number is not wide:
                padded = x.pad((1, 0), number)
                assert padded.format == format
                assert_bits(padded.data, np.array([wanted, 1.0, 2.0], np.float32))
        assert sf.where(truth, wide, 0.1).format == sf.FP32, "of two numbers the one that was rounded counts"


def test_the_mode_of_the_policy_rounds_numbers_put_among_others_unless_it_draws():
    truth, number = np.array([True, False]), 1 + 2**-12
    for mode, wanted in (
        (sf.toward_positive, 1 + 2**-10),
        (sf.toward_zero, 1.0),
        (sf.nearest_even.saturating(), 1.0),
        (sf.stochastic(), 1.0),
    ):
        with sf.simulate(sf.Policy(compute=sf.FP16, rounding=mode)) as simulation:
            x = sf.Tensor([1.0, 2.0]) * 1.0
            before = simulation.state
            assert x.masked_fill(truth, number).data[0] == wanted
            beyond = x.masked_fill(truth, -1e9).data[0]
            assert beyond == (-65504 if mode in (sf.toward_positive, sf.toward_zero) or mode.saturates else -np.inf)
            assert simulation.state == before


def test_empty_parts_are_parts():
    with sf.simulate("fp32"):
        t = sf.Tensor(np.zeros((0, 3)), requires_grad=True)
        joined = sf.concatenate([t, np.ones((2, 3))])
        joined.sum().backward()
        assert joined.shape == (2, 3) and t.grad.shape == (0, 3)
        assert sf.Tensor(np.zeros((5, 0)))[[1, 1]].shape == (2, 0)
        u = sf.Tensor(np.zeros((5, 0)), requires_grad=True)
        u[[1, 1]].backward(np.zeros((2, 0)))
        assert u.grad.shape == (5, 0)


@pytest.mark.parametrize("call, message", [
    (lambda t: sf.concatenate([]), r"concatenate takes a list or a tuple of at least one tensor, got \[\]"),
    (lambda t: sf.stack(t), "stack takes a list or a tuple of at least one tensor, got a Tensor"),
    (lambda t: sf.concatenate([t, t[0]]), r"equal shapes except along axis 0, got \(3, 4\), \(4,\)"),
    (lambda t: sf.concatenate([t, t], 2), "concatenate needs an axis from -2 to 1, got 2"),
    (lambda t: sf.stack([t, t.T]), r"tensors of one shape, got \(3, 4\), \(4, 3\)"),
    (lambda t: sf.stack([t], True), "stack needs an axis from -3 to 2, got True"),
    (lambda t: sf.where([1, 0, 1, 0], t, t), "must be an array of booleans, got dtype int64"),
    (lambda t: sf.where(t > 0, t, [1.0, 2.0]), r"Shapes \(3, 4\), \(3, 4\) and \(2,\) of where do not broadcast"),
    (lambda t: t.split(0), "sizes that add up to 3 on axis 0, got 0"),
    (lambda t: t.split([1, 1]), r"sizes that add up to 3 on axis 0, got \[1, 1\]"),
    (lambda t: t.split([4, -1]), "sizes that add up to 3"),
    (lambda t: t.split(2.0), "sizes that add up to 3"),
    (lambda t: t[3], r"A tensor of shape \(3, 4\) has no element at 3: index 3 is out of bounds"),
    (lambda t: t[[0, 3]], r"has no element at \[0, 3\]"),
    (lambda t: t[np.array([True, False])], "has no element at array"),
    (lambda t: t[0, 0, 0], "too many indices"),
    (lambda t: t[[0, 1], [0, 1, 2]], "shape mismatch"),
    (lambda t: t[1.0], "indexed by integers, slices, None, ..., and arrays of integers or booleans; got 1.0"),
    (lambda t: t[np.array([1.0])], "indexed by integers"),
    (lambda t: t[t], "indexed by integers"),
    (lambda t: t.swapaxes(0, 2), "swapaxes needs an axis from -2 to 1, got 2"),
    (lambda t: t.squeeze(0), r"axis 0 of shape \(3, 4\) has another size"),
    (lambda t: t.unsqueeze(4), "unsqueeze needs an axis from -3 to 2, got 4"),
    (lambda t: t.broadcast_to((3, 5)), r"Shape \(3, 4\) does not broadcast to \(3, 5\)"),
    (lambda t: t.clip(), "clip needs min, max or both, got neither"),
    (lambda t: t.var(correction=0.5), "correction is an integer from 0, got 0.5"),
    (lambda t: t[:0].min(0), "min needs at least one element"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call(sf.Tensor(np.zeros((3, 4))))


@pytest.mark.parametrize("move", [
    lambda w: w.reshape(5, 4), lambda w: w.T, lambda w: w[1:3, None].squeeze(1).T, lambda w: w.split(3)[0].T,
    lambda w: w.T.broadcast_to((2, 5, 4)),
], ids=["reshape", "transpose", "slice", "split", "broadcast"])  # fmt: skip
def test_a_parameter_that_was_moved_is_still_a_weight(move):
    policy = sf.Policy(
        compute=sf.E5M2, compute_weights=sf.FP16, weights=sf.FP32, activations=sf.FP32, activation_gradients=sf.E5M2,
        weight_gradients=sf.FP32, accumulate=sf.FP32, rotation=sf.hadamard(4),
    )  # fmt: skip
    w, x = sf.Parameter(A), np.asarray(RNG.standard_normal((4, 5)))
    with sf.simulate(policy), sf.no_grad():
        moved = move(w).data
    with sf.simulate(policy, seed=1):
        y = sf.Tensor(x) @ move(w)
        (y * y).sum().backward()
        plain = sf.Parameter(moved)
        z = sf.Tensor(x) @ plain
        (z * z).sum().backward()
        back = sf.Parameter(A)
        (move(back) * plain.grad).sum().backward()
    assert_bits(y.data, z.data)
    assert_bits(w.grad, back.grad)
