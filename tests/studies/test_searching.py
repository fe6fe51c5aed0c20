"""The search: known answers, few trainings, fresh seeds for the verdict, the same answer after interruptions."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import simfloat as sf
from simfloat.policy.policy import as_policy
from simfloat.studies.statistics import cheapest_choices, is_narrower
from tests.studies.known_answers import ADDED, additive, trained_line

ROOT = Path(__file__).parents[2]
FORMATS = (sf.E4M3, sf.E5M2, sf.BF16, sf.FP16)
PARTS = ["compute", "activations", "weights"]


def counted(train):
    """The same training, and the list of all that it was called with."""
    calls = []

    def counting(policy, seed):
        calls.append((policy, seed))
        return train(policy, seed)

    return counting, calls


def cheapest(table, within=0.01, formats=FORMATS, way=sum):
    """The bits of the cheapest of all combinations that are within the share, found by trying them all."""
    names = ["FP32", *(format.name for format in formats)]
    return min(
        sum(sf.as_format(name).bits for name in chosen)
        for chosen in itertools.product(names, repeat=len(table))
        if way([table[part].get(name, 0.0) for part, name in zip(table, chosen, strict=True)]) <= within
    )


def test_the_answer_is_that_of_all_combinations_with_a_tenth_of_their_trainings():
    train, calls = counted(additive)
    found = sf.search(train, parts=PARTS)
    assert found.cost == cheapest(ADDED) == 40 and found.reference_cost == 96
    assert found.label == "compute=E5M2, activations=FP16, weights=FP16"
    assert [getattr(found.policy.recipe(), role) for role in PARTS] == [sf.E5M2, sf.FP16, sf.FP16]
    assert found.combinations == 125 and len(calls) == found.trainings <= 125 * 5 / 10


#: How errors of parts add up: to their sum, to more, to the root of the sum of their squares, to the largest.
WAYS = {
    "sum": sum,
    "product": lambda errors: math.prod(1 + error for error in errors) - 1,
    "squares": lambda errors: math.sqrt(sum(error**2 for error in errors)),
    "largest": max,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2))
def test_answers_of_random_tables_are_those_of_all_combinations(seed, way):
    rng = np.random.default_rng(seed)
    roles = ["compute", "compute_gradients", "activations", "weights"]
    table = {role: {f.name: float(10 ** rng.uniform(-4, -0.5)) for f in FORMATS} for role in roles}

    def loss(policy):
        recipe = policy.recipe()
        return 1 + WAYS[way]([table[role].get(getattr(recipe, role).name, 0.0) for role in roles])

    train, calls = counted(lambda policy, seed: loss(policy) * (2 + seed))
    found = sf.search(train, parts=roles)
    assert found.cost == cheapest(table, way=WAYS[way]) and len(calls) <= 5**4 * 5 / 10


def test_noise_that_hides_the_share_costs_no_more_than_a_tenth_of_all_trainings_and_one_look_more():
    def train(policy, seed):
        recipe = policy.recipe()
        narrow = sum(getattr(recipe, role).bits << 6 * place for place, role in enumerate(PARTS))
        return math.exp(0.05 * np.random.default_rng([narrow, seed]).standard_normal())

    found = sf.search(train, parts=PARTS)
    assert found.trainings <= 20 * 5 + 2 * 20 and found.confirmation.high <= 1.01


def test_parts_that_are_bad_only_together_are_found():
    def train(policy, seed):
        recipe = policy.recipe()
        narrow = [role for role in PARTS if getattr(recipe, role).bits == 8]
        return 1.0 + 0.5 * (len(narrow) > 1)

    found = sf.search(train, parts=PARTS)
    assert found.cost == 8 + 16 + 16 and found.trainings <= 62


def test_losses_that_add_up_to_less_than_their_sum_are_used():
    """Each part alone costs 0.8 %, all together 0.9 %."""
    train, calls = counted(lambda policy, seed: 1 + 0.01 * min(0.9, 0.8 * sum(
        getattr(policy.recipe(), role).bits == 8 for role in PARTS)))  # fmt: skip
    found = sf.search(train, parts=PARTS)
    assert found.cost == 24 and len(calls) == 2 * 2 + 2 * 5, "all at once, first; no part needs to be tried alone"


def test_one_diverged_training_excludes_a_policy_as_it_excludes_the_margin_in_a_comparison():
    def train(policy, seed):
        weights = policy.recipe().weights
        return math.nan if weights.bits == 8 and seed == diverging else 1 + seed / 10

    for diverging in (1, 9):  # in the search, and in the confirmation
        found = sf.search(train, parts=["weights"], formats=(sf.E4M3, sf.BF16), seeds=range(8))
        (narrow,) = (point for point in found.points if point.label == "weights=E4M3")
        assert found.label == "weights=BF16"
        assert (narrow.outcome, narrow.seeds) == (("diverged", 2) if diverging == 1 else ("within", 2))
        policies = {"fp32": as_policy("fp32", "search"), "narrow": narrow.policy}
        rows = [
            {"policy": name, "seed": seed, "loss": train(policy, seed)}
            for name, policy in policies.items()
            for seed in range(16)
        ]
        (row,) = sf.studies.compare(rows)
        assert row.diverged == 1 and row.word not in ("equal", "worse within the margin")


def test_the_verdict_is_on_seeds_that_the_search_did_not_use():
    def train(policy, seed):  # what looks good on the seeds of the search alone
        weights = policy.recipe().weights
        return 1 + 0.02 * (weights.bits < 16 and (weights != sf.E4M3 or seed >= 5))

    found = sf.search(train, parts=["weights"])
    assert found.label == "weights=BF16" and min(found.confirmation.seeds) >= 5
    assert found.confirmation.high <= 1.01 and found.points[1].outcome == "within"


def test_a_policy_that_cannot_be_confirmed_is_not_the_answer():
    def train(policy, seed):
        return 1 + (0.3 * (seed % 2) * (seed >= 5) if policy.recipe().weights.bits < 32 else 0)

    found = sf.search(train, parts=["weights"])
    assert found.label == "fp32" and found.policy == sf.policies["fp32"] and found.cost == found.reference_cost


def test_a_close_policy_gets_more_seeds_than_a_distant_one():
    def train(policy, seed):
        return 1 + {8: 0.5, 16: 0.004 + 0.003 * (seed % 3)}.get(policy.recipe().weights.bits, 0)

    found = sf.search(train, parts=["weights"])
    seeds = {point.label: point.seeds for point in found.points}
    assert seeds["weights=E4M3"] == 1 < seeds["weights=BF16"] <= 5
    assert math.isinf(found.points[1].high) and found.points[-1].high < 1.02


def test_the_front_has_the_points_that_no_other_one_beats():
    found = sf.search(additive, parts=PARTS)
    costs, ratios = zip(*((point.cost, point.ratio) for point in found.front), strict=True)
    assert list(costs) == sorted(costs) and list(ratios) == sorted(ratios, reverse=True)
    for point in found.points:
        assert any(best.cost <= point.cost and best.ratio <= point.ratio for best in found.front)
    assert found.front[-1].label == "fp32" and all(point.low <= point.ratio <= point.high for point in found.front)
    assert "the answer" in str(found.table()) and "costs 0.417 of fp32's 96" in str(found)


def test_a_training_is_searched_by_its_layers_where_no_parts_are_given():
    found = sf.search(trained_line, seeds=range(2), formats=[sf.BF16], within=0.2)
    labels = " ".join(point.label for point in found.points)
    assert "0=BF16" in labels and "1=BF16" in labels and "optimizer_state=BF16" in labels
    assert found.combinations == 2**5 and found.cost < found.reference_cost


def test_a_start_is_changed_where_it_is_wider_and_stays_elsewhere():
    found = sf.search(additive, start=sf.policies["fp32"].override("head", compute=sf.FP64), parts=["compute"])
    assert found.policy.overrides and found.label == "compute=E5M2", "of formats that cost the same the better one"
    with pytest.raises(
        ValueError, match=r"under start is 1.554 times the loss of the reference, .* start from a wider"
    ):
        sf.search(additive, start=sf.Policy(compute=sf.E4M3), parts=["compute"], formats=["E3M2"])


def test_a_policy_that_cannot_be_had_is_refused_and_the_search_continues():
    def train(policy, seed):
        if policy.recipe().weights.bits == 8:
            raise ValueError("no such weights")
        return 1.0

    found = sf.search(train, parts=["weights"])
    assert found.label == "weights=BF16" and "refused" in {point.outcome for point in found.points}
    assert found.answer.endswith(" Refused: weights=E4M3; weights=E5M2: no such weights")


def test_a_part_that_the_training_does_not_have_is_reported():
    found = sf.search(trained_line, parts=["activation"], seeds=range(2), formats=[sf.BF16])
    assert "Refused: activation=BF16: Override 'activation' matches no layer and no parameter. " in repr(found)


PROGRAM = """
import os, signal, sys
import simfloat as sf
from tests.studies.known_answers import additive

def train(policy, seed):
    with open(sys.argv[2], "a") as file:
        file.write("x")
    if os.path.getsize(sys.argv[2]) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return additive(policy, seed)

found = sf.search(train, parts=["compute", "activations", "weights"], folder=sys.argv[1])
print(found.label, found.confirmation, [point[2:] for point in found.points], found.trainings)
"""


def searched(folder, log, kill_at):
    program = [sys.executable, "-c", PROGRAM, str(folder), str(log), str(kill_at)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=200)


def test_a_search_that_is_killed_gives_the_same_answer_and_trains_nothing_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["-c", str(tmp_path / "a"), str(tmp_path / "log-a"), "0"])
    exec(PROGRAM, {"__name__": "__main__"})
    want = capsys.readouterr().out
    killed = searched(tmp_path / "b", tmp_path / "log-b", 17)
    again = searched(tmp_path / "b", tmp_path / "log-b", 0)
    assert killed.returncode == -9 and again.returncode == 0, again.stderr
    assert again.stdout == want
    assert len((tmp_path / "log-b").read_text()) == len((tmp_path / "log-a").read_text()) + 1
    for name in ("search.csv", "policy.toml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    # Matplotlib's state in this process, which other tests change, shows in the bytes of the pictures.
    assert {"front.png", "front.pdf"} <= {path.name for path in (tmp_path / "b").iterdir()}
    assert json.loads((tmp_path / "b" / "search.json").read_text())["config"]["answer"].startswith("compute=E5M2")
    assert "within 1 % of fp32&#39;s" in sf.studies.report(tmp_path / "b").read_text()


def test_processes_give_the_same_answer():
    options = {"parts": ["compute"], "formats": [sf.E4M3], "seeds": range(2)}
    here, there = (sf.search(additive, **options, workers=workers) for workers in (None, 1))
    assert here == there


@pytest.mark.parametrize(
    "options, message",
    [
        ({"within": 0}, "within must be a positive number, such as 0.01 for one percent more loss; got 0"),
        ({"within": 10**400}, "within must be a positive number, .* got an integer of 1329 bits"),
        ({"seeds": [1]}, "seeds must be two or more different integers from 0"),
        ({"seeds": [[1], [2]]}, "seeds must be two or more different integers from 0"),
        ({"parts": []}, "parts is empty"),
        ({"parts": "weights"}, r"parts must be a list of parts, got the text 'weights'; give \['weights'\]"),
        ({"parts": 5}, "parts must be a list of parts, got 5"),
        ({"parts": ["weights", "weights"]}, "The part weights is given twice"),
        ({"parts": [("head", "wieghts")]}, "'wieghts' is not a role with a format. .*Did you mean 'weights'"),
        ({"parts": [5]}, "A part is a role such as"),
        ({"formats": ["fp32"]}, "No part has a format that is cheaper than its own"),
        ({"formats": "bf16"}, "formats must be a list of formats, got 'bf16'"),
        ({"formats": sf.BF16}, "formats must be a list of formats, got Format"),
        ({"folder": ""}, "A path is text or a pathlib.Path, got ''"),
        ({"cost": "bits_moved"}, r"cost must be a function of a policy, such as .*bits_moved; got a str"),
        ({"cost": lambda policy: policy}, r"cost\(policy\) must be a finite number, got Policy\("),
        ({"cost": lambda policy: math.nan}, r"cost\(policy\) must be a finite number, got nan for fp32"),
        ({"reference": "fp31"}, "Unknown policy 'fp31'"),
        ({"workers": 0}, "workers must be a number of processes"),
    ],
)
def test_an_argument_that_cannot_be_searched_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sf.search(additive, **{"parts": PARTS, **options})


@pytest.mark.parametrize("loss, message", [
    (-1.0, "train must return positive losses, which ratios compare; got -1.0"),
    (math.nan, "The reference does not train: its loss is not finite"),
    (None, "The reference does not train: train must return its loss, a number; got a NoneType"),
])  # fmt: skip
def test_a_reference_that_does_not_train_is_refused(loss, message):
    with pytest.raises(ValueError, match=message):
        sf.search(lambda policy, seed: loss, parts=PARTS)


def test_an_argument_that_cannot_be_called_with_a_policy_and_a_seed_is_refused_at_once():
    with pytest.raises(ValueError, match=r"search calls train\(policy, seed\); .* too many positional arguments"):
        sf.search(lambda policy: 1.0, parts=PARTS)


def test_an_error_of_the_cost_for_a_missing_part_is_reported():
    model = sf.nn.MLP([2, 4, 1], rng=0)
    work = sf.count_work(model, sf.nn.mse_loss, (np.ones((3, 2)), np.ones((3, 1))))
    with pytest.raises(ValueError, match=r"nothing to search. haed cannot have E4M3: .*haed.*Did you mean 'head'"):
        sf.search(lambda policy, seed: 1.0, parts=["haed"], cost=lambda policy: work.cost(policy).bits_moved)


def test_formats_may_be_texts_and_have_labels_and_be_casts_and_accumulators_where_those_are_taken():
    found = sf.search(lambda policy, seed: 1.0, parts=["weights"], formats=["e4m3"])
    assert found.label == "weights=e4m3" and found.policy.weights == sf.E4M3
    formats = {"scaled": sf.scaled(sf.E4M3, sf.per_tensor()), "kahan": sf.kahan(sf.FP16)}
    found = sf.search(lambda policy, seed: 1.0, parts=["compute", ("*", "accumulate")], formats=formats)
    assert found.label == "compute=scaled, *: accumulate=kahan" and found.combinations == 4


def test_without_the_packages_of_the_extra_the_message_names_it():
    code = "import sys; sys.modules['scipy'] = None; import simfloat as sf; sf.Format; sf.search"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert "ImportError: simfloat.studies needs scipy: pip install 'simfloat[studies]'." in done.stderr


def test_combinations_come_in_the_order_of_what_they_save_within_the_limit():
    found = list(cheapest_choices([[0, 3, 1], [0, 2]], [[0, 5, 1], [0, 1]], 5))
    assert found == [(2, 1), (1, 0), (0, 1), (2, 0), (0, 0)]


def test_narrower_means_no_other_numbers():
    assert is_narrower([sf.E4M3, sf.BF16], [sf.FP16, None]) and not is_narrower([None], [sf.FP16])
    assert not is_narrower([sf.BF16], [sf.FP16]) and not is_narrower([sf.E5M2], [sf.E4M3])
