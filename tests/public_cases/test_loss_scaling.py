"""Reported bugs of other libraries in loss scales, and in scales of FP8 tensors."""

import numpy as np

import simfloat as sf


def step_with_gradient(scaler, gradient):
    """A step of SGD on a single weight whose gradient, before the scale, is the one that is given."""
    weight = sf.nn.Parameter(np.array([1.0]))
    optimizer = sf.optim.SGD([weight], lr=0.5)
    with sf.simulate("fp16-master"):
        scaler.scale((weight * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return weight.data.item()


def test_a_scale_is_halved_until_gradients_fit_and_falls_below_one():
    """A run began at 2^32, and a scale that had come to 1 could not fall further.

    https://github.com/NVIDIA/tacotron2/issues/112 https://github.com/tensorflow/tensorflow/issues/38357
    """
    scaler = sf.optim.DynamicLossScale(init_scale=2.0**20)
    skipped = 0
    while step_with_gradient(scaler, 40000.0) == 1.0:
        skipped += 1
    assert skipped == 20 and scaler.get_scale() == 1.0, "2 * 40000 is beyond 65504"
    assert step_with_gradient(scaler, 65504.0) != 1.0


def test_a_tensor_of_tiny_numbers_is_scaled_by_the_largest_finite_scale(ml_dtypes):
    """448 / amax overflowed float32. https://github.com/NVIDIA/TransformerEngine/pull/786"""
    largest = np.finfo(np.float32).max
    for x in (3e-40, 7e-43, 1.1e-36):
        scale = min(np.float64(np.float32(448) / np.float64(np.float32(x))), np.float64(largest))
        scale = np.float64(np.float32(scale))
        code = np.float32(np.float64(np.float32(x)) * scale).astype(ml_dtypes.float8_e4m3fn)
        found = sf.dot(
            [np.float32(x)], [1.0], inputs=(sf.scaled(sf.E4M3, sf.per_tensor()), sf.FP32), accumulate=sf.FP32
        )
        assert found == np.float32(np.float64(code) / scale)
