"""Histograms of gradients count the right results."""

import json

import numpy as np

import simfloat as sf
from experiments.gradients import as_histogram, gradient_histograms


def test_gradients_of_activations_and_of_parameters_are_distinguished_and_counted_once():
    model, recorder = sf.nn.MLP([3, 4, 2], rng=0), sf.Recorder()
    names = {name for name, _ in model.named_parameters()}
    with sf.simulate("fp16-standard", observer=recorder):
        output = model(np.eye(3))
        (output * output).sum().backward()
    found = gradient_histograms(recorder, names)
    # Results of the two biases' sums, of the head's product, which is that of its input, and of the ReLU.
    assert sum(found["activations"].values()) == 3 * 4 + 3 * 2 + 3 * 4 + 3 * 4
    assert sum(found["parameters"].values()) == sum(parameter.size for parameter in model.parameters())
    exponents = as_histogram(json.loads(json.dumps(found["parameters"])))
    gradients = np.concatenate([parameter.grad.ravel() for parameter in model.parameters()])
    want = np.frexp(np.abs(gradients[gradients != 0]))[1] - 1
    counts = dict(zip(*np.unique(want, return_counts=True), strict=True))
    assert exponents == {**counts, "zero": np.sum(gradients == 0)}
