"""Reported cases of gradients that vanish silently, and of results that are out of date."""

import importlib
import sys

import numpy as np

import simfloat as sf


def test_gradients_that_are_all_zero_are_named_as_a_fault():
    """FP16 without a scaler lost gradients without a word. https://github.com/engichang1467/Open-Rig3R/issues/35

    One number underflows, and all gradients after it are exactly zero.
    """
    x = np.random.default_rng(0).standard_normal((128, 2))
    model = sf.nn.Linear(2, 1, bias=False, rng=0)

    def loss(prediction, y):
        return sf.nn.mse_loss(prediction, y) * 2.0**-26

    with sf.simulate("fp16-standard"):
        loss(model(x), x[:, :1]).backward()
    assert not model.weight.grad.any()
    found = list(sf.diagnose(model, loss, [(x, x[:, :1])], "fp16-standard", steps=1))
    assert found and "underflow" in found[0].cause and found[0].phase == "backward"


def test_a_point_is_computed_again_if_a_function_that_it_calls_has_changed(tmp_path, monkeypatch):
    """A cache kept results of an old helper. https://github.com/joblib/joblib/issues/1287"""
    source = "def helper(x):\n    return {} * x\n\n\ndef value(x):\n    return helper(x)\n"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "measured.py").write_text(source.format(2))
    import measured

    values = []
    for factor in (2, 300):
        (tmp_path / "measured.py").write_text(source.format(factor))
        importlib.reload(measured)
        table = sf.studies.sweep(measured.value, {"x": [1.0, 3.0]}, folder=tmp_path / "kept")
        values.append([row["value"] for row in table.rows])
    sys.modules.pop("measured")
    assert values == [[2.0, 6.0], [300.0, 900.0]]
