"""Arrays that store their format: each operator is one rounded operation, and formats are never mixed."""

import copy
import operator
import pickle
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.train.states import decode, encode
from tests.bits import assert_bits
from tests.checks import assert_refused

OPERATORS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}
WAYS = [
    (sf.BF16, sf.nearest_even), (sf.FP16, sf.toward_negative), (sf.E4M3, sf.nearest_even.saturating()),
    (sf.FP32, sf.toward_zero), (sf.FP64, sf.nearest_even), (sf.Format(11, 49), sf.to_odd),
]  # fmt: skip
IDS = [f"{format}-{rounding}" for format, rounding in WAYS]


@pytest.fixture(params=WAYS, ids=IDS)
def way(request):
    return request.param


def numbers(rng, shape, format, rounding=sf.nearest_even):
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-9, 9, shape))
    return sf.round(x, format, rounding)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_the_operation_rounded_once(name, way, rng):
    format, rounding = way
    x, y = numbers(rng, (3, 5), format), numbers(rng, 5, format)
    a, b = (sf.array(one, format, rounding=rounding) for one in (x, y))
    got = OPERATORS[name](a, b)
    assert isinstance(got, sf.Array) and got.format == format and got.rounding == rounding
    assert_bits(got, getattr(sf, name)(x, y, format, rounding))
    assert_bits(OPERATORS[name](a, 0.1), getattr(sf, name)(x, 0.1, format, rounding))
    assert_bits(OPERATORS[name](0.1, a), getattr(sf, name)(0.1, x, format, rounding))
    assert_bits(OPERATORS[name](np.float64(0.1), a), getattr(sf, name)(0.1, x, format, rounding))


def test_functions_are_those_of_the_package(way, rng):
    format, rounding = way
    x = np.abs(numbers(rng, 7, format))
    a = sf.array(x, format, rounding=rounding)
    names = ["exp", "sqrt", "tanh"] if format != sf.FP64 else ["sqrt", "reciprocal"]
    for name in names:
        assert_bits(getattr(a, name)(), getattr(sf, name)(x, format, rounding))
    assert_bits(a**2, sf.power(x, 2.0, format, rounding))
    assert_bits(2**a, sf.power(2.0, x, format, rounding))
    if format != sf.FP64:
        assert_bits(a.atan2(-a[0]), sf.atan2(x, -x[0], format, rounding))
    assert_bits(-a, -x)
    assert_bits(abs(-a), x)


def test_sums_go_through_the_accumulator_in_the_same_mode(way, rng):
    format, rounding = way
    x, y = numbers(rng, (3, 40), format), numbers(rng, (40, 2), format)
    a, b = (sf.array(one, format, rounding=rounding) for one in (x, y))
    steps = sf.sequential(format, rounding)
    assert_bits(a @ b, sf.matmul(x, y, accumulate=steps))
    assert_bits(a.sum(1), sf.sum(x, 1, accumulate=steps))
    assert_bits(a.sum((0, 1), keepdims=True), sf.sum(x, accumulate=steps).reshape(1, 1))
    assert_bits(a[0].dot(b[:, 0]), sf.dot(x[0], y[:, 0], accumulate=steps))
    assert_bits(a.mean(0), sf.divide(sf.sum(x, 0, accumulate=steps), 3.0, format, rounding))


@pytest.mark.parametrize("accumulate", [sf.pairwise(sf.BF16), sf.sequential(sf.FP32), sf.exact, sf.kahan(sf.BF16)])
def test_sums_of_another_accumulator_are_rounded_to_the_format(accumulate, rng):
    x, y = numbers(rng, (3, 40), sf.BF16), numbers(rng, (40, 2), sf.BF16)
    a, b = (sf.array(one, sf.BF16, accumulate=accumulate) for one in (x, y))
    assert_bits(a @ b, sf.matmul(x, y, accumulate=accumulate, output=sf.BF16))
    assert (a @ b).accumulate == accumulate


def test_numbers_that_enter_or_are_assigned_are_rounded(way):
    format, rounding = way
    a = sf.array(np.full((2, 3), 0.1), format, rounding=rounding)
    assert_bits(a, np.full((2, 3), sf.round(0.1, format, rounding)))
    a[0, 1:] = [1 / 3, 2]
    assert_bits(a[0, 1:], sf.round([1 / 3, 2.0], format, rounding))
    a[a > 0.2] = 0.3
    assert_bits(a[0, 1:], np.full(2, sf.round(0.3, format, rounding)))


def test_an_elimination_in_place_rounds_every_operation(way, rng):
    format, rounding = way
    x = numbers(rng, (4, 4), format)
    a = sf.array(x, format, rounding=rounding)
    factors = a[1:, :1] / a[0, 0]
    a[1:, 1:] -= factors * a[:1, 1:]
    products = sf.multiply(sf.divide(x[1:, :1], x[0, 0], format, rounding), x[:1, 1:], format, rounding)
    assert_bits(a[1:, 1:], sf.subtract(x[1:, 1:], products, format, rounding))
    assert_bits(a[0], x[0])


def test_slices_are_views_and_copies_are_not():
    a = sf.array(np.ones((2, 3)), sf.FP16)
    a[0][1] = 5
    a.T[2, 1] = 7
    b = a.copy()
    b += 1
    assert a.tolist() == [[1, 5, 1], [1, 1, 7]] and b.tolist() == [[2, 6, 2], [2, 2, 8]]
    taken = np.asarray(a)
    taken[:] = 0.1
    assert taken.dtype == np.float64 and a.tolist() == [[1, 5, 1], [1, 1, 7]]


def test_stochastic_modes_draw_from_the_stream_in_the_order_of_operations():
    mode = sf.stochastic(bits=8)
    x = np.array([0.1, 0.2, 0.3])
    a = sf.array(x, sf.E4M3, rounding=mode, stream=sf.BitStream(3))
    got = a + 0.1
    stream = sf.BitStream(3)
    assert_bits(got, sf.add(sf.round(x, sf.E4M3, mode, stream=stream), 0.1, sf.E4M3, mode, stream=stream))
    assert got.stream is a.stream
    given = sf.array([1.0, 2.0], sf.E4M3, rounding=mode, stream=sf.GivenBits([0] * 2 + [0, 255]))
    assert (given + 2**-6).tolist() == [1.0, 2.25]
    with pytest.raises(ValueError, match="Stochastic rounding needs random bits"):
        sf.array(x, sf.E4M3, rounding=mode)


def test_the_printed_call_creates_the_same_array():
    arrays = [
        sf.array([[1.0, -0.0], [np.inf, np.nan]], sf.BF16),
        sf.array(0.1, "fp16", rounding="toward_zero"),
        sf.array(np.zeros((0, 3)), sf.FP32, accumulate=sf.kahan(sf.FP32)),
        sf.array([1 + 2j, complex(-0.0, np.inf)], sf.FP64, complex_products="fma"),
        sf.array([1.5], sf.Format(4, 5, bias=9), rounding=sf.stochastic(bits=4), stream=sf.BitStream(7)),
    ]
    for a in arrays:
        again = eval(repr(a), vars(sf))
        assert again.shape == a.shape and again.format == a.format and again.accumulate == a.accumulate
        assert_bits(again.real, a.real)
        assert_bits(again.imag, a.imag)
    assert repr(arrays[1]) == "array(0.0999755859375, FP16, rounding=toward_zero)"
    assert len(repr(sf.array(np.ones(10**6), sf.FP16))) < 200


def test_arrays_are_copied_and_pickled_whole():
    a = sf.array([1.0, 2.0], sf.FP16, accumulate=sf.FP32)
    for other in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert repr(other) == repr(a)
        other[0] = 9
    assert a[0] == 1


def test_a_pickle_does_not_depend_on_earlier_computations():
    a = sf.array([1.5, 2.25], sf.BF16, rounding=sf.toward_zero)
    before = pickle.dumps(a)
    (a @ a) + a.max()
    assert pickle.dumps(a) == before


def test_an_array_is_saved_with_its_format_and_loaded_into_another(tmp_path):
    a = sf.array([[0.1, 2.0]], sf.E4M3, rounding="toward_zero", accumulate=sf.kahan(sf.BF16), stream=sf.BitStream(3))
    z = sf.array([1 + 0.3j], sf.FP64, complex_products="fma")
    sf.save(tmp_path / "arrays", a=a, others=[z, {"b": a.T}])
    found = sf.load(tmp_path / "arrays")
    assert repr(found["a"]) == repr(a) and repr(found["others"]) == repr([z, {"b": a.T}])
    other = sf.array(np.zeros((1, 2)), sf.E4M3)
    sf.load(tmp_path / "arrays", a=other)
    assert_bits(other, a)
    for wrong in (other.T, other.astype(sf.FP16), sf.array(0.0, sf.E4M3)):
        with pytest.raises(ValueError, match="a in .*arrays does not fit: The array is .*, the saved one E4M3 real of"):
            sf.load(tmp_path / "arrays", a=wrong)
    with pytest.raises(ValueError, match="uses GivenBits as its stream"):
        sf.save(tmp_path / "no", a=sf.array([1.0], sf.E4M3, rounding=sf.stochastic(), stream=sf.GivenBits([0])))


def test_an_observer_counts_operations_and_results_keep_it():
    own = sf.Recorder()
    a = sf.array([1e-3, 0.1], sf.FP16, observer=own)
    b = sf.array([1.0, 2.0], sf.FP16)
    for result in (a * a, b + a, a @ b, b @ a, np.hstack([b, a]), a[:1], a.astype(sf.FP16), np.maximum(b, a), a.sum()):
        assert result.observer is own
    assert own.counts(operation="round")["total"] == 2 and own.counts(operation="multiply")["subnormal"] == 1
    names = "round multiply add matmul maximum sum".split()
    assert all(own.counts(operation=name)["total"] for name in names)


def test_the_observer_of_a_simulation_counts_operations_of_arrays_at_the_path_that_runs():
    class Layer(sf.nn.Module):
        def forward(self, x):
            return sf.array(x, sf.E4M3) * 100.0 * 100.0

    class Model(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, x):
            return self.layer(x)

    of_block, own = sf.Recorder(), sf.Recorder(more=True)
    a = sf.array([1.0, 2.0], sf.BF16, observer=own)
    with sf.simulate("bf16-standard", observer=of_block) as sim:
        assert (a + 2.0**-9).format == sf.BF16
        Model()(np.ones(3))
        with sim.aside():
            a * 3.0
    assert of_block.counts(operation="add") == own.counts(operation="add")
    assert of_block.counts("layer", operation="multiply")["overflow"] == 3
    assert of_block.counts(operation="multiply")["total"] == 6 and own.counts(operation="multiply")["total"] == 2
    assert own.counts(operation="add", more=True)["inexact"] == 2


def test_narrow_tensors_of_pytorch_are_read():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for dtype, format in ((torch.bfloat16, sf.BF16), (torch.float8_e4m3fn, sf.E4M3), (torch.float16, sf.FP16)):
        tensor = torch.tensor([1.5, -0.25]).to(dtype)
        assert sf.array(tensor, format).tolist() == [1.5, -0.25]


def test_a_tensor_of_pytorch_is_an_operand_like_a_numpy_array():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    A = sf.array([[1.0, 2.0], [3.0, 4.0]], sf.BF16)
    t = torch.tensor([[0.5, 1.0], [2.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    x = t.detach().float().numpy()
    for result, want in ((A + t, A + x), (t / A, x / A), (A @ t, A @ x), (t @ A, x @ A), (A * t.double(), A * x)):
        assert result.format == sf.BF16
        assert_bits(np.asarray(result), np.asarray(want))
    A[:] = t
    assert_bits(np.asarray(A), x)
    assert_refused((lambda: A + torch.full((2, 2), 0.1), r"only numbers of BF16, but 0.1\d* at index \(0, 0\)"))


def test_an_array_of_exact_numbers_is_an_operand_if_all_are_numbers_of_the_format():
    A = sf.array([1.0, 2.0], sf.BF16)
    assert (A * np.array([Fraction(1, 2), 3], object)).tolist() == [0.5, 6.0]
    assert_refused(
        (lambda: A + np.array([Fraction(1, 2), Fraction(1, 3)], object), "only numbers of BF16, but 1/3 at index 1"),
        (lambda: np.array([0.1, Fraction(1, 3)], object) + A, "only numbers of BF16, but 0.1 at index 0"),
        (lambda: A * np.array([2**64 + 1, 0.1], object), "only numbers of BF16, but 18446744073709551617 at index 0"),
    )


def test_pytorch_and_dlpack_take_the_numbers():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = sf.array([[0.1, 2.0], [3.0, 4.0]], sf.BF16)
    for read in (torch.tensor, torch.as_tensor, torch.asarray, np.from_dlpack):
        for part in (a, a[0, 0], a[:0], a.T, a + 1j):
            got = np.asarray(read(part))
            assert got.shape == part.shape and np.array_equal(got, part) and got.dtype == np.asarray(part).dtype
            if got.flags.writeable:  # NumPy 2.0 makes an array from DLPack read-only
                got[...] = 7.0
    assert a[0, 0] == sf.round(0.1, sf.BF16), "they get numbers of their own"


def test_matplotlib_draws_arrays():
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    a = sf.array([[1.0, 2.0, 4.0], [2.0, 1.5, 0.5], [0.0, 1.0, 2.0]], sf.E4M3)
    x, y = a[0], a[1]
    figure, axes = plt.subplots()
    for name in "plot scatter bar barh fill_between step stem errorbar stackplot hist2d hexbin".split():
        getattr(axes, name)(x, y)
    for name in "contour contourf imshow pcolormesh pcolor matshow spy".split():
        getattr(axes, name)(a)
    axes.scatter(x, y, c=y, s=x)
    axes.quiver(x, y, x, y)
    axes.tricontourf([0.0, 1.0, 0.0], a[2], x)
    for name in "hist boxplot violinplot pie eventplot".split():
        getattr(axes, name)(x)
    plt.close(figure)
    with pytest.raises(ValueError, match="numpy.histogram would compute in float64"):
        np.histogram(a)


def test_comparisons_are_exact_and_of_any_format():
    a = sf.array([0.1, 1.0], sf.FP16)
    assert (a == sf.array([0.1, 1.0], sf.BF16)).tolist() == [False, True]
    assert (a < 0.1).tolist() == [True, False] and (a >= [0.0, 2.0]).tolist() == [True, False]
    assert bool(a[1] == 1) and float(a[1]) == 1.0 and int(a[1]) == 1 and len(a) == 2
    assert [float(x) for x in a] == a.tolist()
    assert f"{a[1]:.2f} {a[1]} {a}" == f"1.00 1.0 {a!r}"  # csv and % write a single result as a number


def test_in_is_true_if_an_element_is_equal_as_for_arrays_of_numpy():
    numbers = np.array([[1.0, 2.0], [3.0, np.nan]])
    for data in (numbers, numbers[0], numbers[0, 0], numbers + 1j, np.zeros((0, 2))):
        x = sf.array(data, sf.FP16)
        for value in (1.0, 2, 0.1, np.nan, 1 + 1j, Fraction(3), numbers[0]):
            array = np.asarray(data) if np.iscomplexobj(value) or np.iscomplexobj(data) else np.asarray(data, object)
            assert (value in x) is (value in array)
    assert_refused((lambda: "x" in sf.array(numbers, sf.FP16), "'x' is not a number"))


def test_assignments_to_a_view_of_an_attribute_are_stored():
    z = sf.array([1 + 2j, 3 - 1j], sf.BF16)
    z.real += 1
    z.imag = 0.1
    z.T *= 2
    tenth = float(sf.round(0.1, sf.BF16))
    assert z.tolist() == [4 + 2j * tenth, 8 + 2j * tenth]
    assert z.conjugate().tolist() == z.conj().tolist() == (z.real - 1j * z.imag).tolist()
    a = sf.array([1.0, 2.0], sf.BF16)
    a.real -= 1
    assert a.tolist() == [0.0, 1.0]
    for change in (lambda: setattr(a, "imag", 1.0), lambda: a.imag.__iadd__(1.0), lambda: a.imag.fill(2.0)):
        with pytest.raises(ValueError, match="read-only, like the imaginary parts of a real array"):
            change()


def test_astype_rounds_once_and_keeps_options_that_are_not_given():
    a = sf.array([1 / 3], sf.FP32, rounding=sf.toward_zero)
    b = a.astype(sf.BF16)
    assert (
        b.format == sf.BF16 and b.rounding == sf.toward_zero and b.accumulate == sf.sequential(sf.BF16, sf.toward_zero)
    )
    assert_bits(b, sf.round(np.asarray(a), sf.BF16, sf.toward_zero))
    assert a.astype(sf.BF16, rounding=sf.nearest_even, accumulate=sf.FP32).accumulate == sf.sequential(sf.FP32)


A = sf.array([[1.0, 2.0], [3.0, 4.0]], sf.BF16)
Z = sf.array([1 + 2j], sf.BF16)


def test_operations_that_mix_or_leave_the_format_raise_errors():
    assert_refused(
        (lambda: A + A.astype(sf.FP16), r"two formats do not mix, BF16 and FP16.*x.astype\('BF16'\)"),
        (lambda: A @ A.astype(sf.BF16, rounding="toward_zero"), "round in two ways do not mix"),
        (lambda: A + A.astype(sf.BF16, accumulate=sf.FP32), "round in two ways do not mix: rounding=.*accumulate="),
        (lambda: A + A.astype(sf.BF16, stream=sf.BitStream(0)),
         r"Each has its own stream: pass the same BitStream to both, or write y.astype\(y.format, stream=x.stream\)"),
        (lambda: A * (1, 2),
         r"array of BF16 or a single number, got tuple; simfloat.array\(x, 'BF16'\) .* np.asarray\(a\) returns"),
        (lambda: A * [1, 2], "got list"),
        (lambda: A.__setitem__(0, A[0].astype(sf.FP16)), "two formats do not mix"),
        (lambda: A.__setitem__(0, 1j), "A real array cannot store complex numbers"),
        (lambda: A[0].__iadd__(A), "An in-place operation cannot change the shape"),
        (lambda: A[0].__iadd__(1j), "An in-place operation cannot change the shape"),
        (lambda: A // 2, r"do not support //. Write \(x / y\).floor\(\)"),
        (lambda: sf.array([1.0], sf.BF16, accumulate=sf.blocked(4, sf.BF16, sf.FP32)).cumsum(),
         "adds several elements"),
        (lambda: A.cumsum(5), "axis must be None or an integer"),
        (lambda: Z < Z, "Complex numbers have no order"),
        (lambda: np.less(Z, 1), "Complex numbers have no order"),
        (lambda: sf.array([1], sf.BF16, observer=3), "observer must be an object with a method observe"),
        (lambda: Z.exp(), "exp of complex arrays is not supported"),
        (lambda: Z**2, "power of complex arrays is not supported"),
        (lambda: sf.Array(), "created by simfloat.array"),
        (lambda: A.item(), "one element"),
        (lambda: A.sum(initial=1.0, dtype=float),
         r"method sum of .* takes axis, keepdims, and nothing else; got initial, dtype: for initial= write "
         r"sf.sum\(x, initial=..., .*for dtype= write x.astype\(format\).sum\(\)."),
        (lambda: A.mean(out=A), r"method mean .*; got out: for out= write y\[...\] = x.mean\(\)"),
        (lambda: A.max(where=A > 1), r"method max .*write x\[condition\].max\(\)"),
        (lambda: A.min(initial=1), r"method min .*write x.min\(\).minimum\(initial\)"),
        (lambda: A.var(mean=0), "method var of .* takes axis, keepdims, ddof, and nothing else; got mean"),
        (lambda: A.std(where=A > 1), r"method std .*write x\[condition\].std\(\)"),
        (lambda: A.var(correction=1, ddof=1), "got correction and ddof"),
        (lambda: round(A[0, 0], 2), r"write round\(float\(x\), 2\)"),
        (lambda: sf.array([1.0], sf.BF16, accumulate=sf.kahan), r"call the function, write sf.kahan\(sf.FP16\)"),
        (lambda: A.sum(2), "does not name distinct axes"),
        (lambda: A[:0].max(), "needs an element"),
        (lambda: sf.array([0.5], sf.Format(11, 51)), "at most 50 bits"),
        (lambda: sf.array([1], sf.BF16, complex_products="exact"), "'rounded' or 'fma'"),
        (lambda: sf.array(["a"], sf.BF16), "must hold real numbers"),
        (lambda: np.asarray(A, copy=False), "always copies"),
    )  # fmt: skip


def test_positive_zero_is_larger_than_negative_zero():
    rows = sf.array([[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [-1.0, -0.0]], sf.BF16)
    assert np.signbit(rows.max(1)).tolist() == [False, False, True, True]
    assert np.signbit(rows.min(1)).tolist() == [True, True, True, True]
    assert np.signbit([rows.max(), rows[:2].min()]).tolist() == [False, True]


def test_the_remainder_of_arrays_is_that_of_numpy_and_of_python():
    values = sf.decode(np.arange(256), sf.E5M2).astype(np.float64)
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = [float(Fraction(x) % Fraction(y)) if y and np.isfinite([x, y]).all() else np.remainder(x, y)
                for x, y in zip(a.tolist(), b.tolist(), strict=True)]  # fmt: skip
    want = np.where(np.array(want) == 0, np.copysign(0.0, b), want)
    x, y = sf.array(a, sf.E5M2), sf.array(b, sf.E5M2)
    for result in (np.remainder(x, y), x % y, np.mod(x, y)):
        assert_bits(result.numbers.astype(np.float64), sf.round(want, sf.E5M2))
    assert_bits((sf.array(a, sf.E5M2) % 3.0).numbers, sf.array(a, sf.E5M2).remainder(sf.array(3.0, sf.E5M2)).numbers)
    tiny = sf.array([-(2.0**-60), 2.0**-60], sf.FP32, rounding="toward_zero") % 3.0  # 3 - 2^-60 is rounded once
    assert tiny.tolist() == [3 - 2.0**-22, 2.0**-60]
    assert (7.0 % sf.array([4.0], sf.FP16)).tolist() == [3.0]
    x = sf.array([7.0], sf.FP16)
    x %= 4.0
    assert x.tolist() == [3.0]


def test_operations_that_float64_represents_take_exact_operands():
    x = sf.array([1.0, -2.0], sf.FP32)
    third = Fraction(1, 3)
    assert x.fmod(third).tolist() == [0.0, 0.0] and x.fmod("3/7").tolist() == sf.fmod(x, "3/7", sf.FP32).tolist()
    assert (x % third).tolist() == [0.0, 0.0] and (x % "3/7").tolist() == [
        sf.round("1/7", sf.FP32),
        sf.round("1/7", sf.FP32),
    ]
    assert x.copysign("-1/3").tolist() == [-1.0, -2.0]
    assert (np.rint(x / 3), x.sign()) and np.sign(x).tolist() == [1.0, -1.0]


def test_partial_sums_of_arrays_are_rounded_step_by_step(rng):
    x = sf.array(rng.standard_normal((3, 5)), sf.E4M3)
    for axis in (None, 0, 1, -1):
        got = np.cumsum(x, axis)
        rows = x.numbers.reshape(1, -1) if axis is None else np.moveaxis(x.numbers, axis, -1)
        want = [[float(sf.sum(row[: n + 1], accumulate=sf.E4M3)) for n in range(row.size)] for row in rows]
        assert_bits(
            got.numbers, np.moveaxis(np.array(want, np.float32), -1, 0 if axis is None else axis).reshape(got.shape)
        )
    recorder = sf.Recorder()
    sf.array([240.0, 240.0, 1.0], sf.FP16, accumulate=sf.FP32, observer=recorder).cumsum()
    assert recorder.counts()["total"] >= 3


def test_the_magnitude_of_a_number_without_counterpart_is_rounded():
    twos_complement = sf.fixed(8, 3, symmetric=False)
    a = sf.array([-16.0, -15.875, 0.0, 15.875], twos_complement)
    for magnitudes in (abs(a), np.absolute(a), -a.minimum(-a)):
        assert magnitudes.numbers.tolist() == [15.875, 15.875, 0.0, 15.875]


def test_a_method_that_is_missing_and_wrong_arguments_name_the_public_class():
    for call, words in [
        (lambda: A.trace(), r"^'Array' object has no attribute 'trace': write np.trace\(x\)$"),
        (lambda: A.nonzero(), r"write np.nonzero\(x\)"),
        (lambda: A.prod(), "write the products one after the other"),
        (lambda: A.nothing(), "^'Array' object has no attribute 'nothing'$"),
        (lambda: A.cumsum(dtype=float), r"^Array.cumsum\(\) got an unexpected keyword argument 'dtype'$"),
    ]:
        with pytest.raises((AttributeError, TypeError), match=words):
            call()


def test_methods_of_numpys_arrays_that_compute_nothing_are_numpys():
    x = np.array([[3.0, 0.0, -0.0], [2.5, -1.0, 7.0]])
    a = sf.array(x, sf.BF16)
    for call in (
        lambda x: x.any(1), lambda x: x.all(0, keepdims=True), lambda x: x.any(), lambda x: x.argsort(0),
        lambda x: x.take([1, -1], axis=1), lambda x: x.repeat(2), lambda x: x.round(), lambda x: x.item(-1),
        lambda x: x.item(1, 2), lambda x: x.item((1, 0)), lambda x: x.var(ddof=1) == 8.5, lambda x: np.argsort(x),
    ):  # fmt: skip
        assert np.array_equal(call(a), call(x)), call.__code__.co_code
    a.sort(0), x.sort(0)
    assert np.array_equal(a, x) and round(a[0, 0]) == 2 and type(round(a[0, 0])) is int and round(a[0, 0], 0) == 2


def test_comparisons_with_exact_objects_have_one_result_on_both_sides():
    exchanged = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
    third = sf.array([1 / 3], sf.FP32).item()
    x = sf.array([third, 2.0**60, 0.5, np.nan], sf.FP32)
    objects = np.array([Fraction(1, 3), 2**60 + 1, "1/2", 1], object)
    assert (x > objects).tolist() == [third > Fraction(1, 3), False, False, False]
    assert (x == objects).tolist() == [False, False, True, False]
    for name, opposite in exchanged.items():
        left, right = getattr(operator, name)(x, objects), getattr(operator, opposite)(objects, x)
        assert left.dtype == right.dtype == bool and left.tolist() == right.tolist(), name
    for call in (lambda: x < np.array([None] * 4), lambda: np.array([None] * 4) > x):
        with pytest.raises(ValueError, match="data must hold real numbers that can be read exactly, got NoneType"):
            call()


def test_loaded_arrays_share_a_stream_if_the_saved_ones_did(tmp_path):
    def arrays():
        shared, separate = sf.BitStream(3), sf.BitStream(3)
        streams = (shared, shared, separate)
        return [sf.array([0.1, 0.7], sf.BF16, sf.stochastic(), stream=stream) for stream in streams]

    def steps(a, b, c):
        return [((a / 3) * b).tolist(), (c / 3).tolist()]

    a, b, c = arrays()
    sf.save(tmp_path / "states", a=a, more=[{"b": b}, c])
    loaded = sf.load(tmp_path / "states")
    d, (nested, f) = loaded["a"], loaded["more"]
    assert d.stream is nested["b"].stream is not f.stream
    assert steps(d, nested["b"], f) == steps(a, b, c)
    # Older files contain no numbers of streams.
    texts = encode(a, [], "a")["of format"][1]
    assert texts.pop("stream number") == 0
    old = decode({"list": [{"of format": [0, texts]}] * 2}, [a.numbers])
    assert old[0].stream is not old[1].stream and old[0].stream.state == a.stream.state


def test_a_restored_array_continues_with_the_random_bits_of_the_saved_one(tmp_path):
    def arrays(seed):
        stream = sf.BitStream(seed)
        return [sf.array(x, sf.BF16, sf.stochastic(), stream=stream) for x in ([0.1, 0.7], [2.0, 3.3])]

    a, b = (x * 1.01 for x in arrays(3))
    sf.save(tmp_path / "states", a=a, b=b, stream=a.stream)
    c, d = arrays(8)
    sf.load(tmp_path / "states", a=c, b=d)
    assert c.stream is d.stream and c.stream.state == a.stream.state
    assert [(c / 3).tolist(), (d / 3).tolist()] == [(a / 3).tolist(), (b / 3).tolist()]
    sf.load(tmp_path / "states", stream=c.stream)
    assert c.stream.state == sf.load(tmp_path / "states")["a"].stream.state
    state, thirds = a.state, (a / 3).tolist()
    a.load_state(state)
    assert (a / 3).tolist() == thirds
    given = sf.array([0.3], sf.BF16, sf.stochastic(3), stream=sf.GivenBits([1, 2, 3]))
    state, third = given.state, (given / 3).tolist()
    given.load_state(state)
    assert (given / 3).tolist() == third
    plain, drawing = sf.array([0.0, 0.0], sf.BF16), sf.sequential(sf.BF16, rounding=sf.stochastic())
    for other in (a, plain.astype(sf.BF16, accumulate=drawing, stream=a.stream)):
        for one, state in ((plain, other), (other, plain)):
            with pytest.raises(ValueError, match="Only one of both needs random bits: the array has rounding="):
                one.load_state(state.state)


def test_a_deterministic_mode_drops_the_stream_that_it_does_not_need():
    drawn = sf.array([1.0, 2.0], sf.BF16, sf.stochastic(), stream=sf.BitStream(0))
    wide = sf.array([1.0, 0.5], sf.FP32)
    assert np.asarray(drawn.astype(sf.FP32, rounding="nearest_even") + wide).tolist() == [2.0, 2.5]
    assert drawn.astype(sf.FP32).stream is drawn.stream
