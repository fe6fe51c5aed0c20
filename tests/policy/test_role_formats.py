"""Every tensor of a training step, in every phase, is in the format of its role in the policy."""

import numpy as np
import pytest

import simfloat as sf
from experiments.models import DLRM, GPT, BERTClassifier, SequenceClassifier
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.autodiff import record
from simfloat.simulation.place import widest_format
from tests.nn.convolutional import detector, discriminator, generator, residual_net
from tests.roles import keep_numbers, recorded

RNG = np.random.default_rng(7)


IMAGES, TOKENS, LABELS = RNG.standard_normal((3, 3, 8, 8)), RNG.integers(0, 5, (3, 4)), RNG.integers(0, 3, 3)


def detected(model):
    scores, offsets = model(IMAGES, joined=lambda parts: sf.concatenate(parts, 1))
    return sf.nn.cross_entropy(scores, np.zeros(scores.shape[:-1], int)) + sf.nn.smooth_l1_loss(
        offsets, 0 * offsets.data
    )


def next_tokens(model):
    return sf.nn.cross_entropy(model(TOKENS[:, :-1]), TOKENS[:, 1:])


def faked(model):
    logits = model(IMAGES)
    return sf.nn.binary_cross_entropy_with_logits(logits, np.ones(logits.shape))


#: A model, and its loss on a small batch.
MODELS = {
    "mlp": (lambda: sf.nn.MLP([4, 5, 3]), lambda model: sf.nn.cross_entropy(model(IMAGES[:, 0, 0, :4]), LABELS)),
    "cnn": (lambda: residual_net(sf.nn), lambda model: sf.nn.cross_entropy(model(IMAGES), LABELS)),
    "ssd": (lambda: detector(sf.nn), detected),
    "discriminator": (lambda: discriminator(sf.nn), faked),
    "generator": (
        lambda: generator(sf.nn), lambda model: sf.nn.mse_loss(model(IMAGES[:, 0, :5, :1].reshape(3, 5, 1, 1)), IMAGES),
    ),
    "lstm": (lambda: SequenceClassifier(5, 4, 4, 3, "LSTM"), lambda model: sf.nn.cross_entropy(model(TOKENS), LABELS)),
    "gpt": (lambda: GPT(5, 4, 8, layers=1, heads=2), next_tokens),
    "bert": (
        lambda: BERTClassifier(5, 4, 8, layers=1, heads=2, classes=3),
        lambda model: sf.nn.cross_entropy(model(TOKENS), LABELS),
    ),
    "dlrm": (
        lambda: DLRM(3, [5, 5], 4, [4], [4]),
        lambda model: sf.nn.binary_cross_entropy_with_logits(
            model(IMAGES[:, :, 0, 0], [TOKENS[:, :1], TOKENS[:, 1:]]), np.ones(3)
        ),
    ),
}  # fmt: skip


def holds(format, numbers):
    """True if all values are numbers of the format."""
    numbers = np.asarray(numbers)
    kept = numbers[np.isfinite(numbers)]
    return bool((sf.round(kept, format, sf.toward_zero) == kept).all())


def role(policy, node, name, parameter=None):
    """The format that a role has for an operation, or for the parameter that its gradient reaches."""
    return getattr(policy.recipe(parameter or node.place.path, *node.place.operations), name)


#: Presets that differ in the formats of most roles, under which every model is trained; under every other preset one
#: model with norms of batches, and one with products of two activations.
EVERYWHERE = ("fp16-master", "amp-bf16", "fp8-hybrid")


@pytest.mark.parametrize(
    "preset, model",
    [(preset, model) for preset in sf.policies for model in MODELS if preset in EVERYWHERE or model in ("cnn", "gpt")],
)
def test_tensors_are_in_the_formats_of_their_roles(preset, model, monkeypatch):
    keep_numbers(monkeypatch)
    policy, (make, loss_of) = sf.policies[preset], MODELS[model]
    sf.nn.seed(3)
    model = make()
    gradients, contribution = [], record._contribution

    def heard(node, number, u, addition, g, before, *rest):
        result = contribution(node, number, u, addition, g, before, *rest)
        gradients.append((node, number, before is not None, result))
        return result

    monkeypatch.setattr(record, "_contribution", heard)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with sf.simulate(policy):
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
    made = recorded(loss)
    assert made and gradients
    for variable in made:
        check_result(policy, variable)
    for node, number, is_sum, gradient in gradients:
        check_gradient(policy, node, number, is_sum, gradient)
    for (path, parameter), state in zip(model.named_parameters(), optimizer.state, strict=True):
        recipe = policy.recipe(path, "update")
        assert parameter.format == recipe.weights and holds(recipe.weights, parameter.data)
        assert holds(recipe.optimizer_state, state.pop("momentum_buffer"))
        assert all(holds(recipe.weights, numbers) for numbers in state.values()), "a Kahan update's compensation"
    for path, module in model.named_modules():
        if isinstance(module, sf.nn.BatchNorm2d):
            format = policy.recipe(path, "batch_norm").activations
            assert holds(format, module.running_mean) and holds(format, module.running_var)


def check_result(policy, variable):
    node = variable.node
    if OPERATIONS[node.place.operation].kind == "movement":
        assert variable.format is None or holds(variable.format, variable.numbers)
        return
    want = role(policy, node, "activations")
    if want == "widest":
        # Scalars do not count beside arrays, and constants do not count beside results.
        pairs = list(zip(node.parents, node.formats, strict=True))
        want = widest_format([f for x, f in pairs if x.ndim] or [f for x, f in pairs if x.format is not None])
    assert variable.format == want and holds(want, variable.numbers), node.place.operations


def check_gradient(policy, node, number, is_sum, gradient):
    path, parent = node.paths[number], node.parents[number]
    if is_sum and node.place.takes_formats and parent.node is not None:
        # Each use of a result has its own cast, so its shares are added in the format of the result.
        want = role(policy, parent.node, "activation_gradients")
        assert holds(parent.format if want == "widest" else want, gradient), (parent.node.place.operations, number)
        return
    name = "activation_gradients" if path is None else "weight_gradients"
    own = path if path is None or path.startswith(node.place.path) else f"{node.place.path}.{path.rpartition('.')[2]}"
    want = role(policy, node, name, own)
    if want == "widest":
        want = node.formats[number]
    assert holds(want, gradient), (node.place.operations, number)
