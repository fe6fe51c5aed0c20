"""The examples in docstrings: every public name has one, and it runs unchanged."""

import doctest
import inspect

import numpy as np
import pytest

import simfloat as sf

ROOMS = {"simfloat": sf} | {name: getattr(sf, name) for name in ("linalg", "nn", "optim", "theory", "train", "torch")}

#: What users are handed, name in annotations or extend: they make none of them by a call.
HANDED = {
    "simfloat.Accumulator",
    "simfloat.Observer",
    "simfloat.Recipe",
    "nn.MultiheadAttention",  # the same class as MultiHeadAttention
    "optim.LRScheduler",
    "optim.LossScale",
    "optim.Optimizer",
    "optim.Step",
    "torch.Run",
    "torch.explain",  # its table is wider than a page; the README draws it
    "train.History",
}

PUBLIC = {
    f"{room}.{name}": value
    for room, module in ROOMS.items()
    for name in module.__all__
    if inspect.isroutine(value := getattr(module, name)) or inspect.isclass(value)
}


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - HANDED))
def test_a_public_name_has_an_example_that_runs(name, tmp_path):
    if name.startswith("torch."):
        pytest.importorskip("torch")
    text = inspect.cleandoc(PUBLIC[name].__doc__)
    names = {"sf": sf, "simfloat": sf, "np": np, "folder": tmp_path}
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert example.examples or "::\n\n" in text, "no example"
    report = []
    threads = sf.get_threads()
    try:
        doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    finally:
        sf.set_threads(threads)
        sf.progress(True)
    assert not report, "".join(report)
