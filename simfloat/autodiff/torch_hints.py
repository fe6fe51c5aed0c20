"""Error messages that translate PyTorch's names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

#: What PyTorch calls by another name.
NAMES = {
    **dict.fromkeys(("bfloat16", "double", "float", "half"), "the policy, which chooses formats"),
    "absolute": "abs", "amax": "max", "amin": "min", "argmin": "data.argmin", "bmm": "matmul",
    "chunk": "split", "clamp": "clip", "clone": "detach", "contiguous": "not needed", "cpu": "data",
    "cuda": "Module.to", "dim": "ndim", "div": "/", "expand": "broadcast_to", "mm": "matmul", "mul": "*",
    "movedim": "transpose", "neg": "-", "numel": "size", "numpy": "data", "permute": "transpose", "pow": "**",
    "repeat": "broadcast_to and reshape", "repeat_interleave": "unsqueeze, broadcast_to and reshape",
    "std": "var and sqrt", "sub": "-", "t": "T", "tolist": "data.tolist", "unflatten": "reshape", "view": "reshape",
}  # fmt: skip

#: PyTorch's functions behind operators: where they are not implemented, Python calls our tensor's operator.
OPERATORS = frozenset("add sub mul div true_divide pow matmul eq ne lt le gt ge".split())


#: What PyTorch's rooms are called here, by our room.
ROOMS = {
    "nn": {
        "functional": "losses are functions of simfloat.nn, and other operations methods of tensors, such as x.relu()",
        "utils": "clip_grad_norm_ and clip_grad_value_ are functions of simfloat.optim",
    },
    "optim": {
        "GradScaler": "it is simfloat.optim.DynamicLossScale",
        "lr_scheduler": "schedules are names of simfloat.optim itself, such as simfloat.optim.StepLR",
    },
}


def missing(room: str, name: str) -> AttributeError:
    """The error for a name that a room of this package has not."""
    module, hint = f"simfloat.{room}", ROOMS[room].get(name, "")
    text = f"module {module!r} has no attribute {name!r}{hint and f': {hint}.'}"
    # With both, Python adds the nearest name to the message.
    return AttributeError(text, name=name, obj=sys.modules[module])


class TorchHints:
    """Errors for names and functions of PyTorch's that tensors do not have, naming what there is here."""

    if not TYPE_CHECKING:  # type checkers know the names

        def __getattr__(self, name: str) -> Any:
            hint = f"; here it is {NAMES[name]}" if name in NAMES else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Refuse a function of PyTorch's, and leave its operators to Python."""
        name = getattr(function, "__name__", str(function))
        if name in OPERATORS or name.startswith("__"):
            return NotImplemented
        raise ValueError(
            f"PyTorch's {name} takes tensors of PyTorch, got a simfloat.{cls.__name__}: use the functions of simfloat, "
            "or run a PyTorch model under simfloat.torch.simulate; torch.as_tensor(x.data) takes the numbers out."
        )
