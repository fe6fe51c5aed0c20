"""Accepted operands are read exactly from any memory; others raise an error. New arrays start at a cache line."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import operands
from simfloat.arithmetic.operands import as_operand, flat
from tests.bits import assert_bits
from tests.checks import assert_refused


def test_narrow_dtypes_are_read_exactly(ml_dtypes):
    for dtype in "float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e8m0fnu float4_e2m1fn".split():
        format = sf.as_format(dtype)
        codes = np.arange(2**format.bits, dtype=np.uint16 if format.bits == 16 else np.uint8)
        numbers = codes.view(np.dtype(getattr(ml_dtypes, dtype, dtype)))
        assert as_operand(numbers).dtype == np.float64
        assert_bits(as_operand(numbers), sf.decode(codes, format))
        assert_bits(sf.add(numbers[:3], 0.0, sf.FP32), sf.decode(codes[:3], format) + 0.0)


def test_tensors_of_pytorch_are_read_exactly():
    torch = pytest.importorskip("torch", reason="needs PyTorch as a source of tensors")
    for dtype in "float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 int64".split():
        x = torch.tensor([[1.5, -2.0], [3.0, 0.0]]).to(getattr(torch, dtype))
        got = as_operand(x)
        assert got.dtype == (np.float32 if dtype == "float32" else np.float64)
        assert_bits(got, x.double().numpy())
    for dtype, large in (("float16", 2.0**15), ("bfloat16", 2.0**100), ("float32", 2.0**100)):
        x = torch.tensor([large, float("inf")], dtype=getattr(torch, dtype))
        assert_bits(sf.round(x, sf.FP64), [large, np.inf])
    for dtype in (torch.complex64, torch.complex128):  # a view of another with the sign turned
        got = sf.round(torch.tensor([1 + 2j, 3 - 0.5j], dtype=dtype).conj().imag, sf.BF16)
        assert got.tolist() == [-2.0, 0.5]
    assert_bits(sf.round(torch.tensor([0.1], requires_grad=True), sf.BF16), [0.10009765625])
    numbers = [np.array(0.5), np.float32(0.25), torch.tensor(2.0), np.array(3), True, 2**53]
    assert as_operand(numbers).tolist() == [0.5, 0.25, 2.0, 3.0, 1.0, 2.0**53]
    integers = "integers that float64 cannot hold exactly, such as 9007199254740993"
    assert_refused(
        (lambda: sf.round(torch.zeros(2, device="meta"), sf.BF16), r"tensor on meta; pass x.cpu\(\)"),
        (lambda: sf.add(1.0, torch.zeros(2, dtype=torch.complex64), sf.BF16),
         "b must hold real numbers .* complex64"),
        (lambda: sf.sum(torch.tensor([2**53 + 1]), accumulate=sf.BF16), integers),
        (lambda: as_operand([torch.tensor(2**53 + 1), 0.5]), integers),
        (lambda: as_operand(np.array([np.longdouble(1) + np.longdouble(2) ** -60, 1.0], object)),
         "numbers that float64 cannot hold exactly, such as 1152921504606846977/"),
    )  # fmt: skip


def test_integers_that_float64_cannot_represent_are_refused_by_sums():
    for integers in ([2**53, 2.0], [2**64, -1], [2**70], [-(2**63)], [[2**60, 0.5], [1, 2]]):
        assert as_operand(integers).tolist() == np.array(integers, object).astype(float).tolist()
    for integers in (
        *([2**53 + 1, 0.5], [2**63 + 1, -1], (1.0, -(2**53) - 1), [2**70 + 1], [[0.5, 1], [2, 2**54 + 1]], 2**53 + 1),
        *(np.int64(2**53 + 1), np.array(2**53 + 1), np.array(2**63 + 1, np.uint64), np.array(2**53 + 1, object)),
        *([np.int64(2**53 + 1), 0.5], [np.array(2**53 + 1), 0.5], [[np.array(2**53 + 1)], [0.5]]),
        *([np.array(2**63 + 1, np.uint64), -1], np.array([np.array(2**53 + 1), 0.5], object)),
    ):
        for read in (as_operand, lambda x: sf.sum(x, accumulate=sf.FP32)):
            with pytest.raises(ValueError, match="integers that float64 cannot hold exactly, such as"):
                read(integers)


def test_containers_without_plain_numbers_are_refused():
    for x, message in [
        (np.ma.masked_array([1.0, 2.0], [0, 1]), r"masked array, and masked elements have no number; pass x.filled"),
        ([[1.0, 2.0], np.ma.masked_array([1.0, 2.0], [0, 1])], "masked array, and masked elements have no number"),
        ([np.ma.masked, 1.0], "masked array, and masked elements have no number"),
        (sf.Tensor([1.0]), "Tensor; pass x.data"),
        (sf.block_quantize(np.ones(32), sf.E2M1), "x is a result of block_quantize, .* pass x.values()"),
        ([1.0, None], "must hold real numbers .*, got NoneType"),
        ([1j], r"must hold real numbers .*, got dtype complex128; pass the parts, x.real and x.imag"),
        (b"0.1", r"must hold real numbers .*, got dtype \|S3; pass np.asarray\(x\).astype\(str\), the texts"),
        ({1.0}, "must hold real numbers .*, got set"),
        ({}.values, r"must hold real numbers .*, got builtin_function_or_method values: call it, as values\(\)\."),
    ]:
        with pytest.raises(ValueError, match=message):
            sf.round(x, sf.FP16)


def test_a_missing_format_is_asked_for_and_a_tensor_has_a_method_without_it():
    t = sf.Tensor(np.ones(3, np.float32))
    for call, words in (
        (
            lambda: sf.exp(t),
            r"got a Tensor. Write x.exp\(\), .* policy .*, or sf.exp\(x.data, sf.FP16\), which computes",
        ),
        (lambda: sf.floor(t), r"sf.floor expects numbers and a format, got a Tensor. Write x.floor\(\)"),
        (lambda: sf.add(t, t), r"Write a.add\(b\), .*, or sf.add\(a.data, b.data, sf.FP16\)"),
        (lambda: sf.add(2.0, t), r"Write sf.Tensor\(a\).add\(b\), .*, or sf.add\(a, b.data, sf.FP16\)"),
        (lambda: sf.add(2.0, 3.0), r"Pass one, such as sf.add\(a, b, sf.FP16\).$"),
    ):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'format'.*" + words):
            call()
    with sf.simulate("fp16-standard"):
        assert_bits(t.add(t).exp().data, sf.exp(sf.add(t.data, t.data, sf.FP16), sf.FP16))


def test_elements_of_transposed_matrices_come_in_their_order():
    for shape in ((256, 512), (77, 256), (3, 40, 256), (16, 1024)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for turned in (x.swapaxes(-1, -2), x.swapaxes(-1, -2)[..., ::2, 1:], np.broadcast_to(x[..., :1, :], shape).T):
            assert np.array_equal(flat(turned), turned.ravel())


def test_large_arrays_begin_with_a_line():
    for dtype in (np.float32, np.float64):
        for shape in ((operands.LEAST_ALIGNED,), (130, 127), (3, 1, 9000)):
            x = np.random.default_rng(0).standard_normal(shape[::-1]).T
            for array in (operands.empty(shape, dtype), operands.zeros(shape, dtype), operands.copy(x, dtype)):
                assert operands.is_cache_aligned(array) and array.flags.carray
                assert array.shape == shape and array.dtype == dtype
            assert not operands.zeros(shape, dtype).any()
            assert_bits(operands.copy(x, dtype), x.astype(dtype))
    for shape in ((), (0,), (5, 0, 2), (3, 4)):
        assert operands.empty(shape, np.float32).shape == operands.zeros(shape, np.float32).shape == shape


def test_results_do_not_depend_on_where_operands_begin(rng):
    a, b = np.float32(rng.standard_normal((2, 40, 512)))
    shifted, b = np.zeros(40 * 512 + 16, np.float32), b.reshape(512, 40)
    for accumulate in (sf.FP32, sf.FP16):
        want = sf.matmul(a, b, inputs=sf.BF16, accumulate=accumulate)
        for start in (0, 1, 5):
            right = shifted[start : start + b.size].reshape(512, 40)
            right[:] = b
            assert_bits(sf.matmul(a, right, inputs=sf.BF16, accumulate=accumulate), want)
            exact = sf.matmul(sf.round(a, sf.BF16), sf.round(right, sf.BF16), accumulate=accumulate)
            assert_bits(exact, want)
