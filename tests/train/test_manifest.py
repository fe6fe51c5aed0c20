"""The manifest identifies a training, so that it continues as another one only if this is allowed."""

import json
from functools import partial

import numpy as np
import pytest

import simfloat as sf
from simfloat.train import states as state_file
from tests.train import toy
from tests.train.resumed import fit, parts, sequential
from tests.train.test_saving import assert_same
from tests.train.toy import newest


def test_a_manifest_is_json_and_a_table(tmp_path):
    fit(3, parts() | {"schedule": sequential}, checkpoint=tmp_path)
    manifest = sf.train.manifest(tmp_path)
    kept = json.loads(json.dumps(manifest))
    assert kept["steps"] == 3 and kept["policy"] == "fp8-hybrid" and kept["policy.activations"] == "BF16"
    assert kept["simfloat"] == sf.__version__ and kept["optimizer.momentum"] == 0.5 and kept["batch_size"] == 4
    assert kept["schedule.milestones"] == [3] and kept["schedule.1"] == "StepLR" and kept["schedule.1.step_size"] == 2
    assert len(kept["data"]) == 4 and kept["changes"] == []
    lines = str(manifest).split("\n")
    assert lines[0].split() == ["name", "value"] and any(line.split() == ["seed", "3"] for line in lines)
    assert "<table>" in manifest._repr_html_()


def test_groups_with_other_options_and_functions_have_names_in_a_manifest(tmp_path):
    model = sf.nn.MLP([3, 5, 2])
    hidden, head = ({"params": part.parameters()} for part in (model.hidden, model.head))
    optimizer = sf.optim.SGD([hidden, {**head, "lr": 0.5}], lr=0.25)
    schedule = sf.optim.LambdaLR(optimizer, [abs, partial(max, 1)])
    with sf.simulate("fp32"):
        loss = sf.nn.CrossEntropyLoss()
        sf.train.fit(model, loss, toy.batches(2), optimizer, schedule=schedule, checkpoint=tmp_path)
    manifest = sf.train.manifest(tmp_path)
    assert manifest["optimizer.lr"] == (0.25, 0.5) and manifest["optimizer.momentum"] == 0.0
    assert manifest["loss_fn"] == "CrossEntropyLoss()"
    assert manifest["schedule.lr_lambda"] == ("abs", "functools.partial(<built-in function max>, 1)")


def test_numbers_of_numpys_types_are_numbers_of_a_manifest(tmp_path):
    given = parts() | {"clip": np.float32(1.0), "accumulation": np.int64(2)}
    fit(4, given, checkpoint=tmp_path, every=1)
    assert len(list(tmp_path.iterdir())) == 2 and json.loads(json.dumps(sf.train.manifest(tmp_path)))["clip"] == 1.0
    fit(5, parts(), resume=tmp_path)


@pytest.mark.parametrize("allow, message", [
    ("sed", "allow names 'sed', which no manifest has. Names: simfloat, .*Did you mean 'seed'?"),
    (["lr", "momentun"], "allow names 'momentun'.* Did you mean 'momentum'?"),
    ("begun", "allow names 'begun'"),
    (3, r"allow takes names of a manifest, such as \('lr', 'seed'\), got 3"),
    ([None], r"allow takes names .* got \[None\]"),
])  # fmt: skip
@pytest.mark.parametrize("resume", [True, False])
def test_unknown_names_are_refused_with_the_nearest(allow, message, resume, tmp_path):
    if resume:
        fit(2, parts(), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=message):
        fit(3, parts(), resume=tmp_path, allow=allow)


def rewritten(path, change):
    states = state_file.read(path)
    change(states)
    state_file.write(path, states)


def test_a_checkpoint_of_an_older_version_without_a_manifest_is_used_with_a_warning(tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    rewritten(newest(tmp_path), lambda states: [states.pop(name) for name in ("manifest", "concluded")])
    with pytest.warns(UserWarning, match="step-3.states has no manifest, because an older version"):
        states, _ = toy.fit("fp32", 5, resume=tmp_path)
    assert_same(states, toy.fit("fp32", 5)[0])
    with pytest.raises(ValueError, match="step-3.states has no manifest"):
        sf.train.manifest(tmp_path)
    model, optimizer, _ = toy.parts()
    with sf.simulate("fp32"), pytest.warns(UserWarning, match="no manifest"):
        with pytest.raises(
            ValueError, match="step-3.states belongs to a training with a scaler, but fit was given none"
        ):
            sf.train.fit(model, sf.nn.cross_entropy, toy.batches(5), optimizer, resume=tmp_path)


@pytest.mark.parametrize("manifest", [3, None, "text", []])
def test_an_invalid_manifest_counts_as_missing(manifest, tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    rewritten(newest(tmp_path), lambda states: states.update(manifest=manifest))
    with pytest.warns(UserWarning, match="step-3.states has no manifest"):
        toy.fit("fp32", 4, resume=tmp_path)


def test_a_manifest_with_names_missing_differs_in_them(tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    rewritten(newest(tmp_path), lambda states: states.update(manifest={"seed": 3}))
    with pytest.raises(ValueError, match="optimizer: not given, now Adam"):
        toy.fit("fp32", 4, resume=tmp_path)


def test_another_version_of_simfloat_is_reported_and_can_be_allowed(tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    rewritten(newest(tmp_path), lambda states: states["manifest"].update(simfloat="0.0.1", numpy="1.0"))
    with pytest.warns(UserWarning, match=f"was written by simfloat 0.0.1, and this is {sf.__version__}"):
        states, _ = toy.fit("fp32", 5, resume=tmp_path)
    assert_same(states, toy.fit("fp32", 5)[0])
    toy.fit("fp32", 5, resume=tmp_path, checkpoint=tmp_path, allow="simfloat")
    change = {"step": 3, "name": "simfloat", "before": "0.0.1", "now": sf.__version__}
    assert sf.train.manifest(tmp_path)["changes"] == [change]


def test_there_is_no_manifest_without_a_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="There is no checkpoint in"):
        sf.train.manifest(tmp_path / "none")


def test_the_batches_after_a_short_step_make_other_bits_and_that_is_reported(tmp_path):
    options = dict(accumulation=2, checkpoint=tmp_path, resume=tmp_path)
    toy.fit("fp32", 5, **options)
    toy.fit("fp32", 5, **options)
    with pytest.warns(UserWarning, match="ends with a step of fewer than accumulation=2 batches"):
        toy.fit("fp32", 7, **options)
