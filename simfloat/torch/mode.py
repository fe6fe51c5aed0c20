"""The place in PyTorch's dispatch where every operation comes by, those of autograd and of optimizers too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from simfloat.torch.rules.search import handler_of

if TYPE_CHECKING:
    from simfloat.torch.engine import Engine


class Mode(TorchDispatchMode):
    """A dispatch mode that hands every operation to the way in which it is carried out."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation's result."""
        handler, engine, options = handler_of(func), self.engine, kwargs or {}
        args, options = engine.parameters.of(func, args, options)
        deferred = engine.deferred()
        if deferred is not None and deferred.takes(func, handler.is_rule, args, options):
            return deferred.result(func, args, options)
        engine.meet(func, handler.how)
        return handler(engine, func, args, options)
