"""Findings on rules of mixed precision, and on lists of operations: NumPy's and PyTorch's own 16-bit types."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.independent import casts
from experiments.independent.narrow import Remade, holds, lies_between, matches, ratio_above, seeds

#: Samples of a batch of gradients.
BATCH = 64


def orders_of_scaling() -> tuple[Remade, Remade, Remade]:
    """Clip gradients and add weight decay before and after a scale of 2^10 is removed, in NumPy's float32."""
    wrong, shrunk, left, cases = [0, 0, 0], [], [], 0
    for seed in seeds(5):
        rng = np.random.default_rng([seed, 2])
        for _ in range(20):
            gradient = rng.standard_normal(1000) * np.exp2(rng.normal(-10, 2, 1000))
            decay = (1e-4 * rng.standard_normal(1000)).astype(np.float32)
            large = (1024 * gradient).astype(np.float16).astype(np.float32)
            small = large / np.float32(1024)
            limit = np.linalg.norm(small) / np.float32(4)
            right, early, both = clip(small, limit), clip(large, limit) / 1024, clip(large, 1024 * limit) / 1024
            shrunk.append(float(np.linalg.norm(right) / np.linalg.norm(early)))
            left.append(float(np.linalg.norm((large + decay) / 1024 - small) / np.linalg.norm(small + decay - small)))
            wrong[0] += not 1 / 2 <= shrunk[-1] / 1024 <= 2
            wrong[1] += not (both == right).all()
            wrong[2] += left[-1] >= 0.01
            cases += 1
    texts = f"{np.mean(shrunk):.2f} times", f"{wrong[1]} of {cases} cases differ", f"{np.mean(left):.2g} of it is left"
    claims = "gradients that are clipped while", "with the limit scaled as well", "weight decay added before unscaling"
    made = [Remade("mixed-precision-rules", *row) for row in zip(claims, texts, map(holds, wrong), strict=True)]
    return made[0], made[1], made[2]


def clip(x: Any, limit: Any) -> Any:
    """Return x with a norm of at most the limit."""
    return x * min(np.float32(1), limit / np.linalg.norm(x))


def apex_level_3() -> Remade:
    """Train a transformer in PyTorch's float16 by its AdamW: epsilon is zero in FP16."""
    import torch

    diverged = 0
    for seed in seeds(5):
        x, y, _, _ = casts.split_digits(seed, (8, 8))
        torch.manual_seed(seed)
        block = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), block, torch.nn.Flatten(), torch.nn.Linear(128, 10)).half()
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        for batch in np.random.default_rng([seed, 1]).integers(0, len(x), (10, 32)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch].half()).float(), y[batch]).backward()
            optimizer.step()
        diverged += not all(parameter.isfinite().all() for parameter in model.parameters())
    return Remade(
        "mixed-precision-rules",
        "transformer: O3 does not reach",
        f"{diverged} of 5 runs diverged within 10 steps",
        "reproduced" if diverged == 5 else "inconclusive",
    )


def narrow_squares() -> tuple[Remade, Remade]:
    """Train an autoencoder with small gradients in FP16, with stochastic and Kahan updates, and in float32.

    The experiment rounds 0.001 g^2 to FP16 before it adds it to a moment in FP32; `wide` does not.
    """
    losses = {update: [autoencoder(seed, update) for seed in seeds(3)] for update in ("exact", "stochastic", "kahan")}
    wide = [autoencoder(seed, "stochastic", casts.exact) for seed in seeds(3)]
    ratios = {update: np.mean(np.divide(values, losses["exact"])) for update, values in losses.items()}
    beside = f"with 0.001 g^2 in FP32 {np.mean(np.divide(wide, losses['exact'])):.3f} times"
    stochastic, kahan = (
        Remade(
            "mixed-precision-rules",
            f"regression: FP16, {name} updates do not rescue",
            f"{ratios[update]:.3g} times the loss of FP32{more}",
            ratio_above(losses[update], losses["exact"], 1.05),
        )
        for update, name, more in (("stochastic", "stochastic", f"; {beside}"), ("kahan", "Kahan", ""))
    )
    return stochastic, kahan


def autoencoder(seed: int, update: str, share: Any = casts.fp16) -> float:
    """Return the held-out loss after 200 of the 400 steps of Adam.

    All numbers but the moments are in FP16, unless the update is exact. `share` rounds what a step adds to the second
    moment.
    """
    import torch

    to = casts.exact if update == "exact" else casts.fp16
    x, _, held_out, _ = casts.split_digits(seed)
    sizes = (64, 32, 32, 16, 32, 32, 64)
    weights = casts.uniform(seed, *((after, before) for before, after in zip(sizes, sizes[1:], strict=False)))
    formats = casts.Formats(to, to, to, to)
    generator = torch.Generator().manual_seed(seed)

    def outputs(x: Any) -> Any:
        for place in range(0, 12, 2):
            x = casts.rounded(casts.product(x, weights[place], formats) + weights[place + 1], to)
            x = casts.rounded(x.sigmoid(), to) if place < 10 else x
        return x

    moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]
    lost = [torch.zeros_like(weight) for weight in weights]
    with torch.no_grad():
        for weight in weights:
            weight.copy_(to(weight))
    for step, batch in enumerate(np.random.default_rng([seed, 1]).integers(0, len(x), (200, 256)), 1):
        loss = (outputs(x[batch]) - x[batch]).square().mean()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for place, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
                gradient = to(gradient)
                first, second = moments[place]
                first.mul_(0.9).add_(0.1 * gradient)
                added = 0.001 * to(gradient * gradient)
                second.mul_(0.999).add_(added if update == "exact" else share(added))
                root = to(to(second / (1 - 0.999**step)).sqrt())
                delta = to(-0.01 * to(to(first / (1 - 0.9**step)) / to(root + 1e-6)))
                if update == "stochastic":
                    weight.copy_(stochastic_half(weight + delta, generator))
                elif update == "kahan":
                    wanted = to(delta - lost[place])
                    total = to(weight + wanted)
                    lost[place] = to(to(total - weight) - wanted)
                    weight.copy_(total)
                else:
                    weight.add_(delta)
    with torch.no_grad():
        return float((outputs(held_out) - held_out).square().mean())


def stochastic_half(x: Any, generator: Any) -> Any:
    """Round to one of the two neighbours in FP16; the nearer one is more likely."""
    import torch

    quantum = torch.ldexp(torch.ones_like(x), torch.frexp(x).exponent.clamp(min=-13) - 11)
    return torch.floor(x / quantum + torch.rand(x.shape, generator=generator)) * quantum


def squares_overflow() -> Remade:
    """Count the squared errors of a new network on the progress of diabetes that overflow NumPy's float16."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    x = (x - x.mean(0)) / x.std(0)
    counts = []
    for seed in seeds(5):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, len(x), BATCH)
        hidden = np.maximum(x[rows] @ rng.uniform(-1, 1, (10, 16)) / np.sqrt(10), 0)
        errors = (hidden @ rng.uniform(-1, 1, 16) / 4 - y[rows]).astype(np.float16)
        with np.errstate(over="ignore"):
            counts.append(float(np.isinf(errors * errors).sum() - np.isinf(errors.astype(np.float32) ** 2).sum()))
    return Remade(
        "operation-lists",
        "regression: the deny list keeps losses",
        f"{np.mean(counts):.1f} of {BATCH} squares overflow",
        lies_between(counts, 0, np.inf),
    )


def autocast() -> Remade:
    """Train convolutions with batch norm under PyTorch's own autocast to float16, and in float32."""
    import torch
    from torch import nn

    losses: dict[bool, list[float]] = {True: [], False: []}
    shares: dict[bool, list[float]] = {True: [], False: []}
    for narrow in losses:
        for seed in seeds(5):
            x, y, held_x, held_y = casts.split_digits(seed, (1, 8, 8))
            torch.manual_seed(seed)
            model = nn.Sequential(
                *(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
                *(nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
                *(nn.Flatten(), nn.Linear(256, 10)),
            )
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            for batch in np.random.default_rng([seed, 1]).integers(0, len(x), (120, 32)):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16, enabled=narrow):
                    loss = nn.functional.cross_entropy(model(x[batch]).float(), y[batch])
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                outputs = model(held_x)
            losses[narrow].append(float(nn.functional.cross_entropy(outputs, held_y)))
            shares[narrow].append(100 * float((outputs.argmax(1) == held_y).float().mean()))
    shortfall = np.subtract(shares[False], shares[True])
    verdict = matches(losses[True], losses[False])
    return Remade(
        "operation-lists",
        "convolutional: with the three lists FP16 trains",
        f"{np.mean(np.divide(losses[True], losses[False])):.4f} times FP32's loss, {shortfall.mean():.2f} points below",
        verdict if casts.share_matches(shortfall) == "equal" else casts.share_matches(shortfall),
    )


def batch_norm_sums() -> tuple[Remade, Remade]:
    """Measure the gradient of half-trained convolutions with one list of operations in FP16, the rest in float32."""
    import torch
    from torch.nn.functional import cross_entropy

    errors: dict[str, list[float]] = {}
    for seed in seeds(5):
        network = casts.Convolutions(seed)
        casts.train(network, seed, 0.05, 60, casts.Formats())
        x, y, _, _ = casts.split_digits(seed, network.shape)
        rows = np.random.default_rng([seed, 2]).integers(0, len(x), BATCH)
        reference = None
        for name, lists in (
            ("exact", ""),
            ("deny", "deny sums"),
            ("wide sums", "deny"),
            ("allow", "allow"),
            ("infer", "infer"),
        ):
            logits = listed(network, x[rows], set(lists.split()))
            parts = torch.autograd.grad(cross_entropy(logits, y[rows]), network.parameters)
            found = torch.cat([each.flatten() for each in parts]).double()
            reference = found if reference is None else reference
            errors.setdefault(name, []).append(100 * float((found - reference).norm() / reference.norm()))
    shown = {name: f"{np.mean(values):.2f}" for name, values in errors.items()}
    verdicts = {ratio_above(errors["deny"], errors[other], 1) for other in ("allow", "infer")}
    return (
        Remade(
            "operation-lists",
            "convolutional: the deny list in FP16 adds more",
            f"deny {shown['deny']} %, allow {shown['allow']} %, infer {shown['infer']} %",
            "reproduced" if verdicts == {"reproduced"} else "inconclusive",
        ),
        Remade(
            "operation-lists",
            "convolutional: large reductions should be left",
            f"{shown['deny']} against {shown['wide sums']} %",
            ratio_above(errors["deny"], errors["wide sums"], 2),
        ),
    )


def listed(network: Any, x: Any, lists: set[str]) -> Any:
    """Return the logits; the operations of these lists, and their gradients, are rounded to FP16."""
    to = {name: casts.fp16 if name in lists else casts.exact for name in ("allow", "infer", "deny", "sums")}
    products = casts.Formats(*(to["allow"],) * 4)
    one, two, weight, bias, *norms = network.parameters
    for place, (filters, stride) in enumerate(((one, 1), (two, 2))):
        x = casts.product(x, filters, products, stride=stride, padding=1)
        gain, shift = norms[2 * place : 2 * place + 2]
        x = batch_norm(casts.rounded(x, to["deny"]), gain, shift, to["deny"], add_each if "sums" in lists else add_all)
        x = casts.rounded(casts.rounded(x, to["infer"]).relu(), to["infer"])
    return casts.rounded(casts.product(x.flatten(1), weight, products) + bias, to["allow"])


def add_all(rows: Any) -> Any:
    """Return the sums of rows, rounded only by the caller."""
    return rows.sum(1)


def add_each(rows: Any) -> Any:
    """Return the sums of rows; FP16 numbers are added one by one."""
    import torch

    return torch.from_numpy(np.cumsum(rows.numpy().astype(np.float16), axis=1, dtype=np.float16)[:, -1]).float()


def add_pairs(rows: Any) -> Any:
    """Return the sums of rows; FP16 numbers are added in pairs, level by level."""
    import torch

    rows = casts.fp16(rows)
    while rows.shape[1] > 1:
        rows = torch.nn.functional.pad(rows, (0, rows.shape[1] % 2))
        rows = casts.fp16(rows[:, ::2] + rows[:, 1::2])
    return rows[:, 0]


def batch_norm(x: Any, gain: Any, shift: Any, to: Any, sums: Any, statistics: list[Any] | None = None) -> Any:
    """Return batch norm. Each result is rounded, and `sums` computes the sums, also those of gradients.

    The mean and the variance are appended to `statistics`.
    """
    import torch

    count, shape = x.numel() // x.shape[1], (1, -1, 1, 1)

    def add(x: Any) -> Any:
        return sums(x.transpose(0, 1).flatten(1))

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            context.shape = x.shape
            return add(x)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient.reshape(shape).expand(context.shape)

    class Spread(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, size: Any) -> Any:
            return x.reshape(shape).expand(size).clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return add(gradient), None

    def through(x: Any) -> Any:
        return casts.rounded(x, to)

    def spread(each: Any) -> Any:
        return Spread.apply(each, x.shape)

    mean = through(through(Sum.apply(x)) / count)
    centered = through(x - spread(mean))
    variance = through(through(Sum.apply(through(centered * centered))) / count)
    if statistics is not None:
        statistics += [mean.detach(), variance.detach()]
    normal = through(centered * spread(through((variance + 1e-5).rsqrt())))
    return through(through(normal * spread(through(gain))) + spread(through(shift)))


def reductions() -> tuple[Remade, Remade, Remade]:
    """Train convolutions with batch norm that sums in FP16, one by one and in pairs, and judge each model twice."""
    arms = {"FP32": (casts.exact, add_all), "chained": (casts.fp16, add_each), "paired": (casts.fp16, add_pairs)}
    losses = {name: np.array([normalised(seed, *arm) for seed in seeds(10)]) for name, arm in arms.items()}
    rows = (
        ("normalised: large reductions, such as", "chained", 0),
        ("normalised: large reductions should be carried out in FP32, if models", "chained", 1),
        ("normalised: large reductions should be carried out in FP32, also if they add", "paired", 0),
    )
    remade = [
        Remade(
            "fp32-accumulation",
            claim,
            f"{np.mean(losses[name][:, place] / losses['FP32'][:, place]):.3f} times the loss of FP32",
            ratio_above(losses[name][:, place], losses["FP32"][:, place], 1.05),
        )
        for claim, name, place in rows
    ]
    return tuple(remade)  # type: ignore[return-value]


def normalised(seed: int, to: Any, sums: Any) -> tuple[float, float]:
    """Return two losses after 60 steps: with the statistics of the held-out images, and with running averages."""
    import torch
    from torch.nn.functional import cross_entropy

    network = casts.Convolutions(seed)
    x, y, held_x, held_y = casts.split_digits(seed, network.shape)
    momenta = [torch.zeros_like(each) for each in network.parameters]
    for batch in np.random.default_rng([seed, 1]).integers(0, len(x), (60, 256)):
        one, two, weight, bias, *norms = network.parameters
        image = x[batch]
        statistics: list[Any] = []
        for place, (filters, stride) in enumerate(((one, 1), (two, 2))):
            gain, shift = norms[2 * place : 2 * place + 2]
            image = casts.product(image, filters, casts.Formats(to, to, to, to), stride=stride, padding=1)
            image = batch_norm(image, gain, shift, to, sums, statistics).relu()
        logits = casts.rounded(casts.product(image.flatten(1), weight, casts.Formats(to, to, to, to)) + bias, to)
        gradients = torch.autograd.grad(cross_entropy(logits, y[batch]), network.parameters)
        with torch.no_grad():
            for average, each in zip(network.averages, statistics, strict=True):
                average.mul_(0.9).add_(0.1 * each)
            for parameter, momentum, gradient in zip(network.parameters, momenta, gradients, strict=True):
                momentum.mul_(0.9).add_(to(gradient))
                parameter.sub_(0.05 * momentum)
    judged = casts.judge(network, held_x, held_y)
    return judged.loss, judged.averaged
