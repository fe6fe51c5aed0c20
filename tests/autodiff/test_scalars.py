"""Tensors as scalars of Python and NumPy."""

import operator

import numpy as np
import pytest

import simfloat as sf


def test_a_tensor_of_one_element_is_a_number():
    for t in (sf.Tensor(2.5), sf.Tensor([2.5]), sf.Tensor([[2.5]])):
        assert float(t) == 2.5 and int(t) == 2 and f"{t:.3f}" == "2.500" and t.item() == 2.5
        assert bool(t) and f"{t}" == str(t)
    assert not sf.Tensor(0.0)


@pytest.mark.parametrize("use", [float, int, bool, lambda t: f"{t:.3f}", lambda t: t.item()])
def test_more_than_one_element_is_no_number(use):
    with pytest.raises(ValueError, match=r"Only a tensor of one element is a number; this one has the shape \(2,\)"):
        use(sf.Tensor([1.0, 2.0]))


def test_comparisons_give_boolean_arrays():
    a, b = sf.Tensor([1.0, 2.0, np.nan]), [1.0, 1.0, np.nan]
    for other in (b, np.array(b), sf.Tensor(b)):
        assert (a == other).tolist() == [True, False, False] and (a != other).tolist() == [False, True, True]
        assert (a < other).tolist() == [False, False, False] and (a > other).tolist() == [False, True, False]
        assert (a <= other).tolist() == [True, False, False] and (a >= other).tolist() == [True, True, False]
    assert (np.array([0.0, 3.0, 0.0]) < a).tolist() == [True, False, False]
    assert sf.Tensor(0.5) < 1 and not sf.Tensor(0.5) > 1 and 1 > sf.Tensor(0.5)


def test_comparisons_round_neither_side():
    # NumPy takes a Python float to the array's type, where 0.1 is the float32 above it.
    single = sf.Tensor(np.float32([0.1, 0.0]))
    assert (single > 0.1).tolist() == [True, False] and not (single == 0.1).any() and (single != 0.1).all()
    assert (0.1 < single).tolist() == [True, False] and (single == np.float32(0.1)).tolist() == [True, False]
    for other in (2**53 + 1, 10**400, 1j, [1, 2**53 + 1]):
        for compare in (operator.lt, operator.eq, operator.ne):
            with pytest.raises(ValueError, match="A tensor cannot be compared with"):
                compare(sf.Tensor([2.0**53, 1.0]), other)
    assert (single != None).all() and not (single == "0.1").any()  # noqa: E711


def test_tensors_are_hashed_by_identity():
    a, b = sf.Tensor([1.0]), sf.Tensor([1.0])
    assert {a: "a", b: "b"}[a] == "a" and hash(a) != hash(b) and len({a, b, a}) == 2


def test_numpy_reads_a_tensor():
    t = sf.Tensor(np.float32([1.0, 2.0]))
    assert np.asarray(t).dtype == np.float32 and np.asarray(t, np.float64).tolist() == [1.0, 2.0]
    copied = np.array(t)
    copied[0] = 7
    assert t.data[0] == 1.0
    np.testing.assert_array_equal(t, [1.0, 2.0])
    w = sf.Parameter([1.0])
    np.asarray(w)[0] = 0.1
    with sf.simulate("bf16-standard"):
        assert (w * 1.0).item() == sf.round(0.1, sf.BF16)


@pytest.mark.parametrize(
    "call", [lambda t: sf.round(t, sf.BF16), lambda t: sf.add(1.0, t, sf.BF16), lambda t: sf.sum(t, accumulate=sf.FP32)]
)
def test_functions_of_arrays_do_not_take_tensors_past_the_policy(call):
    with pytest.raises(ValueError, match=r"is a Tensor; pass \w+.data, its numbers"):
        call(sf.Tensor([1.0, 2.0]))


def test_a_tensor_without_axes_has_no_length():
    assert len(sf.Tensor([1.0, 2.0])) == 2
    with pytest.raises(TypeError, match=r"has no length. .*torch.as_tensor\(x.data\)"):
        len(sf.Tensor(1.0))


@pytest.mark.parametrize("call, message", [
    (lambda t: t // 2, r"does not support //, which no policy rounds: .* numpy.floor_divide\(numpy.asarray\(x\)"),
    (lambda t: t % 2, r"does not support %, .* numpy.remainder\("),
    (lambda t: 2 // t, "does not support //"), (lambda t: 2 % t, "not support %"),
    (lambda t: divmod(t, 2), "does not support divmod"), (lambda t: divmod(2, t), "does not support divmod"),
    (lambda t: round(t, 1), r"does not support round to decimal digits, .* numpy.round\("),
])  # fmt: skip
def test_functions_that_no_policy_rounds_are_refused_with_advice(call, message):
    with pytest.raises(ValueError, match=message):
        call(sf.Tensor(1.0))


def test_the_place_of_the_largest_element_is_an_integer():
    t = sf.Tensor([[1.0, 3.0, 3.0], [5.0, 4.0, 0.0]])
    assert t.argmax() == 3 and t.argmax(-1).tolist() == [1, 0] and t.argmax(0).tolist() == [1, 1, 0]
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        t.argmax(2)
