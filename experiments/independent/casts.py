"""Roundings of tensors to FP8, BF16 and FP16, and networks with roundings in their forward and backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.independent.narrow import interval

#: A function that rounds a tensor.
Rounding = Callable[[Any], Any]

#: Significant bits after the first, least exponent, and largest number.
E4M3, E5M2 = (3, -6, 448.0), (2, -14, 57344.0)


def nearest(x: Any, format: tuple[int, int, float]) -> Any:
    """Return the nearest numbers of an FP8 format, ties to even; larger numbers are infinite."""
    import torch

    bits, least, largest = format
    exponent = torch.frexp(x).exponent.clamp(min=least + 1) - 1
    quantum = torch.ldexp(torch.ones_like(x), exponent - bits)
    rounded = (x / quantum).round() * quantum
    return torch.where(rounded.abs() > largest, torch.copysign(torch.full_like(x, torch.inf), x), rounded)


def e4m3(x: Any) -> Any:
    """Round to E4M3."""
    return nearest(x, E4M3)


def e5m2(x: Any) -> Any:
    """Round to E5M2."""
    return nearest(x, E5M2)


def scaled(format: tuple[int, int, float]) -> Rounding:
    """Return a rounding with one scale for a tensor: the largest magnitude becomes the largest number."""

    def rounded(x: Any) -> Any:
        scale = format[2] / x.abs().max().clamp(min=1e-30)
        return nearest((x * scale).clamp(-format[2], format[2]), format) / scale

    return rounded


def bf16(x: Any) -> Any:
    """Round to BF16 by PyTorch's cast."""
    return x.bfloat16().float()


def fp16(x: Any) -> Any:
    """Round to FP16 by PyTorch's cast."""
    return x.half().float()


def exact(x: Any) -> Any:
    """Return x unchanged."""
    return x


class Formats(NamedTuple):
    """Roundings of the operands of products (activations, weights and gradients), and of all other results."""

    activations: Rounding = exact
    weights: Rounding = exact
    gradients: Rounding = exact
    results: Rounding = exact


def rounded(x: Any, there: Rounding, back: Rounding | None = None) -> Any:
    """Round x in the forward pass, and its gradient in the backward pass."""
    import torch

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return there(x)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return (back or there)(gradient)

    return Rounded.apply(x)


def product(x: Any, weight: Any, formats: Formats, **convolution: Any) -> Any:
    """Return x @ weight.T, or a convolution (N, C, H, W) with this stride and padding, from rounded operands."""
    import torch
    from torch.nn.functional import conv2d
    from torch.nn.grad import conv2d_input, conv2d_weight

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, weight: Any) -> Any:
            x, weight = formats.activations(x), formats.weights(weight)
            context.save_for_backward(x, weight)
            return conv2d(x, weight, **convolution) if convolution else x @ weight.T

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            x, weight = context.saved_tensors
            gradient = formats.gradients(gradient)
            if not convolution:
                return gradient @ weight, gradient.flatten(0, -2).T @ x.flatten(0, -2)
            return (
                conv2d_input(x.shape, weight, gradient, **convolution),
                conv2d_weight(x, weight.shape, gradient, **convolution),
            )

    return rounded(Product.apply(x, weight), formats.results)


def uniform(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    """Return for each shape a weight and a bias, uniform within 1 / sqrt(inputs), as PyTorch's layers start."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    found = []
    for shape in shapes:
        bound = torch.Size(shape[1:]).numel() ** -0.5
        found += [(2 * torch.rand(size, generator=generator) - 1) * bound for size in (shape, shape[:1])]
    return [each.requires_grad_() for each in found]


class Judged(NamedTuple):
    """Held-out loss and accuracy in percent, and the loss if batch norm uses its running averages instead."""

    loss: float
    share: float
    averaged: float


class Perceptron:
    """A network 64-32-32-10 with ReLU."""

    shape: tuple[int, ...] = (64,)

    def __init__(self, seed: int) -> None:
        self.parameters = uniform(seed, (32, 64), (32, 32), (10, 32))

    def logits(self, x: Any, *layers: Formats) -> Any:
        """Return the logits; each layer has its formats, or all have the same."""
        first, second, last = layers * (3 // len(layers))
        for place, formats in enumerate((first, second)):
            weight, bias = self.parameters[2 * place : 2 * place + 2]
            x = rounded(product(x, weight, formats) + bias, formats.results).relu()
        return rounded(product(x, self.parameters[4], last) + self.parameters[5], last.results)


class Convolutions:
    """Two convolutions of 8 and 16 channels, each with batch norm and ReLU, and a linear layer."""

    shape: tuple[int, ...] = (1, 8, 8)

    def __init__(self, seed: int) -> None:
        import torch

        weights = uniform(seed, (8, 1, 3, 3), (16, 8, 3, 3), (10, 256))
        norms = [torch.ones(8), torch.zeros(8), torch.ones(16), torch.zeros(16)]
        self.parameters = [weights[0], weights[2], *weights[4:], *(each.requires_grad_() for each in norms)]
        self.averages = [torch.zeros(8), torch.ones(8), torch.zeros(16), torch.ones(16)]
        self.uses_averages = False

    def logits(self, x: Any, *layers: Formats) -> Any:
        """Return the logits; batch norm computes in float32 and rounds its results."""
        from torch.nn.functional import batch_norm

        first, second, last = layers * (3 // len(layers))
        one, two, weight, bias, *norms = self.parameters
        for place, (filters, formats, stride) in enumerate(((one, first, 1), (two, second, 2))):
            x = product(x, filters, formats, stride=stride, padding=1)
            gain, shift = norms[2 * place : 2 * place + 2]
            mean, variance = self.averages[2 * place : 2 * place + 2]
            x = batch_norm(x, mean, variance, gain, shift, training=not self.uses_averages)
            x = rounded(x, formats.results).relu()
        return rounded(product(x.flatten(1), weight, last) + bias, last.results)


def split_digits(seed: int, shape: tuple[int, ...] = (64,)) -> tuple[Any, Any, Any, Any]:
    """Return scikit-learn's digits as tensors: three quarters for training, and 200 of the others held out."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)  # these products are too small for threads
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 7]).permutation(len(x))
    images, labels = torch.tensor(x[order] / 16, dtype=torch.float32).reshape(-1, *shape), torch.tensor(y[order])
    return images[450:], labels[450:], images[:200], labels[:200]


def train(
    network: Any, seed: int, rate: float, steps: int, *layers: Formats, stored: Rounding = exact, scale: float = 1.0
) -> Judged:
    """Train on digits by SGD in batches of 32, and judge the last fifth of the run, in float32.

    Weights are stored in a format. The loss is multiplied by a scale; steps with infinite gradients are skipped.
    """
    import numpy as np
    import torch
    from torch.nn.functional import cross_entropy

    x, y, held_x, held_y = split_digits(seed, network.shape)
    rows = np.random.default_rng([seed, 1]).integers(0, len(x), (steps, 32))
    with torch.no_grad():
        for parameter in network.parameters:
            parameter.copy_(stored(parameter))
    records = []
    for step, batch in enumerate(rows, 1):
        logits = rounded(network.logits(x[batch], *layers), exact, layers[-1].results)
        gradients = torch.autograd.grad(scale * cross_entropy(logits, y[batch]), network.parameters)
        if all(gradient.isfinite().all() for gradient in gradients):
            with torch.no_grad():
                for parameter, gradient in zip(network.parameters, gradients, strict=True):
                    parameter.copy_(stored(parameter - rate * layers[-1].results(gradient) / scale))
        if step > 0.8 * steps and step % max(1, steps // 40) == 0:
            records.append(judge(network, held_x, held_y))
    return Judged(*np.mean(records, axis=0).tolist())


def judge(network: Any, x: Any, y: Any) -> Judged:
    """Return loss and accuracy on held-out images, with their own statistics in batch norm, and with averages."""
    import torch
    from torch.nn.functional import cross_entropy

    with torch.no_grad():
        network.uses_averages = True
        averaged = float(cross_entropy(network.logits(x, Formats()), y))
        network.uses_averages, averages = False, [each.clone() for each in getattr(network, "averages", ())]
        outputs = network.logits(x, Formats())
        for each, before in zip(getattr(network, "averages", ()), averages, strict=True):
            each.copy_(before)
        share = 100 * float((outputs.argmax(1) == y).float().mean())
        return Judged(float(cross_entropy(outputs, y)), share, averaged)


def share_matches(shortfall: Any) -> str:
    """Return the verdict on shares that should match within a point."""
    least, most = interval(shortfall)
    return "equal" if -1 < least <= 0 <= most < 1 else "inconclusive"
