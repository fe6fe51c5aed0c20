"""Steps of a loss scale with given gradients."""

import numpy as np

import simfloat as sf


def parameters(*values):
    return [sf.Parameter(np.array(value, np.float32)) for value in values]


def step(scaler, optimizer, *gradients):
    """A step of these gradients, given unscaled."""
    for parameter, g in zip(optimizer.params, gradients, strict=True):
        with np.errstate(over="ignore"):
            parameter.grad = np.float32(g) * np.float32(scaler.get_scale())
    with sf.simulate("fp32"):
        scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale()


def scales(scaler, largest):
    """The scales after steps with these largest gradients."""
    optimizer = sf.optim.SGD(parameters([0.0]), 0.5)
    return [step(scaler, optimizer, [g]) for g in largest]
