"""Rules of collectives of torch.distributed: gradients are summed around a ring, in the role `all_reduce`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from simfloat.simulation.arithmetic import Arithmetic
from simfloat.sums import sequential
from simfloat.sums import sum as summed
from simfloat.sums.partial_sums import in_addition_order
from simfloat.torch.arguments import Arguments, Options, refusal
from simfloat.torch.handlers import Handler
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import (
    FORMAT_OF,
    NOTHING,
    Tag,
    numbers_of,
    parts_of,
    put_own_tag,
    put_tag,
    tag_of,
    tensor_of,
    tensors_in,
    written_by,
)

Tensor = torch.Tensor

#: The number of the sum among torch.distributed's operations.
SUM = 0


class AllReduce(Handler):
    """The sum over replicas of one tensor of each, in the order of `simfloat.all_reduce` around a ring.

    A bucket of DistributedDataParallel is one tensor. Its chunks are the chunks of the ring, and every gradient in it
    is added in the role of its own parameter. Each replica receives the tensors of all and computes the sum.
    """

    how = "rule"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Sum the tensors, and return PyTorch's result."""
        tensors, group, operation, *_ = args
        if not any(x.is_floating_point() for x in tensors):
            return run.leave_to_pytorch(func(*args, **options), [])
        if operation.op() != SUM or len(tensors) != 1:
            raise refusal(
                run, func, "only ReduceOp.SUM is supported over replicas; divide or select the results yourself."
            )
        (x,) = tensors
        total = self._sum_around_ring(run, x, _all_gather(x, group))
        tags = [(part, tag) for part, tag in parts_of(x) if tag.is_gradient]
        with without_dispatch(), torch.no_grad():
            is_first = torch.distributed.ProcessGroup.unbox(group).rank() == 0
            # PyTorch's own sum follows; all replicas except the first contribute -0, so no value changes.
            x.copy_(total) if is_first else x.fill_(-0.0)
            result = func(*args, **options)
        for part, tag in tags:
            put_own_tag(part, tag._replace(format=_addition(run, part, tag).format))
        if not tags:
            put_tag(x, tag_of(x)._replace(format=_addition(run, x, tag_of(x)).format))
        return result

    def _sum_around_ring(self, run: RunContext, x: Tensor, parts: list[Tensor]) -> Tensor:
        # Each chunk of the ring starts at another replica, so sums of neighbouring chunks have different orders.
        rows = in_addition_order(np.stack([numbers_of(part).reshape(-1) for part in parts]), "ring")
        total = np.empty(x.numel(), rows.dtype)
        for begin, end, adding in self._pieces(run, x):
            target = adding.target
            adds = sequential(target.format, rounding=target.rounding)
            piece = summed(rows[:, begin:end], 0, accumulate=adds, stream=target.stream, observer=target.observer)
            total[begin:end] = piece
        return tensor_of(total.reshape(x.shape), x.dtype)

    def _pieces(self, run: RunContext, x: Tensor) -> Iterator[tuple[int, int, Arithmetic]]:
        """Yield the bounds and the arithmetic of each gradient in a tensor; it includes elements that follow it."""
        gradients = [(int(part.storage_offset() - x.storage_offset()), part, tag) for part, tag in parts_of(x)]
        if not gradients:
            yield 0, x.numel(), _addition(run, x, tag_of(x))
            return
        begins = [0, *(begin for begin, *_ in gradients[1:]), x.numel()]
        for number, (_, part, tag) in enumerate(gradients):
            yield begins[number], begins[number + 1], _addition(run, part, tag)


def _addition(run: RunContext, x: Tensor, tag: Tag) -> Arithmetic:
    """Return the arithmetic of the addition of a gradient over replicas; other values use a forward addition."""
    if tag.is_gradient and tag.owner is not None:
        return run.simulation.place("update", tag.owner).in_type(FORMAT_OF[x.dtype]).to_replicas
    place = run.simulation.place("add", run.path).in_type(FORMAT_OF[x.dtype])
    return place.forward_in(tag.format or FORMAT_OF[x.dtype]) if place.is_widest else place.forward


def _all_gather(x: Tensor, group: Any) -> list[Tensor]:
    """Return the tensors of all replicas, in their order."""
    with without_dispatch(), torch.no_grad():
        # Each replica receives the values of all: c10d's own sum would round in float32, in an unknown order.
        parts = [torch.empty_like(x) for _ in range(torch.distributed.ProcessGroup.unbox(group).size())]
        _, work = torch.ops.c10d.allgather_([parts], [x.contiguous()], group)
        torch._C._distributed_c10d.Work.unbox(work).wait()
    return parts


class Reception(Handler):
    """Values of other replicas are received unchanged; values that are written to a parameter are rounded as usual."""

    how = "movement"

    def __init__(self, *, keeps: bool = False) -> None:
        self.keeps = keeps  # keeps the format, which the values of the other replica also have

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of PyTorch."""
        tags = [(x, run.tag_of_target(x)) for x in _written_tensors(func, args, options) if x.is_floating_point()]
        result = func(*args, **options)
        if tags:
            torch._C._distributed_c10d.Work.unbox(result[-1]).wait()
        for x, tag in tags:
            run.note_overwrite(x, tag, Tag(tag.format if self.keeps else None))
        return result


def _written_tensors(func: Any, args: Arguments, options: Options) -> Iterator[Tensor]:
    """Return the tensors that a collective writes to, by its schema or else its first argument."""
    return iter(list(written_by(func, args, options)) or tensors_in(args[0]))


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "allreduce_": AllReduce(),
    "broadcast_": Reception(keeps=True),
    "allgather_": Reception(),
}
