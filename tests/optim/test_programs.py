"""Updates that run as programs give the bits, the state and the random bits of their single operations."""

import math

import numpy as np
import pytest

import simfloat as sf
from simfloat import kernels
from simfloat.arithmetic import programs as program_runs
from simfloat.arithmetic.programs import NoProgram, NumberTrace, ProgramWriter, are_usable, program_grid
from simfloat.kernels.program_table import REGISTERS
from simfloat.optim import optimizer as optimizers
from simfloat.simulation import update_programs
from tests.bits import assert_bits

KINDS = {
    "SGD": dict(lr=0.1),
    "SGD with momentum": dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01, maximize=True),
    "SGD of Nesterov": dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": dict(lr=0.01, weight_decay=0.1, amsgrad=True),
    "AdamW": dict(lr=0.01, betas=(0.0, 0.5)),
    "Adagrad": dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.3),
    "Lion": dict(lr=0.01, weight_decay=0.1, betas=(0.5, 0.75)),
    "RMSprop": dict(lr=1.0, alpha=0.5, weight_decay=0.1),
    "RMSprop, centered, with momentum": dict(lr=0.01, momentum=0.9, centered=True, maximize=True),
    "NAdam": dict(lr=0.01, weight_decay=0.1),
    "NAdam, decoupled": dict(betas=(0.5, 0.75), weight_decay=0.1, decoupled_weight_decay=True),
    "RAdam": dict(lr=0.01, betas=(0.9, 0.5), weight_decay=0.1),
    "RAdam, decoupled": dict(lr=0.01, betas=(0.5, 0.99), weight_decay=0.1, decoupled_weight_decay=True),
    "Adamax": dict(lr=0.01, eps=0.0, weight_decay=0.1),
    "Adadelta": dict(weight_decay=0.1),
}
every_kind = pytest.mark.parametrize("kind", KINDS)

MODES = (
    *(sf.nearest_even, sf.nearest_away, sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.to_odd),
    *(sf.stochastic(), sf.stochastic(8), sf.stochastic(3, "B"), sf.stochastic(12).saturating()),
    sf.nearest_even.saturating(),
)

#: Formats of every kind of rounding loop: FP32's own, plain grids, and others.
FORMATS = (sf.FP32, sf.BF16, sf.FP16, sf.E4M3, sf.E5M2FNUZ, sf.Format(5, 10, subnormals=False), sf.Format(8, 1))

SHAPES = ((3,), (), (0, 3), (1031,), (23, 61))


def hostile(rng, shape):
    """Numbers near one and far from it, ties, zeros, infinities and NaN."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 8, shape)
    x = np.where(rng.random(shape) < 0.05, x * 2.0 ** rng.integers(-140, 120, shape).astype(float), x)
    x = np.where(rng.random(shape) < 0.3, np.round(x * 4) / 4, x)
    for value in (np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0**-149, 3.4e38):
        x = np.where(rng.random(shape) < 0.004, value, x)
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float32)


def trained(kind, policy, rng, observer=None, steps=3):
    """The parameters, what is kept of them and where the streams are, after some steps."""
    parameters = [sf.Parameter(hostile(rng, shape)) for shape in SHAPES]
    for number, p in enumerate(parameters):
        p.name = f"p{number}"
    optimizer, simulation = (
        getattr(sf.optim, kind.split()[0].strip(","))(parameters, **KINDS[kind]),
        sf.simulate(policy, 3, observer),
    )
    for step in range(steps):
        for p in parameters:
            p.grad = hostile(rng, p.shape)
        parameters[0].grad = None if step == 1 else np.asfortranarray(parameters[0].grad)
        with simulation:
            optimizer.step()
    return [p.data for p in parameters], optimizer.state, simulation.state


def assert_same(got, want):
    (numbers, kept, streams), (others, others_kept, others_streams) = got, want
    assert streams == others_streams
    for x, y in zip(numbers, others, strict=True):
        assert_bits(x, y)
        assert x.dtype == y.dtype
    for x, y in zip(kept, others_kept, strict=True):
        assert list(x) == list(y)
        for name in x:
            assert_bits(x[name], y[name])


@pytest.fixture
def one_by_one(monkeypatch):
    """A function that lets no update be a program."""
    return lambda: monkeypatch.setattr(optimizers, "run_as_program", lambda *_: None)


@pytest.fixture
def ran(monkeypatch):
    """True for each update that was a program."""
    found, run = [], optimizers.run_as_program

    def noted(*arguments):
        updated = run(*arguments)
        found.append(updated is not None)
        return updated

    monkeypatch.setattr(optimizers, "run_as_program", noted)
    return found


@every_kind
@pytest.mark.parametrize("update", ["nearest", "stochastic", "kahan"])
def test_a_program_is_its_operations_in_every_mode_and_format(kind, update, ran, one_by_one):
    rng = np.random.default_rng(len(kind) + len(update))
    cases = [sf.Policy(compute=format, rounding=mode, update=update) for format in FORMATS for mode in MODES]
    cases = [cases[i] for i in rng.permutation(len(cases))[:2]]
    cases += [sf.Policy(compute=sf.BF16, optimizer_state=sf.FP32, update=update)]
    cases += [sf.Policy(compute=sf.FP16, weights=sf.FP32, optimizer_state=sf.E5M2, update=update)]
    seeds = range(len(cases))
    got = [trained(kind, policy, np.random.default_rng(seed)) for seed, policy in zip(seeds, cases, strict=True)]
    assert ran.count(True) > len(ran) // 4, "FP32 with long draws is computed one by one"
    one_by_one()
    for seed, policy, found in zip(seeds, cases, got, strict=True):
        assert_same(found, trained(kind, policy, np.random.default_rng(seed)))


def recorded(kind, policy, seed, path=None):
    """The counts and the bits of two steps with many zeros and small numbers, and with hard ones."""
    rng, recorder = np.random.default_rng(seed), sf.Recorder(path)
    parameters = [sf.Parameter(x) for x in (rng.standard_normal(1500).astype(np.float32), hostile(rng, 300))]
    for number, p in enumerate(parameters):
        p.name = f"p{number}"
    optimizer = getattr(sf.optim, kind.split()[0].strip(","))(parameters, **KINDS[kind])
    simulation = sf.simulate(policy, 1, recorder)
    for _ in range(2):
        numbers = rng.standard_normal(1500) * 2.0 ** rng.integers(-145, 3, 1500)
        parameters[0].grad = np.where(rng.random(1500) < 0.3, -0.0, numbers).astype(np.float32)
        parameters[1].grad = hostile(rng, 300)
        with simulation:
            optimizer.step()
    return recorder.entries(), ([p.data for p in parameters], optimizer.state, None)


@pytest.mark.parametrize("kind", ["SGD with momentum", "NAdam"])
def test_an_observer_counts_the_same_of_a_program_and_changes_no_bit(kind, ran, one_by_one):
    cases = [sf.Policy(compute=format, rounding=mode) for format, mode in zip(FORMATS, MODES, strict=False)]
    cases += ["bf16-stochastic", "bf16-kahan", "bf16-standard"]
    got = [recorded(kind, policy, seed) for seed, policy in enumerate(cases)]
    assert ran.count(True) > len(ran) // 8, "and what has infinities is counted one by one"
    one_by_one()
    for seed, (policy, (counts, bits)) in enumerate(zip(cases, got, strict=True)):
        others, other_bits = recorded(kind, policy, seed)
        assert_same(bits, other_bits)
        assert [key for key, _ in counts] == [key for key, _ in others]
        for (key, events), (_, want) in zip(counts, others, strict=True):
            assert np.array_equal(events, want), key


@pytest.mark.parametrize("path", ["*.exp_avg*", "p0", "*.update", "p1*", "no parameter"])
def test_an_observer_of_some_places_counts_the_same_of_a_program(path, ran, one_by_one):
    counts, bits = recorded("AdamW", "bf16-standard", 5, path)
    assert ran.count(True) > (2 if path == "no parameter" else 1), "events that nobody wants need no exact results"
    one_by_one()
    others, other_bits = recorded("AdamW", "bf16-standard", 5, path)
    assert_same(bits, other_bits)
    assert [key for key, _ in counts] == [key for key, _ in others]
    assert all(np.array_equal(events, want) for (_, events), (_, want) in zip(counts, others, strict=True))


class Calls(sf.Observer):
    """Everything that an observer receives."""

    def __init__(self):
        self.calls = []

    def observe(self, events, operation, path="", phase="forward"):
        self.calls.append((operation, path, phase, events.tobytes()))


class Sums(sf.Recorder):
    """A recorder of the user's, which counts calls."""

    calls = 0

    def observe(self, *given):
        self.calls += 1
        super().observe(*given)


def test_an_observer_of_the_users_receives_every_call(one_by_one):
    def watched():
        observers = Calls(), Sums(), sf.Recorder()
        for observer in observers:
            trained("AdamW", "bf16-standard", np.random.default_rng(2), observer)
        return observers

    calls, sums, recorder = watched()
    assert [x.tobytes() for _, x in sums.entries()] == [x.tobytes() for _, x in recorder.entries()]
    one_by_one()
    singly, single_sums, single_recorder = watched()
    assert calls.calls == singly.calls and sums.calls == single_sums.calls == len(calls.calls)
    assert [x.tobytes() for _, x in single_recorder.entries()] == [x.tobytes() for _, x in recorder.entries()]


def test_parameters_share_the_scalars_of_a_step_but_no_array_of_their_state():
    parameters = [sf.Parameter(np.ones(3, np.float32)) for _ in range(3)]
    optimizer = sf.optim.NAdam(parameters)
    for p in parameters:
        p.grad = np.ones(3, np.float32)
    with sf.simulate("bf16-standard"):
        optimizer.step()
        optimizer.state[0]["step"][...] = 9.0
        parameters[2].grad = None
        optimizer.step()
    assert [float(state["step"]) for state in optimizer.state] == [10.0, 2.0, 1.0]


def test_a_written_function_repeats_a_computation_until_a_test_has_another_result():
    def rate(x, y):
        z = 1 - x**y
        return [-z / y if z > 0.5 else abs(z), 2.0] if y else []

    trace = NumberTrace((0.5, 2.0))
    function = trace.write_function(rate(*trace.traced_inputs))
    assert function(0.5, 2.0) == tuple(rate(0.5, 2.0)) and function(0.1, 3.0) == tuple(rate(0.1, 3.0))
    assert function(0.9, 2.0) is None
    with pytest.raises(ZeroDivisionError):
        function(0.0, -1.0)
    assert function(0.1, 0.0) is None, "and what follows the test is not computed"
    constant = NumberTrace(())
    assert constant.write_function([0.25, -0.0])() == (0.25, -0.0)


SCALARS = (
    0.1, -0.9, 1e-8, 257 / 129, 1.5, -2.0, 0.0, -0.0, 1 / 3, 2.0**-95, 2.0**120, 1 - 2.0**-20, 3e-40, 1 + 2.0**-30,
)  # fmt: skip


@pytest.mark.parametrize("format", [sf.BF16, sf.FP32, sf.Format(8, 2), sf.FP16], ids=str)
@pytest.mark.parametrize("operation", ["add", "multiply", "divide", "sqrt"])
def test_each_instruction_is_its_operation_for_numbers_of_the_format_and_others(operation, format):
    rng, grid = np.random.default_rng(4), program_grid(format, sf.nearest_even, "update")
    x, y = hostile(rng, 3001), hostile(rng, 3001)
    both = np.resize(sf.BF16.values()[::16], 3001).astype(np.float32)
    for a, b in ((x, y), (sf.round(x, format), sf.round(y, format)), (both, rng.permutation(both))):
        for second in (b,) if operation == "sqrt" else (b, *SCALARS, *b[:3].astype(float)):
            if second is not b and not np.isfinite(second):
                continue
            writer = ProgramWriter()
            registers = writer.input(), writer.input()
            operands = (registers[0], *(() if operation == "sqrt" else (registers[1] if second is b else second,)))
            program, out = writer.program([writer.apply(operation, operands, grid)]), np.empty(3001, np.float32)
            scalars = np.array(writer.scalars or [0.0])
            if are_usable(scalars):
                program_runs.run(program, scalars, (a, b), (out,), ())
                given = (a,) if operation == "sqrt" else (a, second)
                assert_bits(out, getattr(sf, operation)(*given, format), *given)


def test_a_program_has_as_many_registers_as_a_thread_of_a_gpu():
    grid = program_grid(sf.BF16, sf.nearest_even, "update")
    for count in (REGISTERS - 1, REGISTERS):
        writer = ProgramWriter()
        x = writer.input()
        total, *others = [writer.apply("multiply", (x, float(k)), grid) for k in range(count)]
        for other in others:
            total = writer.apply("add", (total, other), grid)
        if count < REGISTERS:
            assert writer.program([total]).registers == REGISTERS
        else:
            with pytest.raises(NoProgram):
                writer.program([total])


def test_one_program_serves_all_steps_and_learning_rates(monkeypatch):
    update_programs._programs.clear()
    p = sf.Parameter(np.ones(3, np.float32))
    optimizer = sf.optim.RAdam([p], betas=(0.9, 0.99))
    for step in range(12):
        optimizer.lr = 0.1 / (step + 1)
        p.grad = np.float32([1.0, 2.0, step])
        with sf.simulate("bf16-standard"):
            optimizer.step()
    kinds = list(update_programs._programs.values())
    assert [len(programs) for programs in kinds] == [1, 2], "the first step, and those before and after rectifying"


def test_a_step_without_a_program_leaves_other_options_theirs(ran):
    update_programs._programs.clear()
    for momentum in (0.5, 0.0, 0.25):
        p = sf.Parameter(np.ones(3, np.float32))
        optimizer = sf.optim.SGD([p], 0.1, momentum=momentum)
        p.grad = np.float32([1.0, 2.0, 3.0])
        with sf.simulate("fp32", observer=sf.Recorder()):
            optimizer.step()
        # The first step with momentum copies the gradient, which an observer counts.
        assert ran == [momentum == 0.0]
        ran.clear()
    (kinds,) = update_programs._programs.values()
    assert [type(each).__name__ for each in kinds] == ["WithoutProgram", "UpdateProgram"]


def test_what_leaves_no_trace_is_a_program_for_its_numbers(ran):
    class Roots(sf.optim.Optimizer):
        kept = ("step",)
        is_elementwise = True

        def update(self, step, gradient, options):
            return step.multiply(-math.sqrt(options.lr) / math.sqrt(step.count()), gradient)

    p = sf.Parameter(np.ones(1, np.float32))
    optimizer = Roots([p], 0.25)
    for want in (0.5, 0.146484375, -0.142578125):
        p.grad = np.ones(1, np.float32)
        with sf.simulate("bf16-standard"):
            optimizer.step()
        assert p.data == want
    assert ran == [True] * 3


def test_threads_draw_the_same_bits():
    results = []
    for threads in (1, 2):
        before = sf.get_threads()
        sf.set_threads(threads)
        try:
            p = sf.Parameter(np.ones(200_003, np.float32))
            p.grad = np.linspace(-1, 1, p.size, dtype=np.float32)
            with sf.simulate(sf.Policy(compute=sf.BF16, rounding=sf.stochastic(8))):
                sf.optim.Adam([p]).step()
        finally:
            sf.set_threads(before)
        results.append(p.data)
    assert_bits(*results)


@pytest.mark.parametrize("policy, options", [
    ("fp64", {}), (sf.Policy(compute=sf.BF16, optimizer_state=sf.FP64), {}), ("bf16-standard", {"lr": 1e-310}),
    (sf.Policy(compute=sf.Format(4, 3, special="finite")), {}),
    (sf.Policy(compute=sf.FP32, rounding=sf.stochastic(31)), {}),
], ids=str)  # fmt: skip
def test_what_float64_does_not_prove_and_wide_arrays_are_computed_one_by_one(policy, options, ran):
    p = sf.Parameter(np.ones(3, np.float32))
    p.grad = np.ones(3, np.float32)
    with sf.simulate(policy):
        sf.optim.Adam([p], **options).step()
        p.grad = np.ones(3)
        sf.optim.Adam([p]).step()
    assert ran == [False, False]


def test_a_scalar_that_brings_a_product_next_to_a_tie_is_rounded_once():
    # 129 * (257 / 129) lies beside 257, the middle between two numbers of BF16, and is 257 in float64.
    lr = float(np.float64(257) / 129)
    for sign in (1.0, -1.0):
        for factor in (lr, float(np.nextafter(lr, 3)), float(np.nextafter(lr, 1))):
            p = sf.Parameter(np.zeros(1, np.float32))
            p.grad = np.full(1, sign * 129, np.float32)
            with sf.simulate("bf16-standard"):
                sf.optim.SGD([p], factor).step()
            assert_bits(p.data, sf.multiply(-factor, np.float32([sign * 129]), sf.BF16))


def test_a_kind_of_the_users_that_says_so_is_a_program(ran):
    class Signs(sf.optim.Optimizer):
        is_elementwise = True

        def update(self, step, gradient, options):
            return step.multiply(-options.lr, step.sign(gradient))

    class Means(Signs):
        is_elementwise = True

        def update(self, step, gradient, options):
            return step.multiply(-options.lr, step.subtract(gradient, step.mean(gradient)))

    class Halves(Signs):
        def update(self, step, gradient, options):
            return step.multiply(-options.lr, np.sign(gradient) / 2)

    for kind, want in ((Signs, [0.75, 1.25]), (Means, [0.75, 1.25]), (Halves, [0.875, 1.125])):
        p = sf.Parameter(np.ones(2, np.float32))
        p.grad = np.array([2.0, 0.0] if kind is Means else [0.5, -3.0], np.float32)
        with sf.simulate("fp32"):
            kind([p], 0.25).step()
        assert p.data.tolist() == want
    assert ran == [True, False]


def test_options_that_differ_by_the_sign_of_zero_have_programs_of_their_own():
    for lr, want in ((0.0, -0.0), (-0.0, 0.0), (0.0, -0.0)):
        p = sf.Parameter(np.float32([-0.0]))
        p.grad = np.float32([1.0])
        with sf.simulate("fp32"):
            sf.optim.SGD([p], lr).step()
        assert_bits(p.data, np.float32([want]))


def test_the_loop_is_compiled_when_it_pays_and_updates_are_carried_out_one_by_one_until_then(
    monkeypatch, ran, tmp_path
):
    asked, compiled = [], [False]
    monkeypatch.setattr(program_runs, "READINESS", program_runs.LoopReadiness())
    monkeypatch.setattr(kernels.compile.jit, "is_compiled", lambda *given: asked.append(given) or compiled[0])
    p = sf.Parameter(np.ones(3, np.float32))
    optimizer = sf.optim.AdamW([p], lr=0.125)

    def step():
        p.grad = np.ones(3, np.float32)
        with sf.simulate("bf16-standard"):
            optimizer.step()
        return ran[-1]

    assert [step(), step()] == [False, False] and len(asked) == 1, "compiled code is searched for once"
    monkeypatch.setattr(program_runs.LoopReadiness, "COMPILATION", 3.0)
    assert [step(), step()] == [True, True] and len(asked) == 1, "the time that was lost is that of a compilation"

    monkeypatch.undo()
    monkeypatch.setattr(program_runs, "READINESS", program_runs.LoopReadiness())
    kinds = update_programs._programs.values()
    instructions = next(x[0].instructions for x in kinds if isinstance(x[0], update_programs.UpdateProgram))
    assert program_runs.READINESS.allows(instructions, 3), "the loop has run in this process"
    loop = program_runs.CPU.loops.programs.run_program
    assert len(loop.overloads) == 1, "one version serves all programs"
    assert loop._cache.has_overload(*loop.overloads)
    monkeypatch.setattr("simfloat.kernels.compile.cache.kernel_directories", lambda: [tmp_path])
    assert not loop._cache.has_overload(*loop.overloads)
