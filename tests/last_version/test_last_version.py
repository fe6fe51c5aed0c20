"""Pickles and checkpoints of the last version can be read, although modules and classes have other names now."""

import pickle
import shutil
import sys
import zipfile
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest

import simfloat as sf
from simfloat.analysis.reveal import Revealed
from simfloat.moved_names import moved_names
from simfloat.studies.state_digest import function_digest
from tests.last_version.objects import CHECKPOINTS, PICKLES, objects, train


@pytest.fixture(scope="module")
def fresh():
    return dict(objects())


def digest(value):
    """The digest of a function that returns a value, so that of all that the value consists of."""
    return function_digest(lambda: value)


def names():
    with zipfile.ZipFile(PICKLES) as file:
        return file.namelist()


@pytest.mark.parametrize("name", names())
def test_a_pickle_of_the_last_version_is_the_object(name, fresh):
    with zipfile.ZipFile(PICKLES) as file:
        read = pickle.loads(file.read(name))
    same = pickle.loads(pickle.dumps(fresh[name]))  # which leaves out the same caches
    assert type(read) is type(same)
    for each in (read, same):  # sentences may change their words
        if isinstance(each, Revealed):
            object.__setattr__(each, "reason", "")
        for policy in each.values() if name == "presets" else ():
            object.__setattr__(policy, "source", "")
        # The functions that PyTorch composes, such as l1_loss, have been on their lists since.
        for preset in ("amp-fp16", "amp-bf16", "apex-o1", "apex-o2") if name == "presets" else ():
            assert isinstance(each.pop(preset), sf.Policy)
    assert digest(read) == digest(same)


def test_a_training_of_the_last_version_continues(tmp_path):
    folder = shutil.copytree(CHECKPOINTS, tmp_path / "checkpoints")
    model, history = train(8, resume=folder)
    other, whole = train(8)
    assert history["loss"] == whole["loss"]
    for (name, value), (same, wanted) in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
        assert name == same
        assert np.array_equal(value, wanted)


def test_a_public_name_stays_where_a_module_of_that_name_is_imported(monkeypatch):
    places = [module.rpartition(".")[::2] for module in moved_names()]
    rooms = {room: vars(import_module(room)) for room, _ in places if room not in moved_names()}
    public = {(room, name): rooms[room][name] for room, name in places if name in rooms.get(room, ())}
    public = {place: value for place, value in public.items() if not isinstance(value, ModuleType)}
    assert {("simfloat.train", "manifest"), ("simfloat.plots", "front")} <= set(public)
    for room, name in public:
        monkeypatch.delitem(sys.modules, f"{room}.{name}", raising=False)
        import_module(f"{room}.{name}")
    assert {(room, name): rooms[room][name] for room, name in public} == public
