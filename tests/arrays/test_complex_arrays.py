"""Complex arrays: both parts are in the format, and every operation on them is rounded by the definition."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.reference import operate, sequential_dot

WAYS = [(sf.BF16, sf.nearest_even), (sf.FP16, sf.toward_negative), (sf.E4M3, sf.to_odd), (sf.FP32, sf.toward_zero)]


class Parts:
    """The operations on one pair of complex numbers, written out."""

    def __init__(self, format, rounding, fma=False):
        self.format, self.rounding, self.fma = format, rounding, fma

    def __call__(self, name, *operands):
        return operate(name, self.format, self.rounding, *operands)

    def multiply(self, x, y):
        a, b, c, d = x.real, x.imag, y.real, y.imag
        if self.fma:
            return self("fma", a, c, -self("multiply", b, d)), self("fma", a, d, self("multiply", b, c))
        real = self("subtract", self("multiply", a, c), self("multiply", b, d))
        return real, self("add", self("multiply", a, d), self("multiply", b, c))

    def square(self, z):
        if self.fma:
            return self("fma", z.real, z.real, self("multiply", z.imag, z.imag))
        return self("add", self("multiply", z.real, z.real), self("multiply", z.imag, z.imag))

    def divide(self, x, y):
        square = self.square(y)
        return tuple(self("divide", part, square) for part in self.multiply(x, y.conjugate()))

    def add(self, x, y):
        return self("add", x.real, y.real), self("add", x.imag, y.imag)

    def subtract(self, x, y):
        return self("subtract", x.real, y.real), self("subtract", x.imag, y.imag)


def numbers(rng, count, format):
    x = np.ldexp(rng.standard_normal((2, count)), rng.integers(-3, 3, (2, count)))
    return sf.array(x[0] + 1j * x[1], format)


@pytest.fixture(params=WAYS, ids=str)
def way(request):
    return request.param


@pytest.mark.parametrize("products", ["rounded", "fma"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_an_operation_is_the_rounded_operations_on_its_parts(name, products, way, rng):
    format, rounding = way
    x, y = (np.asarray(numbers(rng, 20, format)) for _ in range(2))
    a, b = (sf.array(one, format, rounding=rounding, complex_products=products) for one in (x, y))
    got = getattr(a, name)(b)
    parts = Parts(format, rounding, products == "fma")
    want = np.array([getattr(parts, name)(*map(complex, pair)) for pair in zip(x, y, strict=True)])
    assert_bits(got.real, want[:, 0])
    assert_bits(got.imag, want[:, 1])


def test_a_real_operand_has_no_imaginary_part(way, rng):
    format, rounding = way
    z = sf.array(np.asarray(numbers(rng, 9, format)), format, rounding=rounding)
    for name in ("add", "subtract", "multiply", "divide"):
        got = getattr(z, name)(0.3)
        assert_bits(got.real, getattr(sf, name)(np.asarray(z.real), 0.3, format, rounding))
        want = np.asarray(z.imag) if name in ("add", "subtract") else getattr(z.imag, name)(0.3)
        assert_bits(got.imag, want)
    turned = 0.3 - z
    assert_bits(turned.real, sf.subtract(0.3, np.asarray(z.real), format, rounding))
    assert_bits(turned.imag, -np.asarray(z.imag))
    assert_bits((0.3 * z).imag, (z * 0.3).imag)


def test_a_magnitude_has_four_roundings(way, rng):
    format, rounding = way
    z = sf.array(np.asarray(numbers(rng, 9, format)), format, rounding=rounding)
    squares = [Parts(format, rounding).square(complex(one)) for one in np.asarray(z)]
    assert_bits(abs(z), sf.sqrt(squares, format, rounding))


def test_a_product_of_matrices_sums_both_products_of_an_index_side_by_side(way, rng):
    format, rounding = way
    x, y = (np.asarray(numbers(rng, 12, format)) for _ in range(2))
    a = sf.array(x.reshape(2, 6), format, rounding=rounding)
    b = sf.array(y.reshape(6, 2), format, rounding=rounding)
    got, left, right = a @ b, x.reshape(2, 6), y.reshape(6, 2)
    for i in range(2):
        for j in range(2):
            real, imaginary = [], []
            for p, q in zip(left[i], right[:, j], strict=True):
                real += [(p.real, q.real), (-p.imag, q.imag)]
                imaginary += [(p.real, q.imag), (p.imag, q.real)]
            for part, terms in ((got.real, real), (got.imag, imaginary)):
                want = sequential_dot(*zip(*terms, strict=True), format, rounding)
                assert_bits(part[i, j], want)
    assert_bits((a[0] @ b[:, 1]).real, got.real[0, 1])
    assert_bits((a @ b[:, 1]).imag, got.imag[:, 1])


def test_parts_conjugates_and_sums_keep_the_format(rng):
    z = numbers(rng, 8, sf.FP16)
    assert_bits(z.sum().real, sf.sum(np.asarray(z.real), accumulate=sf.FP16))
    assert_bits(z.conj().imag, -np.asarray(z.imag))
    assert_bits((-z).real, -np.asarray(z.real))
    assert (z == z.conj().conj()).all() and complex(z[0]) == z[0].item()
    z.imag[:] = 0.1
    assert (np.asarray(z).imag == sf.round(0.1, sf.FP16)).all()


@pytest.mark.parametrize("dtype", ["<c8", ">c8", "<c16", ">c16"])
def test_complex_numbers_of_any_byte_order_are_read(dtype):
    z = np.array([[1 + 0.5j, complex(-0.0, np.inf)]]).astype(dtype)
    got = sf.array(z, sf.BF16)
    assert_bits(got.real, z.real.astype(np.float64))
    assert_bits(got.imag, z.imag.astype(np.float64))
    assert_bits((got * z)[0, 0].imag, np.float64(1.0))


@pytest.mark.parametrize(
    "data, words",
    [(np.ma.array([1 + 1j, 2], mask=[False, True]), r"data is a masked array.*data.filled\(value\)"),
     ([np.ma.array([1 + 1j], mask=[True])], "data is a masked array"),
     ([2**53 + 1, 1j], "data holds integers that float64 cannot hold exactly, such as 9007199254740993"),
     ([[1j], [1, 2]], "data must be a rectangular array of numbers")],
)  # fmt: skip
def test_complex_data_are_checked_as_real_ones_are(data, words):
    for make in (lambda: sf.array(data, sf.FP32), lambda: sf.array([0j, 0j], sf.FP32).__setitem__(slice(None), data)):
        with pytest.raises(ValueError, match=words):
            make()


def test_complex_tensors_of_pytorch_are_read():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    z = torch.tensor([1 + 2j, 0.1j], requires_grad=True)
    for given in (z, z.conj()):
        assert np.array_equal(sf.array(given, sf.FP32), given.detach().resolve_conj().numpy())


def test_the_norm_of_complex_numbers_sums_rounded_squares(rng):
    z = numbers(rng, 9, sf.BF16)
    squares = [Parts(sf.BF16, sf.nearest_even).square(complex(one)) for one in np.asarray(z)]
    assert_bits(np.linalg.norm(z), sf.array(squares, sf.BF16).sum().sqrt())
