"""Test PyTorch's own list of its operations, with its own samples, under a policy: python -m benchmarks.opinfo --help.

Every operation runs forward, backward and in place, and is compared with plain PyTorch on the same values. Samples in
float32 are compared with results in float64. If an operation rounds once, bits are compared; otherwise an error bound
applies. The list needs the package expecttest.
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
from typing import Any

import click
import torch
from torch.utils._pytree import tree_leaves, tree_map

import simfloat as sf
from benchmarks.verdicts import OTHER, TYPES, WORDS, Verdict, compared, rank

#: Operations that PyTorch computes to few digits in any type: the gradient of hardsigmoid uses 1/6 in float32, and the
#: second derivative of lgamma has nine digits.
FLOAT32_INSIDE = ("hardsigmoid", "digamma", "polygamma")

#: Operations that return uninitialized memory.
UNDEFINED = ("empty", "resize_")


class Slow(BaseException):
    """An operation took longer than allowed."""


def judged(entry: Any, policy: str, count: int, limit: float) -> Verdict:
    """Return the worst verdict of `count` samples of an operation: forward, backward and in place."""
    found = Verdict("right")
    try:
        with time_limit(limit):
            for sample in samples_of(entry, TYPES[policy], count):
                for variant in variants_of(entry):
                    found = max(found, judged_sample(variant, sample, policy, entry), key=rank)
    except Slow:
        found = max(found, Verdict("slow", f"more than {limit:g} s"), key=rank)
    return found


@contextmanager
def time_limit(limit: float) -> Iterator[None]:
    """Raise Slow if a ``with`` block takes more than this number of seconds of processor time."""

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
    """Return `count` samples of the operation, spread over its list."""
    torch.manual_seed(0)
    needs_gradients = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    found = list(inputs_of(entry, dtype, needs_gradients))
    return found[:: -(-len(found) // count)] if found else []


def inputs_of(entry: Any, dtype: torch.dtype, needs_gradients: bool) -> Iterator[Any]:
    """Return the samples of the operation, with the values of its method `sample_inputs`.

    For every sample, that method searches its callers for a test of PyTorch, which takes longer than everything else.
    """
    from torch.testing._internal.common_utils import SEED, set_rng_seed

    samples = iter(entry.sample_inputs_func(entry, "cpu", dtype, needs_gradients))
    while True:
        set_rng_seed(SEED)
        try:
            yield next(samples)
        except StopIteration:
            return


def variants_of(entry: Any) -> Iterator[Callable[..., Any]]:
    """Return the operation, and its variant that writes to the first operand."""
    yield entry.op
    if entry.inplace_variant is not None:
        yield lambda x, *args, **options: entry.inplace_variant(x.clone(), *args, **options)


def judged_sample(function: Callable[..., Any], sample: Any, policy: str, entry: Any) -> Verdict:
    """Return the verdict of one call; it is right if plain PyTorch also raises an error."""
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
    # Random values differ between dtypes, even with the same seed.
    is_random = any(torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()) for func, _, _ in run.met)
    other = plain if is_random else results_or(function, sample, policy, plain)
    operations = {str(func) for func, how, _ in run.met if how not in ("movement", "PyTorch")}
    if any(name in entry.name for name in FLOAT32_INSIDE):
        policy = "fp32"
    return compared(ours, plain, other, sample, policy, operations)


def refusal(error: Exception) -> Verdict:
    """Return the verdict of an exception: refused if it is a ValueError of this package, otherwise crashed."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = isinstance(error, ValueError) and Path(sf.__file__).parent in Path(last.filename).parents
    text = " ".join(str(error).split())
    return Verdict("refused", text) if is_ours else Verdict("crashed", f"{type(error).__name__}: {text}")


def results_of(function: Callable[..., Any], sample: Any, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """Return the results, and the gradients of operands if there are any; real operands are converted to `dtype`."""

    def fresh(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        made = (x.to(dtype) if dtype is not None and x.dtype in OTHER.values() else x).detach().clone()
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
    """Return a gradient to start a backward pass with: values between 1/2 and 3/2."""
    return torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64).to(x.dtype).reshape(x.shape)


def results_or(function: Callable[..., Any], sample: Any, policy: str, plain: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the results for the same values in the other dtype; `plain` if PyTorch has none."""
    try:
        other = results_of(function, sample, OTHER[policy])
    except Exception:
        return plain
    return other if len(other) == len(plain) else plain


def entries(names: tuple[str, ...]) -> list[Any]:
    """Return PyTorch's list for float32, or its entries with these names."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise SystemExit(f"PyTorch's list of operations cannot be read: {error}. pip install expecttest") from None
    return chosen(op_db, names)


def chosen(listed: list[Any], names: tuple[str, ...]) -> list[Any]:
    """Return the entries that accept float32, or those with these names. Raises UsageError for an unknown name."""
    found = [x for x in listed if torch.float32 in x.dtypes]
    for name in names:
        if all(x.name != name for x in found):
            raise click.UsageError(f"PyTorch's list has nothing for float32 that is called {name!r}.")
    return [x for x in found if not names or x.name in names]


def title_of(entry: Any) -> str:
    """Return the name of the operation, with that of its variant."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def tell(found: list[Any], title: Callable[[Any], str], judge: Callable[[Any], Verdict], show_all: bool) -> None:
    """Print each verdict and the number of each kind; exit with 1 if an entry is wrong or crashed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sf.set_threads(1)
    counts: Counter[str] = Counter()
    for entry in found:
        verdict = judge(entry)
        counts[verdict.word] += 1
        if show_all or verdict.word not in WORDS[:2]:
            print(f"{verdict.word:8} {title(entry):40} {verdict.why[:200]}", flush=True)
    print(", ".join(f"{counts[word]} {word}" for word in WORDS))
    sys.exit(1 if counts["wrong"] or counts["crashed"] else 0)


def judging(kind: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return the command that judges a list of PyTorch, with its options."""
    options = (
        click.argument("names", nargs=-1),
        click.option("--policy", type=click.Choice(list(TYPES)), default="fp32", help="float32 or float64 samples."),
        click.option("--samples", default=10, help=f"How many samples of each {kind}."),
        click.option("--limit", default=20.0, help=f"Seconds of the processor that each {kind} may take."),
        click.option("--all", "show_all", is_flag=True, help="Also print the names that are right or refused."),
    )

    def command(function: Callable[..., None]) -> click.Command:
        for option in reversed(options):
            function = option(function)
        return click.command()(function)

    return command


@judging("operation")
def main(names: tuple[str, ...], policy: str, samples: int, limit: float, show_all: bool) -> None:
    """Judge all operations of PyTorch, or the operations NAMES: right, refused, slow, wrong or crashed."""
    tell(entries(names), title_of, lambda entry: judged(entry, policy, samples, limit), show_all)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.opinfo")
