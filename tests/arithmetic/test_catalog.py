"""The catalog is complete: every row has all parts of an operation, and every operation has a row."""

import inspect
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import catalog, functions
from simfloat.arithmetic.catalog import CLASS_OF, FUNCTIONS, OPERATIONS, REPRESENTABLE
from simfloat.formats.exact_numbers import EXACT
from simfloat.kernels.elementwise import loops
from simfloat.simulation.formulas import slopes
from simfloat.tools.selftest import operations
from tests import typed_functions
from tests.bits import DETERMINISTIC, assert_bits

ROOT = Path(__file__).parents[2]

#: The rows of all public functions.
PUBLIC = FUNCTIONS | REPRESENTABLE

COMMON = ["format", "rounding", "stream", "observer", "flags", "out"]


def test_every_row_says_what_it_is():
    assert all(row.kind in get_args(catalog.Kind) and row.meaning.endswith(".") for row in OPERATIONS.values())
    assert all(row.operands and len(set(row.operands)) == len(row.operands) for row in OPERATIONS.values())
    assert CLASS_OF["softmax"] == "composite" and CLASS_OF["conv2d"] == "contraction"
    assert [row.name for row in OPERATIONS.values() if row.computes] == ["update"]


def test_every_computed_row_has_a_kernel_and_every_kernel_a_row():
    computed = {row.computes or row.name for row in OPERATIONS.values() if row.accuracy}
    for table in (loops.exact_results, loops.paired_results):
        assert set(table) == computed
    assert set(loops.double_results) == computed - set(loops.native_results)


def test_every_function_has_the_names_that_its_row_says():
    """NumPy's and PyTorch's names are found by those of rows, and derivatives by functions or by their names."""
    assert all(callable(getattr(np, row.numpy)) for row in FUNCTIONS.values() if row.numpy)
    for row in FUNCTIONS.values():
        for slope in row.slopes or (row.name,):
            assert callable(slope) or callable(getattr(slopes, slope)), row.name
        assert len(row.slopes or (row.name,)) == len(row.operands) and row.reads in get_args(catalog.Reads)
        assert row.value is not None or row.name in EXACT
        if len(row.operands) == 1:
            assert len(row.specials) == len(operations.SPECIALS)


def test_every_function_of_pytorchs_has_the_rule_of_its_row():
    aten, rules = pytest.importorskip("torch").ops.aten, pytest.importorskip("simfloat.torch.search").RULES
    reached = {
        name: [one for one in (name, f"special_{name}", row.torch) if one in rules and hasattr(aten, one)]
        for name, row in FUNCTIONS.items()
    }
    # Sums, products and quotients have rules of their own, by other names; PyTorch lacks the others without a rule.
    missing = [row for name, row in FUNCTIONS.items() if not reached[name]]
    assert all(row.accuracy == "exact" or not hasattr(aten, row.name) for row in missing)
    assert all(hasattr(aten, row.torch) for row in FUNCTIONS.values() if row.torch)
    del reached["hypot"]  # a formula of several operations in PyTorch
    for name, theirs in reached.items():
        assert {rules[one].operation for one in theirs} <= {name, "gelu_tanh"}


def test_the_specification_names_every_function():
    text = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
    listed = re.search(r"^round, add.*?\n\n", text, re.MULTILINE | re.DOTALL).group()
    exact, elementary = re.split(r"round the exact result once\.", listed)
    for row in PUBLIC.values():
        place = exact if row.accuracy in ("exact", "representable") else elementary
        assert re.search(rf"\b{row.name}\b", place), row.name


def test_type_checkers_know_every_function():
    told = typed_functions.PATH.read_text(encoding="utf-8")
    assert told == typed_functions.text(), "python -m tests.typed_functions writes what type checkers read"


def test_every_function_is_public():
    own = {name for name, value in vars(functions).items() if getattr(value, "__module__", None) == functions.__name__}
    assert {name for name in own if not name.startswith("_") and callable(getattr(functions, name))} == set(PUBLIC)
    for name in PUBLIC:
        assert getattr(sf, name) is getattr(sf.arithmetic, name) is getattr(functions, name)
        assert name in sf.__all__ and name in sf.arithmetic.__all__


def test_every_function_has_one_signature_and_the_documentation_of_its_row():
    for name, row in PUBLIC.items():
        function = getattr(sf, name)
        parameters = inspect.signature(function).parameters
        assert list(parameters) == [*row.operands, *COMMON]
        assert parameters["rounding"].default is sf.nearest_even
        assert parameters["stream"].kind is parameters["observer"].kind is inspect.Parameter.KEYWORD_ONLY
        assert function.__name__ == function.__qualname__ == name
        assert function.__doc__.lower().startswith(f"return {row.meaning.lower()}")
        assert max(map(len, function.__doc__.splitlines())) <= 120


def test_every_function_is_part_of_the_selftest():
    assert set(FUNCTIONS) == {*operations.PAIRS, "fma", "power", "atan2", "zeta", *operations.UNARY_FUNCTIONS}


def test_every_function_of_several_operands_agrees_with_mpfr(gmpy2):
    from tests import mpfr

    for name in sorted(mpfr.ORACLES.keys() - mpfr.UNARY.keys()):  # the others: test_functions.py
        rng = np.random.default_rng(20261121)
        count = len(FUNCTIONS[name].operands)
        operands = sf.round(rng.standard_normal((count, 300)) * 2.0 ** rng.integers(-6, 6, (count, 300)), sf.BF16)
        exact = mpfr.to_odd(mpfr.ORACLES[name], *operands)
        for rounding in DETERMINISTIC:
            assert_bits(getattr(sf, name)(*operands, sf.FP16, rounding), sf.round(exact, sf.FP16, rounding), *operands)


def test_operands_are_named_in_messages():
    with pytest.raises(ValueError, match="c must hold real numbers"):
        sf.fma(1.0, 2.0, "x", sf.FP16)
    with pytest.raises(ValueError, match="x must hold real numbers"):
        sf.exp("x", sf.FP16)
    assert sf.power(a=np.float32(2), b=np.float32(3), format="half") == 8.0


def test_calls_that_are_prepared_once_keep_formats_modes_and_operand_types_apart():
    third = np.float32(1) / np.float32(3)
    for _ in range(2):
        assert sf.add(third, 0.0, "bf16") == sf.add(third, 0.0, sf.BF16) == sf.round(third, sf.BF16)
        assert sf.add(third, 0.0, sf.FP16, sf.toward_positive) > sf.add(third, 0.0, sf.FP16)
        assert sf.add(third, np.float32(0), "half").dtype == np.float32
        assert sf.add(third, 0.0, np.float16).dtype == np.float64
        assert sf.add(third, 1.0, sf.FP64) == np.float64(third) + 1.0


def test_an_invalid_format_or_mode_is_refused_however_often():
    rows = [(format, sf.nearest_even, "A format is a simfloat.Format") for format in ([sf.FP16], {}, None)]
    rows += [(sf.FP16, rounding, "rounding must be a simfloat.Rounding") for rounding in ([sf.nearest_even], "nearest")]
    for format, rounding, message in rows * 2:
        with pytest.raises(ValueError, match=message):
            sf.add(1.0, 1.0, format, rounding)
