"""SciPy, xarray, Matplotlib and pandas accept an array, or an error says what to pass."""

import csv
import io

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

X = sf.array([1.0, 2.0, 0.3], sf.BF16)


def matrix(rng, n=12):
    return rng.standard_normal((n, n)) + 8 * np.eye(n)


@pytest.mark.parametrize("format, accumulate", [(sf.BF16, None), (sf.FP16, sf.FP32), (sf.E4M3, sf.kahan(sf.FP16))])
def test_an_operator_of_scipy_multiplies_in_the_format(format, accumulate, rng):
    pytest.importorskip("scipy")
    a, x = matrix(rng), rng.standard_normal((12, 3))
    operator = sf.linalg.as_linear_operator(a, format=format, accumulate=accumulate)
    options = dict(inputs=format, accumulate=accumulate or format, output=format)
    assert (operator.shape, operator.dtype) == ((12, 12), np.float64)
    assert_bits(operator.matvec(x[:, 0]), sf.matmul(a, x[:, 0], **options))
    assert_bits(operator @ x, sf.matmul(a, x, **options))
    assert_bits(operator.H @ x[:, :1], sf.matmul(a.T, x[:, :1], **options))
    array = sf.array(a, format, accumulate=accumulate)
    assert_bits(sf.linalg.as_linear_operator(array) @ x, operator @ x)


def test_solvers_of_scipy_accept_the_operator(rng):
    solvers = pytest.importorskip("scipy.sparse.linalg")
    a = matrix(rng)
    spd = a @ a.T
    for solve, one, rtol in ((solvers.gmres, a, 1e-2), (solvers.cg, spd, 1e-2), (solvers.bicgstab, a, 1e-2)):
        x, failed = solve(sf.linalg.as_linear_operator(one, format=sf.FP16), one @ np.ones(12), rtol=rtol)
        assert not failed and abs(x - 1).max() < 0.05
        assert_bits(x, solve(sf.array(one, sf.FP16), one @ np.ones(12), rtol=rtol)[0])
    for multiply in (
        sf.linalg.as_linear_operator(np.eye(2), format=sf.E4M3).matvec,
        sf.array(np.eye(2), sf.E4M3).matvec,
        sf.array(np.eye(2), sf.E4M3).rmatvec,
    ):
        with pytest.raises(ValueError, match="beyond the largest number of E4M3"):
            multiply(np.array([1e3, 1.0]))
    for vector in ([1, 10**400], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="x has infinities, NaN, or values beyond the largest number of BF16"):
            sf.array(np.eye(2), sf.BF16).matvec(vector)
    with pytest.raises(ValueError, match=r"past the format: .*np\.asarray"):
        pytest.importorskip("scipy.linalg").solve(sf.array(a, sf.BF16), np.ones(12))
    with pytest.raises(ValueError, match=r"write it in operations of arrays of a format \(sf\.linalg\.lu\)"):
        pytest.importorskip("scipy.linalg").lu(sf.array(a, sf.BF16))


def test_a_sparse_matrix_is_refused_with_what_to_write(rng):
    sparse = pytest.importorskip("scipy.sparse").eye(3).tocsr()
    for name, call in (
        ("data", lambda: sf.array(sparse, sf.BF16)),
        ("A", lambda: sf.linalg.cg(sparse, np.ones(3), format=sf.BF16)),
        ("b", lambda: sf.linalg.lstsq(np.eye(3), sparse, format=sf.BF16)),
        ("T", lambda: sf.linalg.solve_triangular(sparse, np.ones(3), format=sf.BF16)),
        ("x", lambda: sf.linalg.norm(sparse, format=sf.BF16)),
        ("a", lambda: sf.matmul(sparse, np.eye(3), accumulate=sf.FP32)),
    ):
        with pytest.raises(ValueError, match=rf"^{name} must .*got csr_\w+; pass {name}\.toarray\(\)"):
            call()
    assert sf.array(sparse.toarray(), sf.BF16, sf.toward_zero).rounding == sf.toward_zero


def test_an_array_multiplies_vectors_of_scipy(rng):
    solvers = pytest.importorskip("scipy.sparse.linalg")
    a, x = sf.array(matrix(rng)[:, :7] + 1j * rng.standard_normal((12, 7)), sf.BF16), rng.standard_normal(7)
    for one in (a.real, a):
        operator = solvers.aslinearoperator(one)
        assert operator.shape == (12, 7) and operator.dtype == one.dtype == np.asarray(one).dtype
        assert_bits(operator @ x, np.asarray(one @ sf.array(x, sf.BF16)))
        assert_bits(operator.H @ np.asarray(one[:, 0]), np.asarray(one.conj().T @ one[:, 0]))
    with pytest.raises(ValueError, match=r"numpy\.matvec would compute in float64, past the format: write A @ x"):
        np.matvec(a, x)


def test_the_dtype_of_an_array_keeps_its_format():
    for format in (sf.BF16, sf.E4M3, sf.Format(6, 3), sf.fixed(8, 4)):
        x = sf.array([1.0, 0.5], format, rounding=sf.toward_zero)
        for dtype in (x.dtype, np.result_type(x, 2.0), np.result_type(np.float32, x)):
            assert (dtype, sf.as_format(dtype)) == (np.float64, format)
        assert x.astype(x.dtype, copy=False) is x and x.astype(x.dtype) is not x
        assert x.astype(x.dtype, rounding=sf.nearest_even, copy=False).rounding == sf.nearest_even
    assert np.result_type(X, np.complex64) == np.complex128 and (X + 0j).astype((X + 0j).dtype).format == sf.BF16
    assert X.astype(np.float64).format == sf.FP64
    with pytest.raises(ValueError, match="Arrays of two formats do not mix, BF16 and FP16"):
        np.result_type(X, X.astype(sf.FP16))
    assert np.zeros_like(X, dtype=X.dtype).format == np.sum(X, dtype=X.dtype).format == sf.BF16
    assert (np.add(X, X, dtype=X.dtype) == X + X).all()
    for dtype in (np.float64, X.astype(sf.FP16).dtype, (X + 0j).dtype):
        with pytest.raises(ValueError, match="and nothing else"):
            np.sum(X, dtype=dtype)
    assert (np.sum(X, dtype=None, out=None), np.mean(X, dtype=None)) == (X.sum(), X.mean())


def test_xarray_computes_in_the_format():
    xarray = pytest.importorskip("xarray")
    labelled = xarray.DataArray(sf.array([[4.0, 1.0], [0.3, 3.0]], sf.BF16), dims=("x", "y"), coords={"x": [1, 2]})
    a = labelled.data
    assert isinstance(a, sf.Array) and "BF16" in repr(labelled)
    for result, expected in (
        (labelled * 0.1, a * 0.1),
        (labelled + labelled, a + a),
        (np.sqrt(labelled), a.sqrt()),
        (labelled.sum(), a.sum()),
        (labelled.mean("x", skipna=False), a.mean(0)),
        (labelled.sel(x=2), a[1]),
        (labelled.where(labelled > 1, 0), np.where(np.asarray(a) > 1, a, 0)),
        (xarray.concat([labelled, labelled], "x"), np.concatenate([a, a])),
        (labelled.shift(x=1, fill_value=0.1), np.stack([sf.array([0.1, 0.1], sf.BF16), a[0]])),
        (labelled.assign_coords(x=[2, 3]) - labelled, (a[:1] - a[1:])),
        (xarray.Dataset({"a": labelled}).max(skipna=False)["a"], a.max()),
    ):
        assert result.data.format == sf.BF16
        assert_bits(result.data.numbers, expected.numbers)
    with pytest.raises(ValueError, match=r"numpy\.nanmean .* write mean, .*\(xarray: skipna=False\)"):
        labelled.mean()
    with pytest.raises(ValueError, match=r"numpy\.nanquantile .* write it in operations of arrays"):
        labelled.quantile(0.5)
    with pytest.raises(ValueError, match=r"numpy\.einsum .* write @, transpose and sum \(xarray: of d\.data\)"):
        labelled @ labelled
    with pytest.raises(ValueError, match=r"Label the array .* DataArray: xarray\.DataArray\(A, dims=x\.dims\)"):
        a * labelled
    assert_bits((labelled * a).data.numbers, (a * a).numbers)
    windows = labelled.rolling(x=2).construct("window")
    assert_bits(windows.data[1].numbers, np.swapaxes(a.numbers, 0, 1))
    assert "(x, y) float64 32B BF16 4.0 1.0 0.30078125 3.0" in repr(xarray.Dataset({"a": labelled}))


def test_functions_of_numpy_and_scipy_do_not_compute_past_the_format_of_a_labelled_array(tmp_path):
    xarray, scipy = pytest.importorskip("xarray"), pytest.importorskip("scipy.linalg")
    labelled = xarray.DataArray(X, dims="t", coords={"t": [0, 1, 2]}, name="x")
    functions = (
        np.median,
        np.linalg.norm,
        np.round,
        np.diff,
        lambda x: np.clip(x, 0.1, 2),
        lambda x: np.quantile(x, 0.5),
    )
    for function in (*functions, scipy.norm, lambda x: x.interp(t=0.5), lambda x: x.interp(t=0.5, method="nearest")):
        with pytest.raises(ValueError, match=r"(numpy|scipy) would compute in float64, past the format"):
            function(labelled)
    assert np.allclose(labelled, X) and np.array_equal(labelled, X.numbers) and np.isclose(labelled, X).all()
    np.testing.assert_array_equal(labelled, X)
    assert labelled.to_series().tolist() == labelled.as_numpy().values.tolist() == X.numbers.tolist()
    labelled.to_netcdf(tmp_path / "x.nc", engine="scipy")
    assert xarray.load_dataarray(tmp_path / "x.nc", engine="scipy").values.tolist() == X.numbers.tolist()


def test_a_module_of_scikit_learn_does_not_compute_past_the_format():
    module = {"__name__": "sklearn.utils.validation", "asarray": np.asarray}
    exec("def check_array(x): return asarray(x)", module)  # importing the package takes two seconds
    with pytest.raises(ValueError, match=r"sklearn would compute in float64, past the format: .*np\.asarray"):
        module["check_array"](X)
    assert module["check_array"](np.asarray(X)).tolist() == X.numbers.tolist()


def test_pyarrow_and_csv_read_numbers():
    pyarrow = pytest.importorskip("pyarrow")
    text = io.StringIO()
    csv.writer(text).writerow(X)
    assert pyarrow.array(X).to_pylist() == X.tolist() == [float(number) for number in text.getvalue().split(",")]


def test_pandas_reads_arrays_and_does_not_compute_with_them():
    pandas = pytest.importorskip("pandas")
    values = X.numbers.tolist()
    assert pandas.Series(X).tolist() == values and pandas.DataFrame({"x": X})["x"].tolist() == values
    column = pandas.Series([1.0, 2.0, 0.3])
    assert sf.array(column, sf.BF16).numbers.tolist() == values == sf.round(column, sf.BF16).tolist()
    for operation in (lambda: column + X, lambda: X * column, lambda: pandas.DataFrame({"x": column}) - X):
        with pytest.raises(ValueError, match=r"got (Series|DataFrame); simfloat\.array\(x, 'BF16'\) rounds it"):
            operation()
    for table in (column, pandas.DataFrame({"x": column})):
        with pytest.raises(ValueError, match=r"past the format: for s \+= A write s\[:\] = np\.asarray"):
            table += X
    column[:] = np.asarray(sf.array(column, "BF16") + X)
    assert column.tolist() == (X + X).numbers.tolist()
    for product in (lambda: column @ X, lambda: pandas.DataFrame({"x": column}).T @ X):
        with pytest.raises(ValueError, match=r"pandas would compute in float64, past the format: .*np\.asarray"):
            product()
    assert (X + sf.array(column, sf.BF16)).format == sf.BF16


def test_matplotlib_draws_arrays():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    assert axes.plot(X, X)[0].get_ydata().tolist() == X.numbers.tolist()
    axes.hist(X)
    axes.errorbar(X, X, yerr=X)
    assert axes.pcolormesh(sf.array(np.eye(3), sf.E4M3)).get_array().sum() == 3
    axes.set_xlim(X[0], X[1])
    assert axes.get_xlim() == (1.0, 2.0)
