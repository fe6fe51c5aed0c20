"""Sweeps of a user's function: every combination, none computed twice, whatever interrupts the program."""

import copy
import csv
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from uuid import SafeUUID

import numpy as np
import pytest
from pyarrow.parquet import read_table

import simfloat as sf
from simfloat.studies.report import function_digest
from simfloat.studies.stored import as_plain, from_plain, label_of
from tests.studies.functions import dies_once, error

ROOT = Path(__file__).parents[2]


@dataclass
class Options:
    lr: list


def test_the_table_has_all_combinations_the_last_axis_fastest():
    table = sf.studies.sweep(lambda a, b: {"sum": a + b}, {"a": [1, 2], "b": range(2)})
    assert table.rows == [{"a": a, "b": b, "sum": a + b} for a in (1, 2) for b in (0, 1)]
    assert table.axes == ("a", "b") and table.columns == ("a", "b", "sum") and table["sum"] == [1, 2, 2, 3]
    assert table.where(a=2)["sum"] == [2, 3] and len(table[1:3]) == 2 and table[-1]["sum"] == 3


def test_formats_accumulators_policies_numbers_and_texts_arrive_as_they_were_given():
    policy = sf.Policy(compute=sf.E4M3, name="mine").override("head", compute=sf.BF16)
    scaled = sf.cast(sf.E4M3, scale=sf.block(32, sf.E8M0))
    made = [sf.E4M3, sf.Format(3, 2), sf.kahan(sf.FP16), sf.exact, sf.tensor_core("hopper"), sf.stochastic(bits=4)]
    values = [*made, scaled, policy, 0.1, 7, True, None, "bf16", np.float64(0.5)]
    met = []
    sf.studies.sweep(lambda given: met.append(given) or 0, {"given": values})
    assert met == values and [type(one) for one in met[:-1]] == [type(one) for one in values[:-1]]
    assert [label_of(value) for value in values[:1] + values[7:]] == ["E4M3", "mine", 0.1, 7, True, None, "bf16", 0.5]


def test_values_are_plain_on_the_way():
    assert as_plain(sf.E4M3) == {"made": "E4M3"} and as_plain(np.int64(3)) == 3
    blocked = sf.blocked(32, inner=sf.FP16, outer=sf.FP32)
    assert from_plain(as_plain(blocked)) == blocked
    with pytest.raises(ValueError, match=r"takes formats, accumulators, roundings, policies, .* of type object"):
        as_plain(object())


def test_rows_are_selected_by_values_as_they_were_given_and_by_their_labels():
    axes = {"format": [sf.BF16, sf.FP16], "accumulate": [sf.exact, sf.sequential(sf.FP16)], "x": [math.nan, 0.5]}
    table = sf.studies.sweep(lambda format, accumulate, x: 1.0, axes)
    for found in (table.where(format=sf.FP16), table.where(format="FP16"), table.where(accumulate=sf.exact),
                  table.where(x=math.nan), table.where(x=0.5)):  # fmt: skip
        assert len(found) == 4


def test_values_may_have_labels_of_their_own():
    table = sf.studies.sweep(lambda policy: policy.compute.bits, {"policy": {"wide": sf.policies["fp32"]}})
    assert table.rows == [{"policy": "wide", "value": 32}]


def test_with_a_folder_no_point_is_computed_twice(tmp_path):
    met = []

    def function(seed):
        met.append(seed)
        return seed / 3

    first = sf.studies.sweep(function, {"seed": [0, 1]}, folder=tmp_path)
    second = sf.studies.sweep(function, {"seed": [1, 2, 0]}, folder=tmp_path)
    assert met == [0, 1, 2] and second["value"] == [1 / 3, 2 / 3, 0.0] and first["value"] == [0.0, 1 / 3]
    with (tmp_path / "sweep.csv").open(newline="") as file:
        assert [row["value"] for row in csv.DictReader(file)] == [repr(1 / 3), repr(2 / 3), "0.0"]
    assert read_table(tmp_path / "sweep.parquet").to_pylist() == second.rows


def test_another_function_is_computed_again(tmp_path):
    def make(factor):
        return lambda seed: factor * seed

    tables = [sf.studies.sweep(make(factor), {"seed": [1]}, folder=tmp_path) for factor in (2, 3, 2)]
    assert [table["value"] for table in tables] == [[2], [3], [2]]
    digests = {function_digest(make(2)), function_digest(make(2)), function_digest(make(3))}
    assert len(digests) == 2
    met = []
    before = function_digest(lambda: met.append(1))
    met.append(1)
    assert function_digest(lambda: met.append(1)) == before, "a list may change between two points"


@pytest.mark.parametrize("one, other", [
    (sf.sequential(sf.FP16), sf.sequential(sf.BF16)), (sf.nearest_even, sf.toward_zero),
    (sf.cast(sf.E4M3), sf.cast(sf.E5M2)), (sf.block(32, sf.E8M0), sf.block(16, sf.E8M0)),
    (np.ones(3), np.array([1, 1, 2.0])), (np.float32(0.1), np.float32(0.2)), (np.float32, np.float64),
    (np.dtype("f4"), np.dtype("f8")), (sf.optim.SGD, sf.optim.Adam), (np.sin, np.cos), (math.sin, math.cos),
    (sf.policies["fp32"], sf.policies["fp32"].override("head", compute=sf.BF16)), (Fraction(1, 3), Fraction(1, 2)),
    (Path("a"), Path("b")), (SafeUUID.safe, SafeUUID.unsafe), (SimpleNamespace(lr=0.1), SimpleNamespace(lr=0.2)),
    ([1, [2]], [1, [3]]), ({"lr": {"head": 1}}, {"lr": {"head": 2}}), ({1, 2}, {1, 3}), ((1,), [1]),
    (sf.array([1, 2], sf.FP16), sf.array([1, 2], sf.BF16)), (np.zeros(2000), np.arange(2000) % 2000 // 1000 * 1.0),
    (Options([0.1]), Options([0.2])), (partial(max, [1]), partial(max, [2])),
], ids=str)  # fmt: skip
def test_a_function_that_uses_another_value_is_another_function(one, other):
    def make(value):
        return lambda seed: value

    same = function_digest(make(copy.deepcopy(one)))
    assert function_digest(make(one)) == same != function_digest(make(other))
    assert function_digest(partial(max, one)) != function_digest(partial(max, other))


def test_functions_that_are_met_again_are_distinguished_and_wrapped_ones_are_those_inside():
    def make(value):
        return lambda seed: value

    one, other, itself = lambda seed: 1, lambda seed: 2, [1]
    itself.append(itself)
    assert function_digest(make((one, other, one))) != function_digest(make((one, other, other)))
    assert function_digest(make(cache(one))) == function_digest(make(cache(one))) != function_digest(make(cache(other)))
    assert function_digest(make(itself)) != function_digest(make([1]))


def test_a_list_in_a_notebooks_function_is_part_of_it(tmp_path):
    sizes, met = [3, 4], []

    def function(k):
        met.append(k)
        return 2 * sizes[k]

    for want in ([6, 8], [6, 80], [6, 80]):
        assert sf.studies.sweep(function, {"k": [0, 1]}, folder=tmp_path)["value"] == want
        sizes[1] = 40
    assert met == [0, 1, 0, 1], "the third time nothing is computed"


def test_a_function_of_another_class_or_with_another_number_deep_inside_is_another_function():
    def make(factor):
        class Model:
            def run(self, seed):
                return factor * seed

        program = {"__name__": "__main__", "factor": factor}
        exec("def function(seed):\n    def inner():\n        return factor * seed\n    return inner()", program)
        return [lambda seed: Model().run(seed), Model().run, program["function"]]

    for one, again, other in zip(make(2), make(2), make(3), strict=True):
        assert function_digest(one) == function_digest(again) != function_digest(other)


def test_processes_give_the_table_that_this_one_gives(tmp_path):
    axes, scale = {"format": [sf.BF16, sf.E4M3], "seed": range(2)}, 2.0
    here = sf.studies.sweep(error, axes)
    moved = sf.studies.sweep(lambda format, seed: scale * error(format, seed), axes, workers=2, folder=tmp_path)
    assert moved["value"] == [2 * value for value in here["value"]]
    assert [row["format"] for row in moved] == [row["format"] for row in here]


def test_a_process_that_dies_is_replaced(tmp_path):
    table = sf.studies.sweep(dies_once, {"folder": [str(tmp_path)], "seed": range(4)}, workers=2)
    assert table["value"] == [0, 1, 4, 9]


PROGRAM = """
import os, pathlib, signal, sys
import simfloat as sf
def count(seed):
    with open({log!r}, "a") as file:
        file.write(f"{{seed}} ")
    if seed == 2 and len(pathlib.Path({log!r}).read_text().split()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return seed
print(sf.studies.sweep(count, {{"seed": range(4)}}, folder={folder!r})["value"])
"""


def test_a_program_that_is_killed_continues_from_there(tmp_path):
    program = PROGRAM.format(log=str(tmp_path / "log"), folder=str(tmp_path / "out"))
    runs = [
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [-9, 0], runs[1].stderr
    assert runs[1].stdout == "[0, 1, 2, 3]\n" and (tmp_path / "log").read_text() == "0 1 2 2 3 "


@pytest.mark.parametrize("axes, message", [
    ({}, r"axes must be a dictionary such as \{\"format\": \[sf.BF16\], \"seed\": range\(5\)\}, got \{\}"),
    ({"seed": "12"}, r"The axis seed must be a list of values, got '12'; use \['12'\]"),
    ({"seed": 5}, "The axis seed must be a list of values, got 5"),
    ({"seed": []}, "The axis seed has no values"),
    ({"seed": [1, 1.0]}, "The axis seed has two values that are called 1.0"),
    ({"sed": [1]}, r"<lambda>\(seed\) cannot be called with the axes"),
    ({"seed": range(100_001)}, "100001 points, more than 100000"),
])  # fmt: skip
def test_an_invalid_axis_is_refused_before_any_work(axes, message):
    with pytest.raises(ValueError, match=message):
        sf.studies.sweep(lambda seed: seed, axes)


def test_invalid_functions_and_executors_of_a_sweep_are_refused():
    with pytest.raises(ValueError, match="Pass either workers, .* or scheduler, .* got both"):
        sf.studies.sweep(error, {"format": [sf.BF16], "seed": [1]}, workers=2, scheduler="tcp://node:1")
    with pytest.raises(ValueError, match="workers must be a number of processes, 1 or more, got 0"):
        sf.studies.sweep(error, {"format": [sf.BF16], "seed": [1]}, workers=0)
    with pytest.raises(ValueError, match="takes a function"):
        sf.studies.sweep(5, {"seed": [1]})
    with pytest.raises(ValueError, match="the address of a Dask scheduler, such as 'tcp://node:8786', got 8786"):
        sf.studies.sweep(error, {"format": [sf.BF16], "seed": [1]}, scheduler=8786)
    for call in (
        lambda: sf.studies.sweep(error, {"format": [sf.BF16], "seed": [1]}, folder=""),
        lambda: sf.studies.report(""),
    ):
        with pytest.raises(ValueError, match="A path is text or a pathlib.Path, got ''"):
            call()


@pytest.mark.parametrize(
    "returned, message",
    [([1, 2], "must return a number, or a dictionary"), ({"seed": 1}, "an axis"), (None, "got None: add a return")],
)
def test_results_are_numbers_or_dictionaries_of_them(returned, message):
    with pytest.raises(sf.studies.JobError, match=rf"The job of <lambda>\(seed=1\) failed: .*{message}"):
        sf.studies.sweep(lambda seed: returned, {"seed": [1]})


def test_whatever_a_function_raises_names_its_point_here_as_in_other_processes():
    with pytest.raises(sf.studies.JobError, match=r"<lambda>\(seed=0\) failed: ZeroDivisionError: .*zero") as caught:
        sf.studies.sweep(lambda seed: 1 // seed, {"seed": [0]})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_page_has_the_table_the_question_and_the_limits_that_lie_beside(tmp_path):
    (tmp_path / "README.md").write_text("# Mine\n\n**Source.** A [paper](https://a.b/c).\n\n## Limits\n\nOne `seed`.\n")
    sf.studies.sweep(error, {"format": [sf.BF16], "seed": [1]}, folder=tmp_path)
    page = sf.studies.report(tmp_path).read_text()
    assert "How far does rounding reach?" in page and "<td>BF16</td>" in page
    assert "<h3>Limits</h3>\n<p>One seed.</p>" in page and "<p>A paper (https://a.b/c).</p>" in page


def test_a_column_of_numbers_and_texts_is_written_too(tmp_path):
    def function(block):
        return {"loss": 1.5 if block == 32 else "diverged"}

    table = sf.studies.sweep(function, {"block": [32, "none"]}, folder=tmp_path)
    assert table["loss"] == [1.5, "diverged"] and table["block"] == [32, "none"]
    stored = sf.studies.read_stored(tmp_path / "sweep.parquet")
    assert stored == [{"block": "32", "loss": "1.5"}, {"block": "none", "loss": "diverged"}]


def test_a_table_in_a_file_has_the_axes_of_its_sweep(tmp_path):
    def loss(policy, lr, seed):
        return (1 + lr) * (1 + seed / 10) * (1.2 if policy == "fp8" else 1.0)

    axes = {"policy": ["fp32", "fp8"], "lr": [0.1, 0.2], "seed": range(4)}
    table = sf.studies.sweep(loss, axes, folder=tmp_path)
    table.to_parquet(tmp_path / "own.parquet")
    wanted = sf.studies.compare(table, "value").rows
    for name in ("sweep.parquet", "own.parquet"):
        assert sf.studies.compare(tmp_path / name, "value").rows == wanted and len(wanted) == 2


def test_a_table_is_an_arrow_stream(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    rows = [{"format": "E4M3", "loss": 0.1, "steps": 3}, {"format": "BF16", "loss": float("inf"), "steps": None}]
    table = pyarrow.table(sf.studies.StudyTable(rows, axes=["format"]))
    assert table.to_pylist() == rows and table.schema.metadata == {b"simfloat.axes": b'["format"]'}


@pytest.mark.parametrize("content", [b"", b"policy,loss\nfp32,1\n", b"PAR1", b"\x80\x04K\x01."])
def test_an_invalid_table_is_refused_by_name(tmp_path, content):
    path = tmp_path / "table.parquet"
    with pytest.raises(FileNotFoundError, match="There is no such file: .*table.parquet"):
        sf.studies.compare(path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"table\.parquet is not a Parquet file of a table: "):
        sf.studies.compare(path)
    with pytest.raises(ValueError, match=r"is a folder; give the Parquet file of a table, such as .*sweep\.parquet"):
        sf.studies.compare(tmp_path)


@pytest.mark.parametrize("name", ["to_csv", "to_parquet"])
def test_a_missing_folder_of_a_table_is_named(tmp_path, name):
    table = sf.studies.StudyTable([{"seed": 0}])
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*/missing, make it first: '.*/missing/"):
        getattr(table, name)(tmp_path / "missing" / "table")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"/file is a file, and no folder: '.*/file/table'"):
        getattr(table, name)(tmp_path / "file" / "table")


@pytest.mark.parametrize("summary, message", [
    ('{"experiment": "g"}', r"sweep\.json belongs to the function 'g', not to 'f'\. Choose another folder, or remove"),
    ("[1]", r"sweep\.json is not a summary of a study, and would be overwritten"),
    ("a text", r"sweep\.json is not a summary"), ("", r"sweep\.json is not a summary"),
    (None, r"sweep\.csv exists already, and was not written by a study of simfloat"),
])  # fmt: skip
def test_nothing_that_the_function_has_not_made_is_written_over(tmp_path, summary, message):
    def f(seed):
        return seed

    (tmp_path / "sweep.csv").write_text("mine")
    if summary is not None:
        (tmp_path / "sweep.json").write_text(summary)
    with pytest.raises(ValueError, match=message):
        sf.studies.sweep(f, {"seed": [1]}, folder=tmp_path)
    assert (tmp_path / "sweep.csv").read_text() == "mine"
    (tmp_path / "sweep.json").write_text('{"experiment": "f"}')
    assert sf.studies.sweep(f, {"seed": [1]}, folder=tmp_path)["value"] == [1]
    (tmp_path / "sweep.json").unlink()
    assert sf.studies.sweep(f, {"seed": [1]}, folder=tmp_path)["value"] == [1], "as after kill -9"


def test_a_search_takes_no_kept_result_of_another_kind_and_writes_over_no_policy(tmp_path):
    def train(policy, seed):
        return 1.0 + 0.001 * (policy.recipe().activations.precision < 8)

    options = {"parts": ["activations"], "formats": (sf.E4M3,), "seeds": range(3)}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "policy.toml").write_text("mine")
    with pytest.raises(ValueError, match=r"policy\.toml exists already, and was not written by a study of simfloat"):
        sf.search(train, **options, folder=tmp_path / "mine")
    assert (tmp_path / "mine" / "policy.toml").read_text() == "mine"
    want = sf.search(train, **options, folder=tmp_path / "out").label
    for path in (tmp_path / "out" / ".simfloat-search").glob("*.json"):
        kept = json.loads(path.read_text())
        path.write_text(json.dumps({**kept, "result": {"losses": [1]}}))
    assert sf.search(train, **options, folder=tmp_path / "out").label == want


@pytest.mark.parametrize("other", [[], [1], "a", 3, None, {"a": [{}]}, {"a": {"b": None}}], ids=str)
def test_a_page_names_what_is_of_another_kind_and_shows_the_rest(tmp_path, other):
    sf.studies.sweep(error, {"format": [sf.BF16], "seed": [1]}, folder=tmp_path / "good")
    good = json.loads((tmp_path / "good" / "sweep.json").read_text())
    for name in good:
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").write_text(json.dumps({**good, name: other}))
        (tmp_path / name / "sweep.csv").write_text("seed,value\n1,2\n")
    for number, content in enumerate((b"", b"\x00", b'"', b"\xff\xfe")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "sweep.json").write_text(json.dumps(good))
        (tmp_path / str(number) / "sweep.csv").write_bytes(content)
    assert "How far does rounding reach?" in sf.studies.report(tmp_path).read_text()
