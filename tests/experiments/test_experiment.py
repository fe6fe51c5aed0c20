"""An experiment written by a newcomer: exactly the names that its files define."""

from pathlib import Path

import pytest

from experiments.experiment import Experiment
from experiments.options import Options
from simfloat.studies import findings_of
from simfloat.studies.verdicts import REPRODUCED

README = Path(__file__).parents[2] / "experiments" / "README.md"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes a package of so many files, whose name it gives."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(name, **files):
        folder = tmp_path / name
        folder.mkdir()
        for file, text in files.items():
            (folder / f"{file}.py").write_text(text, encoding="utf-8")
        return name

    return written


def test_the_example_of_the_readme_is_an_experiment_in_one_file(package, tmp_path):
    example = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    experiment = Experiment.of(package("half_sums", __init__=example))
    assert experiment.name == "half-sums" and experiment.question.endswith("?") and experiment.grid is None
    results = [experiment.run(job) for job in experiment.jobs(Options(seeds=5))]
    (found,) = findings_of(experiment.findings, results)
    assert found.verdict == REPRODUCED
    assert [row["seed"] for result in results for row in experiment.metrics(result)] == sorted([*range(1000, 1005)] * 2)
    for name, draw in experiment.drawings(results).items():
        draw(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="This experiment accepts no policy"):
        experiment.check(None)


def test_an_experiment_that_trains_has_problems_and_with_them_a_check_and_axes(package):
    jobs = (
        "from experiments.training import run_training\n"
        "from experiments.update_cancellation.problems import PROBLEMS\n"
        "def jobs(options): return []\n"
        "def run(job): return run_training(PROBLEMS, job)\n"
    )
    experiment = Experiment.of(package("trains", __init__='"""Does it?"""\nSEEDS = 7\n', jobs=jobs))
    assert experiment.seeds == 7 and experiment.findings([]) == []
    assert {"problem", "policy", "compute", "seed"} <= {axis.name for axis in experiment.grid.axes}


def test_missing_names_are_reported(package):
    with pytest.raises(ValueError, match="idle defines no jobs and no run; experiments/README.md says what they are"):
        Experiment.of(package("idle", __init__='"""Why?"""'))
