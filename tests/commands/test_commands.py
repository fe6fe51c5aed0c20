"""The commands that show numbers print the values of the library, and report a mistake in one line."""

import json

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.kernels.compile import cache
from simfloat.tools.commands import reveal
from tests.bits import FORMATS


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command line; its lines."""
    monkeypatch.setenv("COLUMNS", "100")

    def command(line):
        assert main(line.split()) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return command


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_every_format_is_shown(format, capsys):
    assert main(["show", repr(format)]) == 0
    shown = capsys.readouterr().out
    assert repr(format.max) in shown and repr(format.smallest_subnormal) in shown
    assert shown.startswith(f"{format} = {format!r}\n")


def test_a_format_is_shown_with_its_codes(run):
    lines = run("show e4m3")
    assert "bits             8: sign 1, exponent 4, mantissa 3, as s eeee mmm" in lines
    assert "max              448.0  0x7e" in lines and "smallest         2^-9 = 0.001953125  0x01" in lines
    assert "NaN              0x7f and 1 more" in lines and "zero             0x00, -0 is 0x80" in lines
    assert "1 and its neighbours  0.9375  0x37  0 0110 111" in lines
    assert run("show e2m1")[-2:] == [
        "0  0.0  | 2  1.0  | 4  2.0  | 6  4.0  | 8  -0.0 | a  -1.0 | c  -2.0 | e  -4.0",
        "1  0.5  | 3  1.5  | 5  3.0  | 7  6.0  | 9  -0.5 | b  -1.5 | d  -3.0 | f  -6.0",
    ]


@pytest.mark.parametrize("format", [f for f in FORMATS if f.bits <= 8], ids=str)
def test_small_formats_are_listed_whole(format, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    main(["show", repr(format)])
    listing = capsys.readouterr().out.rpartition("\n\n")[2]
    assert max(map(len, listing.splitlines())) <= 90
    cells = [cell.split() for line in listing.splitlines() for cell in line.split("|")]
    assert dict(cells) == {
        f"{code:0{-(-format.bits // 4)}x}": repr(float(sf.decode(code, format))) for code in range(2**format.bits)
    }


@pytest.mark.parametrize("format", [f for f in FORMATS if f.bits <= 16], ids=str)
def test_the_count_of_nan_is_the_count_of_their_codes(format, capsys):
    main(["show", repr(format)])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("NaN"))
    count = int(np.isnan(sf.decode(np.arange(2**format.bits), format)).sum())
    assert line.split()[1:] == (["none"] if count == 0 else [f"0x{sf.to_hex(np.nan, format)}", *_more(count - 1)])


def _more(count):
    return f"and {count} more".split() if count else []


def test_a_number_is_rounded_between_its_neighbours(run):
    assert run("round 0.1 FP16") == [
        "0.1 in FP16, rounded by nearest_even:",
        "",
        "        number            as a hexadecimal float  code    its bits            number - x",
        "below   0.09991455078125  0x1.994p-4              0x2e65  0 01011 1001100101  -1.4 ulp",
        "result  0.0999755859375   0x1.998p-4              0x2e66  0 01011 1001100110  -0.4 ulp",
        "above   0.10003662109375  0x1.99cp-4              0x2e67  0 01011 1001100111  +0.6 ulp",
    ]


@pytest.mark.parametrize(
    "line, result",
    [
        ("round 1.0000000000000000000000000001 E8M0 --rounding toward_positive", "2.0 0x1p+1 0x80 10000000 +1 ulp"),
        ("round 0x1.00000000000000000001p-25 FP16", "5.960464477539063e-08 0x1p-24 0x0001 0 00000 0000000001 +0.5 ulp"),
        ("round -1/3 bf16 --rounding toward_zero", "-0.33203125 -0x1.54p-2 0xbeaa 1 01111101 0101010 +0.666667 ulp"),
        ("round -inf e4m3fnuz", "nan nan 0x80 1 0000 000 -"),
        ("round 1e999 E4M3 --rounding nearest_even.saturating()", "448.0 0x1.cp+8 0x7e 0 1111 110 -12.1777 ulp"),
        ("round 65520 fp16", "inf inf 0x7c00 0 11111 0000000000 -"),
        ("round -0 e5m2", "-0.0 -0x0p+0 0x80 1 00000 00 exact"),
        ("round 1e-5000 e5m2", "0.0 0x0p+0 0x00 0 00000 00 -0 ulp"),
    ],
)
def test_numbers_are_read_exactly_and_rounded_by_the_definition(run, line, result):
    row = next(row for row in run(line) if row.startswith("result"))
    assert row.split()[1:] == result.split()


def test_info_prints_the_facts_that_a_bug_report_needs(run):
    lines = run("info")
    first = [line.split()[0] for line in lines]
    assert set(first) == {"simfloat", "Python", "NumPy", "Numba", "processor", "level", "floating", "threads"} | {
        "kernels",
        "native",
    }
    assert f"simfloat        {sf.__version__}" in lines and f"threads         {sf.get_threads()}" in lines
    places = cache.kernel_directories()
    rows = [line for line in lines if line.startswith("kernels")]
    assert [line.split(maxsplit=4)[-1] for line in rows] == [str(place) for place in places]


def test_info_without_a_place_for_kernels(run, monkeypatch):
    monkeypatch.setattr(cache, "SOURCE_DIGEST", "")
    assert any("kept nowhere" in line for line in run("info"))


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "simfloat: the following arguments are required: COMMAND"),
        ("sow FP16", "simfloat: argument COMMAND: invalid choice: 'sow'"),
        ("show fp61", "simfloat show: argument FORMAT: Unknown format 'fp61'. Nearest names: FP64"),
        ("round 1x fp16", "simfloat round: argument X: '1x' is not a number"),
        ("round 1 fp16 --rounding up", "argument --rounding: rounding must be a simfloat.Rounding"),
        ("round 1 fp16 --rounding stochastic()", "stochastic() needs random bits; its results are the"),
        ("round nan e2m1", "simfloat round: E2M1 has no NaN"),
        ("warmup --level x86-64-v9", "simfloat warmup: argument --level: level must be "),
    ],
)
def test_mistakes_are_one_line_and_exit_with_2(line, message, capsys):
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and message in printed.err and printed.err.count("\n") == 1


def test_the_orders_of_libraries_are_a_table_and_stored_with_versions(run, monkeypatch, tmp_path, capsys):
    halves = reveal.Sum("np.sum of float16", sf.FP16, lambda a, b: (a.astype(np.float16) * b.astype(np.float16)).sum())
    monkeypatch.setitem(reveal.LIBRARIES, "numpy", lambda: iter([halves]))
    lines = run(f"reveal numpy --terms 9 --out {tmp_path / 'orders.json'}")
    assert lines[0].split() == list(reveal.COLUMNS)
    assert lines[1].split() == ["np.sum", "of", "float16", "FP16", "numpy_sum(FP32,", "products=FP16)", "FP16"]
    record = json.loads((tmp_path / "orders.json").read_text())
    assert record["versions"]["numpy"] == np.__version__ and record["terms"] == 9
    assert record["sums"][0]["accumulator"] == "numpy_sum(FP32, products=FP16)"
    for libraries, code, words in (
        ("scipy", 2, "invalid choice: 'scipy'"),
        ("numpy --terms 1", 2, "an integer from 2 to 2048"),
    ):
        assert main(f"reveal {libraries}".split()) == code
        assert words in capsys.readouterr().err
    monkeypatch.setitem(reveal.LIBRARIES, "no_such_library", lambda: iter([]))
    assert main(["reveal", "no_such_library"]) == 1
    assert "needs no_such_library, which is not installed" in capsys.readouterr().err
