"""Trainings on replicas: each has its part of a batch, and gradients are added as in a ring."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.bits import assert_bits

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((12, 5)), RNG.standard_normal((12, 2))
MSE = sf.nn.mse_loss


def trained(policy="bf16-fp32-weights", replicas=1, model=None, batches=((X, Y),), observer=None, **options):
    model = sf.nn.Linear(5, 2, rng=1) if model is None else model
    optimizer = sf.optim.SGD(model.parameters(), lr=1.0)
    with sf.simulate(policy, seed=3, observer=observer):
        history = sf.train.fit(model, MSE, batches, optimizer, replicas=replicas, progress=False, **options)
    return model, history


def gradients_of(parts, policy):
    """By parameter, the gradient that each replica has of its part."""
    found = []
    for x, y in parts:
        model = sf.nn.Linear(5, 2, rng=1)
        with sf.simulate(policy):
            MSE(model(x), y).backward()
        found.append({path: p.grad for path, p in model.named_parameters()})
    return {path: np.stack([each[path] for each in found]) for path in found[0]}


def ring(gradients, format):
    """By the definition: each replica divides by their number, and each chunk goes round from the replica behind it."""
    replicas, shape = len(gradients), gradients.shape[1:]
    flat = gradients.reshape(replicas, -1)
    chunk, found = -(-flat.shape[1] // replicas), []
    for element in range(flat.shape[1]):
        total = 0.0
        for step in range(replicas):
            number = Fraction(float(flat[(element // chunk + 1 + step) % replicas, element])) / replicas
            share = Fraction(round_value(number, format, sf.nearest_even))
            total = round_value(Fraction(total) + share, format, sf.nearest_even)
        found.append(total)
    return np.array(found).reshape(shape)


@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.parametrize("format", [sf.BF16, sf.E5M2, sf.FP32])
def test_gradients_are_divided_and_added_in_the_order_of_a_ring(replicas, format):
    policy = sf.policies["bf16-fp32-weights"].override("*", all_reduce=format)
    size = len(X) // replicas
    parts = [(X[i : i + size], Y[i : i + size]) for i in range(0, len(X), size)]
    model, _ = trained(policy, replicas)
    for path, gradients in gradients_of(parts, "bf16-fp32-weights").items():
        assert_bits(np.asarray(dict(model.named_parameters())[path].grad, np.float64), ring(gradients, format))


def test_sums_over_replicas_follow_the_format_of_weight_gradients_unless_they_have_their_own():
    assert sf.Policy(compute=sf.BF16, weight_gradients=sf.FP16).recipe().all_reduce == sf.FP16
    assert sf.Policy(compute=sf.BF16, all_reduce=sf.FP32).recipe().all_reduce == sf.FP32
    assert sf.policies["amp-bf16"].recipe().all_reduce == "widest", "as it is stored: in the format of the weights"
    model, _ = trained("amp-bf16", 4)
    assert model.weight.grad.dtype == np.float32


def test_the_loss_is_the_mean_of_the_replicas_and_metrics_are_measured_by_each():
    sizes = []
    _, history = trained("fp64", 4, metrics={"rows": lambda output, y: sizes.append(len(y)) or len(y)})
    assert sizes == [3, 3, 3, 3] and history["rows"] == [3.0]
    assert history["loss"][0] == pytest.approx(trained("fp64")[1]["loss"][0], rel=1e-12)


def test_observers_receive_the_sums_below_the_parameter():
    recorder = sf.Recorder()
    trained(replicas=4, observer=recorder)
    assert recorder.counts("weight.all_reduce", "update")["total"] == 4 * 10 + 10
    assert recorder.counts("weight", "backward")["total"] == 4 * 10


def test_buffers_are_those_of_the_first_replica():
    def model():
        return sf.nn.Sequential(sf.nn.Conv2d(1, 2, 1, rng=0), sf.nn.BatchNorm2d(2))

    images = RNG.standard_normal((4, 1, 3, 3))
    targets = np.zeros((4, 2, 3, 3))
    over_two, _ = trained(replicas=2, model=model(), batches=[(images, targets)])
    first, _ = trained(model=model(), batches=[(images[:2], targets[:2])])
    for (path, got), (_, want) in zip(over_two.named_buffers(), first.named_buffers(), strict=True):
        assert_bits(got, want)
        assert path.startswith("1.")


def test_accumulated_batches_are_split_each_and_several_inputs_too():
    class Two(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = sf.nn.Linear(5, 2, rng=1)

        def forward(self, pair):
            return self.layer(pair[0]) + self.layer(pair[1])

    model, history = trained(replicas=2, model=Two(), batches=[((X, X), Y), ((X, -X), Y)], accumulation=2)
    assert history.steps == 1 and np.isfinite(model.layer.weight.data).all()


def test_a_training_resumes_with_the_same_bits_and_the_same_replicas(tmp_path):
    policy = sf.policies["bf16-stochastic"].override("*", all_reduce=sf.E5M2)
    batches = [(X, Y), (2 * X, Y), (X, -Y), (X / 2, Y)]
    whole, _ = trained(policy, 3, batches=batches)
    trained(policy, 3, batches=batches, steps=2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="replicas"):
        trained(policy, 2, batches=batches, resume=tmp_path)
    again, _ = trained(policy, 3, batches=batches, resume=tmp_path)
    assert_bits(whole.weight.data, again.weight.data)


def test_replicas_of_a_pytorch_model_have_the_bits_and_counts_of_simfloats():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    initial = sf.nn.Linear(5, 2, rng=1).state_dict()
    for policy in ("bf16-stochastic", sf.Policy(compute=sf.BF16, weights=sf.FP32, all_reduce=sf.E5M2)):
        recorder, theirs = sf.Recorder(), sf.Recorder()
        ours, _ = trained(policy, 4, batches=[(X, Y), (2 * X, Y)], observer=recorder)
        model = torch.nn.Linear(5, 2)
        model.load_state_dict({name: torch.tensor(value) for name, value in initial.items()})
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        with sf.torch.simulate(model.double(), policy, seed=3, observer=theirs):
            sf.train.fit(
                model, torch.nn.functional.mse_loss, [(X, Y), (2 * X, Y)], optimizer, replicas=4, progress=False
            )
        for path, parameter in model.named_parameters():
            assert_bits(parameter.detach().numpy(), np.float64(ours.state_dict()[path]))
            reduced = f"{path}.all_reduce"
            assert theirs.counts(reduced) == recorder.counts(reduced)
            assert recorder.counts(reduced)["total"] > 0


def test_replicas_of_a_pytorch_model_begin_with_the_same_buffers_and_resume(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.norm = torch.nn.Linear(5, 2), torch.nn.BatchNorm1d(2)

        def forward(self, batch):
            return self.norm(self.layer(batch["x"]))

    class Listing(Normed):
        def forward(self, batch):
            if not hasattr(self, "calls"):
                self.register_buffer("calls", torch.zeros(0))
            self.calls = torch.cat([self.calls, torch.ones(1)])
            return super().forward(batch)

    def train(steps, replicas=2, kind=Normed, **options):
        model = kind()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batch = {"x": torch.tensor(X, dtype=torch.float32)}, torch.tensor(Y, dtype=torch.float32)
        with sf.torch.simulate(model, "bf16-stochastic", seed=1):
            sf.train.fit(
                model, torch.nn.functional.mse_loss, [batch] * steps, optimizer, replicas=replicas, progress=False,
                **options,
            )  # fmt: skip
        return model.state_dict()

    whole = train(3)
    assert whole["norm.num_batches_tracked"] == 3 and train(3, kind=Listing)["calls"].tolist() == [1, 1, 1]
    # One step: the averages are those of the first half of the batch.
    with sf.torch.simulate(model := Normed(), "bf16-stochastic", seed=1):
        model({"x": torch.tensor(X[:6], dtype=torch.float32)})
    assert torch.equal(train(1)["norm.running_mean"], model.norm.running_mean)
    train(2, checkpoint=tmp_path)
    again = train(3, resume=tmp_path)
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize("options, words", [
    ({"replicas": 0}, "replicas must be an integer of at least 1, got 0"),
    ({"replicas": 5}, r"split into replicas=5 parts of one size along its first axis; got \(12, 5\)"),
    ({"replicas": 2, "batches": [(X, 1.0)]}, r"got \(\)"),
])  # fmt: skip
def test_nonsense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        trained(**options)
