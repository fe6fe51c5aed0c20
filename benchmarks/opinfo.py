"""PyTorch's own list of its operations, with its own samples, under a policy: python -m benchmarks.opinfo --help.

Every operation runs forward, backward and in place, and is compared with plain PyTorch in float64 on the same numbers:
by bits where all that happens is one rounding, else by what rounding may lose. The list needs the package expecttest.
"""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
from torch.utils._pytree import tree_leaves, tree_map

import simfloat as sf

#: What becomes of an operation, the best first.
WORDS = ("right", "refused", "slow", "wrong", "crashed")

#: The type of the samples by policy.
TYPES = {"fp32": torch.float32, "fp64": torch.float64}

#: Operations that PyTorch rounds once, so that bits are defined; float64 results, rounded again, are these bits, since
#: 53 bits are at least twice 24 and 2 (Figueroa 1995).
ONCE = frozenset(
    """
    aten.add.Tensor aten.sub.Tensor aten.mul.Tensor aten.div.Tensor aten.sqrt.default aten.reciprocal.default
    aten.abs.default aten.neg.default aten.sgn.default aten.sign.default aten.floor.default aten.ceil.default
    aten.trunc.default aten.round.default aten.maximum.default aten.minimum.default aten.fmax.default
    aten.fmin.default aten.relu.default aten.square.default aten.clamp.default aten.clamp_min.default
    aten.clamp_max.default aten.copysign.Tensor aten.fmod.Tensor aten.remainder.Tensor aten.floor_divide.default
    """.split()
)

#: Operations whose results are whatever lay in memory.
UNDEFINED = ("empty", "resize_")

#: Of how many roundings an element of an operation's result may be the result, for each element that goes in.
STEPS = 8


class Verdict(NamedTuple):
    """What became of an operation, and why."""

    word: str
    why: str = ""


class Slow(BaseException):
    """An operation took longer than it may."""


def judged(entry: Any, policy: str, count: int, limit: float) -> Verdict:
    """The worst verdict of an operation's samples, `count` of them, forward, backward and in place."""
    found = Verdict("right")
    try:
        with time_limit(limit):
            for sample in samples_of(entry, TYPES[policy], count):
                for variant in variants_of(entry):
                    found = max(found, judged_sample(variant, sample, policy, entry), key=rank)
    except Slow:
        found = max(found, Verdict("slow", f"more than {limit:g} s"), key=rank)
    return found


def rank(verdict: Verdict) -> int:
    """How bad a verdict is."""
    return WORDS.index(verdict.word)


@contextmanager
def time_limit(limit: float) -> Iterator[None]:
    """A ``with`` block that Slow ends after so many seconds of the processor."""

    def stop(*_: Any) -> None:
        raise Slow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def samples_of(entry: Any, dtype: torch.dtype, count: int) -> list[Any]:
    """So many of the operation's samples, from all over their list."""
    torch.manual_seed(0)
    needs_gradients = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    found = list(entry.sample_inputs("cpu", dtype, requires_grad=needs_gradients))
    return found[:: -(-len(found) // count)] if found else []


def variants_of(entry: Any) -> Iterator[Callable[..., Any]]:
    """The operation, and the one that writes to its first operand."""
    yield entry.op
    if entry.inplace_variant is not None:
        yield lambda x, *args, **options: entry.inplace_variant(x.clone(), *args, **options)


def judged_sample(function: Callable[..., Any], sample: Any, policy: str, entry: Any) -> Verdict:
    """What becomes of one call; right where plain PyTorch refuses it too."""
    try:
        plain = results_of(function, sample)
    except Exception:
        return Verdict("right")
    model = torch.nn.Identity()
    try:
        with sf.torch.simulate(model, policy) as run:
            ours = results_of(function, sample)
    except Exception as error:
        return refusal(error)
    if any(name in entry.name for name in UNDEFINED):
        return Verdict("right")
    # Numbers by chance are others in float64, though they begin with the same seed.
    is_random = any(torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()) for func, _, _ in run.met)
    truth = plain if is_random else exact_or(function, sample, plain)
    operations = {str(func) for func, how, _ in run.met if how not in ("movement", "PyTorch")}
    return compared(ours, plain, truth, sample, policy, operations)


def refusal(error: Exception) -> Verdict:
    """Refused where this package says so by ValueError, else crashed."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = isinstance(error, ValueError) and Path(sf.__file__).parent in Path(last.filename).parents
    text = " ".join(str(error).split())
    return Verdict("refused", text) if is_ours else Verdict("crashed", f"{type(error).__name__}: {text}")


def results_of(function: Callable[..., Any], sample: Any, wide: bool = False) -> list[torch.Tensor]:
    """The results, and the gradients of operands where there are any."""

    def fresh(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        made = (x.double() if wide and x.dtype == torch.float32 else x).detach().clone()
        return made.requires_grad_(x.requires_grad)

    first, args, options = tree_map(fresh, (sample.input, sample.args, sample.kwargs))
    torch.manual_seed(0)
    results = sample.output_process_fn_grad(function(first, *args, **options))
    results = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor)]
    leaves = [x for x in tree_leaves((first, args, options)) if isinstance(x, torch.Tensor) and x.requires_grad]
    ends = [x for x in results if x.requires_grad]
    gradients: tuple[Any, ...] = ()
    if leaves and ends:
        gradients = torch.autograd.grad(ends, leaves, [weights_of(x) for x in ends], allow_unused=True)
    return [x.detach() for x in (*results, *gradients) if x is not None]


def weights_of(x: torch.Tensor) -> torch.Tensor:
    """A gradient to begin a backward pass with: numbers between 1/2 and 3/2."""
    return torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64).to(x.dtype).reshape(x.shape)


def exact_or(function: Callable[..., Any], sample: Any, plain: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results of the same numbers in float64; plain ones where PyTorch has none."""
    try:
        wide = results_of(function, sample, wide=True)
    except Exception:
        return plain
    return wide if len(wide) == len(plain) else plain


def compared(
    ours: list[torch.Tensor], plain: list[torch.Tensor], truth: list[torch.Tensor], sample: Any, policy: str,
    operations: set[str],
) -> Verdict:  # fmt: skip
    """Whether results are what they have to be."""
    if len(ours) != len(plain):
        return Verdict("wrong", f"{len(ours)} results and gradients instead of {len(plain)}")
    inputs = [x for x in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(x, torch.Tensor)]
    largest, count = max(map(size_of, inputs), default=0.0), max((x.numel() for x in inputs), default=1)
    is_once = not operations or (len(operations) == 1 and operations <= ONCE and "alpha" not in sample.kwargs)
    for number, (mine, its, exact) in enumerate(zip(ours, plain, truth, strict=True)):
        if mine.shape != its.shape or mine.dtype != its.dtype:
            return Verdict("wrong", f"result {number} is {mine.dtype} {tuple(mine.shape)}, not {its.dtype} "
                           f"{tuple(its.shape)}")  # fmt: skip
        due = exact.to(its.dtype) if number == 0 and is_once else None
        if due is not None and not its.is_complex():
            if not same(mine, due):
                return Verdict("wrong", f"result {number} is not rounded once: {difference(mine, due)}")
        elif not close(mine, its, exact, policy, largest, count):
            return Verdict("wrong", f"result {number}: {difference(mine, its)}")
    return Verdict("right")


def size_of(x: torch.Tensor) -> float:
    """The largest finite |x|."""
    numbers = dense(x).double().abs().nan_to_num(0.0, 0.0, 0.0)
    return float(numbers.max()) if numbers.numel() else 0.0


def dense(x: torch.Tensor) -> torch.Tensor:
    """A tensor's numbers, whichever way they are stored."""
    x = x.to_dense() if x.layout != torch.strided else x
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x.resolve_neg()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same bits; one NaN is as good as another."""
    a, b = dense(a), dense(b)
    if a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()):
        return False
    return not a.is_floating_point() or bool(((a.signbit() == b.signbit()) | a.isnan()).all())


def close(mine: torch.Tensor, its: torch.Tensor, exact: torch.Tensor, policy: str, largest: float, count: int) -> bool:
    """Whether numbers are as near to the exact ones as `count` times STEPS roundings leave them.

    What roundings lose is measured by the largest of 1, the operands and the results; where PyTorch itself loses more,
    by four times that. Integers and truth values are PyTorch's.
    """
    mine, its, exact = dense(mine), dense(its), dense(exact)
    if not mine.is_floating_point():
        return torch.equal(mine, its)
    unit = torch.finfo(TYPES[policy]).eps / 2
    numbers, wide = mine.double(), exact.double()
    lost = (its.double() - wide).abs().nan_to_num(0.0, 0.0)
    bound = STEPS * count * unit * max(1.0, largest, size_of(exact)) + 4 * lost.max() if lost.numel() else lost
    near = (numbers - wide).abs() <= bound
    return bool((near | (numbers == its.double()) | (numbers.isnan() & its.isnan())).all())


def difference(mine: torch.Tensor, due: torch.Tensor) -> str:
    """The first two numbers that differ."""
    mine, due = dense(mine).reshape(-1), dense(due).reshape(-1)
    at = int((mine != due).double().argmax()) if mine.numel() else 0
    return f"{mine[at].item()!r} instead of {due[at].item()!r}" if mine.numel() else "nothing"


def entries(names: tuple[str, ...]) -> list[Any]:
    """PyTorch's list for float32, or those of these names."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise SystemExit(f"PyTorch's list of operations cannot be read: {error}. pip install expecttest") from None
    return [x for x in op_db if torch.float32 in x.dtypes and (not names or x.name in names)]


def title_of(entry: Any) -> str:
    """The operation's name, and that of its variant."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


@click.command()
@click.argument("names", nargs=-1)
@click.option("--policy", type=click.Choice(list(TYPES)), default="fp32", help="float32 or float64 samples.")
@click.option("--samples", default=10, help="How many samples of each operation.")
@click.option("--limit", default=20.0, help="Seconds of the processor that an operation may take.")
@click.option("--part", default="1/1", help="The i-th of n parts of the list, as i/n.")
@click.option("--all", "show_all", is_flag=True, help="Name those that are right or refused, too.")
def main(names: tuple[str, ...], policy: str, samples: int, limit: float, part: str, show_all: bool) -> None:
    """Judge PyTorch's operations, or those of these NAMES: right, refused, slow, wrong or crashed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sf.set_threads(1)
    number, parts = map(int, part.split("/"))
    counts: Counter[str] = Counter()
    for entry in entries(names)[number - 1 :: parts]:
        verdict = judged(entry, policy, samples, limit)
        counts[verdict.word] += 1
        if show_all or verdict.word not in WORDS[:2]:
            print(f"{verdict.word:8} {title_of(entry):40} {verdict.why[:200]}", flush=True)
    print(", ".join(f"{counts[word]} {word}" for word in WORDS))
    sys.exit(1 if counts["wrong"] or counts["crashed"] else 0)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.opinfo")
