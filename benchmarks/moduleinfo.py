"""Test PyTorch's own list of its modules, with its own samples, under a policy: python -m benchmarks.moduleinfo --help.

Every module runs forward and backward, in training and, if that differs, in evaluation mode. Results, gradients of
operands and of parameters, and buffers are compared with plain PyTorch as `benchmarks.opinfo` compares operations.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

import simfloat as sf
from benchmarks.opinfo import Slow, chosen, judging, refusal, tell, time_limit, weights_of
from benchmarks.verdicts import OTHER, TYPES, Verdict, compared, rank


class Sample:
    """A module, and the arguments of its call."""

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, options
        self.input = list(module.parameters())

    def copied(self, dtype: torch.dtype | None = None) -> Sample:
        """Return a copy, with real tensors converted to `dtype` if one is passed."""

        def fresh(x: Any) -> Any:
            if isinstance(x, PackedSequence):
                return x._replace(data=fresh(x.data))
            if not isinstance(x, torch.Tensor):
                return x
            made = x.to(dtype) if dtype is not None and x.is_floating_point() else x
            return made.detach().clone().requires_grad_(x.requires_grad)

        args, options = tree_map(fresh, (self.args, self.kwargs))
        return Sample(copy.deepcopy(self.module).to(dtype), args, options)

    def results(self) -> list[torch.Tensor]:
        """Return the results, the gradients of operands and parameters if there are any, and the buffers after that."""
        torch.manual_seed(0)
        results = tensors_in(self.module(*self.args, **self.kwargs))
        leaves = [x for x in (*tensors_in((self.args, self.kwargs)), *self.input) if x.requires_grad]
        ends = [x for x in results if x.requires_grad]
        gradients: tuple[Any, ...] = ()
        if leaves and ends:
            gradients = torch.autograd.grad(ends, leaves, [weights_of(x) for x in ends], allow_unused=True)
        return [x.detach() for x in (*results, *gradients, *self.module.buffers()) if x is not None]


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return all tensors in the operands or results of a module."""
    leaves = [x.data if isinstance(x, PackedSequence) else x for x in tree_leaves(tree)]
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def samples_of(entry: Any, dtype: torch.dtype, training: bool, count: int) -> Iterator[Sample]:
    """Return `count` samples of the module, spread over its list; a lazy module is called once first."""
    torch.manual_seed(0)
    found = entry.module_inputs_func(entry, "cpu", dtype, True, training)
    for sample in found[:: -(-len(found) // count)] if found else []:
        torch.manual_seed(0)
        made, given = sample.constructor_input, sample.forward_input
        module = entry.module_cls(*made.args, **made.kwargs).train(training).to(dtype)
        if entry.is_lazy:
            with torch.no_grad():
                module(*given.args, **given.kwargs)
        yield Sample(module, given.args, given.kwargs)


def judged(entry: Any, policy: str, count: int, limit: float) -> Verdict:
    """Return the worst verdict of `count` samples of a module, in training and, if it differs, in evaluation mode."""
    found = Verdict("right")
    try:
        with time_limit(limit):
            for training in (True, False) if entry.train_and_eval_differ else (True,):
                for sample in samples_of(entry, TYPES[policy], training, count):
                    found = max(found, judged_sample(sample, policy), key=rank)
    except Slow:
        found = max(found, Verdict("slow", f"more than {limit:g} s"), key=rank)
    return found


def judged_sample(sample: Sample, policy: str) -> Verdict:
    """Return the verdict of one call; it is right if plain PyTorch also raises an error."""
    try:
        plain = sample.copied().results()
    except Exception:
        return Verdict("right")
    own = sample.copied()
    try:
        with sf.torch.simulate(own.module, policy) as run:
            ours = own.results()
    except Exception as error:
        return refusal(error)
    try:
        other = sample.copied(OTHER[policy]).results()
    except Exception:
        other = plain
    operations = {str(func) for func, how, _ in run.met if how not in ("movement", "PyTorch")}
    return compared(ours, plain, other, sample, policy, operations)


def entries(names: tuple[str, ...]) -> list[Any]:
    """Return PyTorch's list, or its entries with these names, such as `nn.Linear`."""
    try:
        from torch.testing._internal.common_modules import module_db
    except ImportError as error:
        raise SystemExit(f"PyTorch's list of modules cannot be read: {error}. pip install expecttest") from None
    return chosen(module_db, names)


@judging("module")
def main(names: tuple[str, ...], policy: str, samples: int, limit: float, show_all: bool) -> None:
    """Judge all modules of PyTorch, or the modules NAMES: right, refused, slow, wrong or crashed."""
    tell(entries(names), lambda entry: entry.name, lambda entry: judged(entry, policy, samples, limit), show_all)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.moduleinfo")
