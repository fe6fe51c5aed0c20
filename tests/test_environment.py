"""Results do not depend on the floating-point environment of the process, and do not change it."""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import simfloat as sf
from simfloat.environment import in_callers_environment, in_usual_environment, is_usual, parse_json, unusual_facts
from simfloat.studies.repeating import Repetitions
from tests.unusual import ENVIRONMENTS, control_bits, environment

ROOT = Path(__file__).parents[1]
BF16, FP16, E4M3 = sf.BF16, sf.FP16, sf.E4M3


def numbers(seed, *shape):
    """Normal and subnormal numbers of FP32, most of them in no narrow format."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-150, 20, shape)).astype(np.float32)


@in_usual_environment
def operands():
    """The operands of all families, the same in a process that imports this file in another environment."""
    a, square = numbers(0, 17, 40), np.random.default_rng(2).standard_normal((6, 6))
    data = [numbers(step, 6, 5) for step in range(3)]
    large, halves = [np.ldexp(x, 20) for x in data], np.ldexp(a, -10).astype(np.float16)
    symmetric = sf.round(square + square.T, FP16)
    return (
        a,
        numbers(1, 40, 9),
        a * 2,
        np.abs(a),
        np.ldexp(a.astype(np.float64), -1000),
        halves,
        square,
        symmetric,
        data,
        large,
    )


A, B, TWICE, POSITIVE, WIDE, HALVES, SQUARE, SYMMETRIC, DATA, LARGE = operands()


def trained(policy, optimizer, **options):
    """The weights of a small model after three steps."""
    model = sf.nn.Sequential(sf.nn.Linear(5, 4, rng=0), sf.nn.LayerNorm(4), sf.nn.GELU(), sf.nn.Linear(4, 3, rng=1))
    recorder, adapt = sf.Recorder(), optimizer(model.parameters(), **options)
    schedule = sf.optim.CosineAnnealingLR(adapt, T_max=7)
    with sf.simulate(policy, seed=3, observer=recorder):
        for step in range(3):
            loss = sf.nn.cross_entropy(model(LARGE[step]), np.arange(6) % 3)
            adapt.zero_grad()
            loss.backward()
            adapt.step()
            schedule.step()
    return [*model.state_dict().values(), adapt.param_groups[0]["lr"], repr(recorder.table())]


def torch_trained(policy, optimizer):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Linear(4, 3))
    adapt = optimizer(torch)(model.parameters(), lr=2.0**-30)
    with sf.torch.simulate(model, policy, seed=3):
        for step in range(2):
            loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(DATA[step])), torch.arange(6) % 3)
            adapt.zero_grad()
            loss.backward()
            adapt.step()
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def stored():
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        sf.save(path, model=sf.nn.Linear(3, 2, rng=0))
        model = sf.nn.Linear(3, 2, rng=5)
        sf.load(path, model=model)
    return list(model.state_dict().values())


#: A sample of every family of functions.
FAMILIES = {
    "facts of formats": lambda: [
        np.array([*sf.finfo(f), f.max, f.min, f.eps, f.unit_roundoff, f.smallest_normal, f.smallest_subnormal])
        for f in (*(sf.Format(*widths) for widths in ((11, 52), (8, 23), (8, 7), (5, 10), (4, 3))), sf.fixed(8, 6))
    ],
    "texts of formats": lambda: [str(sf.as_format(name)) for name in ("e4m3", "bf16", "e5m2fnuz", "half")],
    "values": lambda: sf.Format(5, 2).values(),
    "spacings": lambda: [sf.ulp(A, FP16), sf.ulp(WIDE, sf.FP64), sf.nextafter(sf.round(A, BF16), 1, BF16)],
    **{
        f"round to {f}": (lambda f=f: [sf.round(A, f), sf.round(WIDE, f)]) for f in (FP16, BF16, E4M3, sf.FP32, sf.TF32)
    },
    "round in other modes": lambda: [sf.round(A, FP16, mode) for mode in (sf.toward_zero, sf.to_odd, sf.nearest_away)],
    "round at random": lambda: sf.round(A, BF16, sf.stochastic(8), stream=sf.BitStream(1)),
    "round other types": lambda: [sf.round(HALVES, E4M3), sf.round([*WIDE[0].tolist(), 3], sf.FP64), sf.round(7, E4M3)],
    "flags": lambda: sf.round(A, FP16, flags=True),
    "codes": lambda: [sf.encode(sf.round(A, f), f) for f in (FP16, BF16, E4M3, sf.FP32, sf.Format(8, 20))],
    "numbers of codes": lambda: [
        sf.decode(np.arange(256, dtype=np.uint8), f) for f in (E4M3, sf.E5M2, sf.E8M0, sf.E4M3FNUZ)
    ],
    "scale formats": lambda: sf.round(POSITIVE, sf.E8M0),
    "operations": lambda: [
        getattr(sf, name)(A, A[::-1], f) for name in ("add", "subtract", "multiply", "divide") for f in (FP16, sf.FP32)
    ],
    "fma": lambda: sf.fma(A, A[::-1], TWICE, BF16),
    "functions": lambda: [
        getattr(sf, name)(A, FP16) for name in ("exp", "tanh", "erf", "sigmoid", "gelu", "sin", "log", "sqrt", "lgamma")
    ],
    "powers": lambda: [sf.power(POSITIVE, 0.5, FP16), sf.power(A, 2.0, BF16), sf.power(A, 3.0, sf.FP32)],
    "blocks": lambda: [
        sf.block_quantize(A, E4M3, block=8, scale=scale, rule=rule).values() if scale is sf.E8M0 else None
        for scale in (sf.E8M0,)
        for rule in ("floor", "ceil", "rceil", "even")
    ],
    "two levels": lambda: sf.block_quantize(A, sf.E2M1, block=16, scale=E4M3, axis=0).values(),
    **{
        f"sums, {accumulate}": (lambda accumulate=accumulate: sf.matmul(A, B, inputs=FP16, accumulate=accumulate))
        for accumulate in (
            FP16, BF16, sf.FP32, sf.sequential(BF16, products=BF16), sf.sequential(FP16, rounding=sf.toward_negative),
            sf.pairwise(FP16), sf.kahan(BF16), sf.blocked(8, FP16, sf.FP32), sf.fused(4, 24),
            sf.lanes(4, FP16, sf.FP32), sf.tensor_core("hopper", FP16), sf.matrix_core("cdna3", FP16),
        )
    },
    "exact sums": lambda: sf.matmul(A, B, accumulate=sf.exact, output=FP16),
    "random sums": lambda: sf.dot(
        A[0], A[1], accumulate=sf.sequential(FP16, rounding=sf.stochastic(8)), stream=sf.BitStream(4)
    ),
    "sum": lambda: [sf.sum(A, axis=0, accumulate=f) for f in (FP16, sf.FP32)],
    "partial sums": lambda: sf.partial_sums(A[0], A[1], accumulate=sf.FP32),
    "scaled products": lambda: sf.matmul(A, B, inputs=sf.cast(E4M3, scale=sf.per_tensor()), accumulate=sf.FP32),
    "block scaled products": lambda: sf.matmul(
        A, B, inputs=sf.cast(E4M3, scale=sf.block(8, sf.E8M0)), accumulate=sf.FP32
    ),
    "convolutions": lambda: sf.conv2d(A[:4, :36].reshape(1, 4, 6, 6), B[:, :4].reshape(10, 4, 2, 2), accumulate=FP16),
    "arrays": lambda: [
        (lambda x: np.asarray((x * x + 0.1) / (abs(x) + 1)))(sf.array(A, FP16)),
        np.asarray(sf.array(A, BF16).sum()),
    ],
    "lu": lambda: sf.linalg.lu(sf.array(sf.round(SQUARE, FP16), FP16)),
    "qr": lambda: sf.linalg.qr(sf.array(sf.round(SQUARE, BF16), BF16)),
    "eigh": lambda: sf.linalg.eigh(sf.array(SYMMETRIC, FP16)),
    "solve": lambda: repr(sf.linalg.solve(SQUARE, SQUARE[0], factor=FP16, work=sf.FP32, residual=sf.FP64)),
    "training, SGD": lambda: trained("bf16-stochastic", sf.optim.SGD, lr=2.0**-10, momentum=0.9),
    "training, AdamW": lambda: trained("fp16-standard", sf.optim.AdamW, lr=1e-3),
    "training, FP8": lambda: trained("fp8-hybrid", sf.optim.Adam, lr=1e-3),
    "training, MX": lambda: trained("mxfp8", sf.optim.Adafactor),
    "PyTorch, SGD": lambda: torch_trained("bf16-standard", lambda torch: torch.optim.SGD),
    "PyTorch, Adam": lambda: torch_trained("fp16-standard", lambda torch: torch.optim.Adam),
    "loss scales": lambda: [sf.optim.DynamicLossScale().get_scale(), sf.optim.StaticLossScale(3.0).get_scale()],
    "means and shares": lambda: [
        *((runs := Repetitions(SQUARE)).mean, runs.variance, runs.standard_error),
        sf.cost(sf.nn.Linear(5, 3), sf.nn.mse_loss, (DATA[0], DATA[1][:, :3]), "mxfp8").bytes_per_parameter,
    ],
    "files": stored,
}  # fmt: skip


def bits(result):
    """A result as bytes, whatever it is made of."""
    if isinstance(result, list | tuple):
        return [bits(one) for one in result]
    if isinstance(result, str | float | int | None):
        return repr(result)
    return type(result).__name__ if result is None else np.asarray(result).tobytes()


@pytest.mark.parametrize("name", FAMILIES)
def test_results_are_those_of_the_usual_environment(name):
    usual = bits(FAMILIES[name]())
    for kind, content in ENVIRONMENTS.items():
        with environment(kind):
            result, left = FAMILIES[name](), control_bits()
        assert bits(result) == usual, kind
        assert left == content, "the environment is left as it was"


#: The process has no bytecode of other processes, so Python also folds the constants of modules in this environment.
SCRIPT = """
import pickle, sys
import numpy, ctypes, platform
sys.dont_write_bytecode = True
from simfloat.studies.repeating import Repetitions
from tests.unusual import environment
with environment("flush_up"):
    import simfloat as sf
    from tests.test_environment import FAMILIES, bits
    sf.set_threads(3)
    results = {name: bits(FAMILIES[name]()) for name in sys.argv[2:]}
pickle.dump(results, open(sys.argv[1], "wb"))
"""


def test_a_process_that_imports_and_starts_threads_in_an_unusual_environment_has_the_same_results(tmp_path):
    names = [name for name in FAMILIES if not name.startswith(("training", "PyTorch"))] + ["training, AdamW"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "results"), *names]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    results = pickle.loads((tmp_path / "results").read_bytes())
    assert [name for name in names if results[name] != bits(FAMILIES[name]())] == []


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_an_unusual_environment_is_reported(kind):
    assert is_usual()
    with environment(kind):
        assert not is_usual()
        assert unusual_facts()
    assert unusual_facts() == []


def test_each_difference_is_reported_by_itself():
    told = {kind: None for kind in ENVIRONMENTS}
    for kind in told:
        with environment(kind):
            told[kind] = unusual_facts()
    assert told["up"] == ["rounds up"]
    assert told["toward_zero"] == ["rounds toward zero", "takes subnormal operands for zero"]
    assert told["flush"] == ["takes subnormal operands for zero", "flushes subnormal results to zero"]


def test_long_arrays_are_rounded_on_several_threads_as_in_the_usual_environment():
    x = np.full(1 << 20, 2.0**-149, np.float32)
    sf.set_threads(2)
    with environment("flush"):
        assert np.count_nonzero(sf.round(x, sf.FP32).view(np.uint32) != 1) == 0
        assert np.count_nonzero(sf.add(x, x, sf.FP32).view(np.uint32) != 2) == 0


def test_an_error_leaves_the_environment_as_it_was():
    with environment("flush_up"):
        with pytest.raises(ValueError):
            sf.matmul(A, A, accumulate=FP16)
        with pytest.raises(ValueError):
            sf.encode(0.1, E4M3)
        assert control_bits() == ENVIRONMENTS["flush_up"]


def test_an_interrupt_leaves_the_environment_as_it_was():
    @in_usual_environment
    def interrupted():
        assert is_usual()
        raise KeyboardInterrupt

    with environment("flush_up"):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert control_bits() == ENVIRONMENTS["flush_up"]


class Looking(sf.Observer):
    """Notes the environment that it is called in, and changes it."""

    def __init__(self):
        self.seen, self.blocks = [], []

    def observe(self, events, operation, path="", phase="forward"):
        self.seen.append(control_bits())
        self.blocks.append(environment("down"))
        self.blocks[-1].__enter__()


@pytest.mark.parametrize("kind", [None, "flush_up"])
def test_an_observer_runs_in_its_callers_environment_and_what_it_changes_ends_with_it(kind):
    expected = sf.matmul(A, B, inputs=FP16, accumulate=FP16, output=BF16)
    looking, before = Looking(), ENVIRONMENTS[kind] if kind else 0
    with environment(kind) if kind else nullcontext():
        result = sf.matmul(A, B, inputs=FP16, accumulate=FP16, output=BF16, observer=looking)
        after = control_bits()
        for block in reversed(looking.blocks):
            block.__exit__(None, None, None)
    assert bits(result) == bits(expected)
    assert (looking.seen, after) == ([before] * 3, before)


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_a_training_is_resumed_in_an_unusual_environment(kind, tmp_path):
    def losses(steps, **options):
        model = sf.nn.MLP([5, 4, 3], rng=0)
        optimizer = sf.optim.Adam(model.parameters(), 0.05, betas=(0.9, 0.999))
        batches = [(x, x[:, :3]) for x in DATA[:steps]]
        with sf.simulate("bf16-standard", seed=1):
            history = sf.train.fit(model, sf.nn.mse_loss, batches, optimizer, progress=False, **options)
        return history["loss"]

    whole = losses(3)
    losses(2, checkpoint=tmp_path, every=1)
    with environment(kind):
        assert losses(3, resume=tmp_path) == whole


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_numbers_are_read_from_text_to_nearest(kind):
    numbers = np.random.default_rng(3).standard_normal(1000).tolist()
    text = json.dumps(numbers)
    with environment(kind):
        read = parse_json(text)
    assert read == numbers


class Own(sf.Observer):
    """Notes the environment that it is called in."""

    def __init__(self):
        self.seen = set()

    def observe(self, events, operation, path="", phase="forward"):
        self.seen.add(control_bits())


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_an_observed_call_leaves_the_environment_as_it_was(kind):
    layer, x, image = sf.nn.Linear(5, 3, rng=0), DATA[0], A[:4, :36].reshape(1, 4, 6, 6)
    for call in (
        lambda observer: sf.round(A, FP16, observer=observer),
        lambda observer: sf.round(WIDE, sf.FP64, observer=observer),
        lambda observer: sf.add(A, A, BF16, observer=observer),
        lambda observer: sf.exp(A, BF16, observer=observer),
        lambda observer: sf.sum(A, accumulate=BF16, observer=observer),
        lambda observer: sf.dot(A[0], A[1], accumulate=sf.kahan(FP16), observer=observer),
        lambda observer: sf.conv2d(image, image[:, :, :2, :2], inputs=FP16, accumulate=FP16, observer=observer),
        lambda observer: sf.array(A, FP16, observer=observer) * 2.0 + 1.0,
        lambda observer: observed_training(observer, layer, x),
    ):
        own = Own()
        with environment(kind):
            call(own)
            assert control_bits() == ENVIRONMENTS[kind]
        assert own.seen == {ENVIRONMENTS[kind]}


def observed_training(observer, layer, x):
    with sf.simulate("bf16-standard", observer=observer):
        layer(x).sum().backward()
        sf.optim.SGD(layer.parameters(), 0.5).step()


def test_a_users_function_is_called_in_the_environment_of_the_user():
    def seen(x):
        return control_bits() + x

    guarded = in_usual_environment(lambda: (control_bits(), in_callers_environment(seen, 0), control_bits()))
    with environment("up"):
        assert guarded() == (0, ENVIRONMENTS["up"], 0)
    assert guarded() == (0, 0, 0)


def test_two_threads_have_each_its_own_environment():
    expected, results = bits(sf.add(A, A, sf.FP32)), {}

    def compute(kind):
        with environment(kind):
            for _ in range(50):
                results.setdefault(kind, set()).add(bits(sf.add(A, A, sf.FP32)))
                time.sleep(0)
            results.setdefault("left", {})[kind] = control_bits()

    threads = [threading.Thread(target=compute, args=(kind,)) for kind in ("flush", "up")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.pop("left") == {kind: ENVIRONMENTS[kind] for kind in ("flush", "up")}
    assert set(results) == {"flush", "up"}
    assert all(found == {expected} for found in results.values())


def test_a_decorated_function_keeps_its_parameters_and_defaults():
    @in_usual_environment
    def function(a, b=1, /, c=2, *rest, d, e=5, **others):
        return a, b, c, rest, d, e, others

    assert function(1, d=3) == (1, 1, 2, (), 3, 5, {})
    assert function(1, 2, 3, 4, 5, d=6, z=7) == (1, 2, 3, (4, 5), 6, 5, {"z": 7})
    with environment("up"):
        assert function(1, 2, 3, 4, d=6, z=7) == (1, 2, 3, (4,), 6, 5, {"z": 7})
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'd'"):
        function(1)


def test_the_command_line_names_an_unusual_environment(capsys):
    from simfloat.tools.commands import info, selftest

    with environment("flush"):
        info.run(None)
    assert "unusual: takes subnormal operands for zero, flushes subnormal results to zero" in capsys.readouterr().out
    assert selftest.unusual_facts is unusual_facts
