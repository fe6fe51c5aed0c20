"""Track the module that runs, by hooks, and the module that ran when an autograd node was created."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch

from simfloat.simulation import Simulation
from simfloat.torch.forward_log import sequence_number
from simfloat.torch.open_run import active_run, is_going_on, open_run
from simfloat.torch.tensors import tensors_in

#: The maximum number of changes of the running module in the log; the oldest are removed first.
REMEMBERED = 1 << 18


#: The frame that called the hooks of a module, and the path of the module. The frame is None for a path that is valid
#: until its block ends.
Call = tuple[FrameType | None, str]


class _Hook:
    """A hook that is copied with its module, as functions are, and does nothing after unpickling."""

    def __init__(self, paths: ModulePaths, module: torch.nn.Module) -> None:
        self._paths, self._module = paths, module

    def __deepcopy__(self, _: Any) -> _Hook:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # torch.save of a model pickles its hooks. The file must be loadable without simfloat, and a hook must not act
        # in a copy, because the modules of the copy have no paths in this run.
        return getattr, (nullcontext(), "__exit__")  # accepts any arguments, and can be unpickled without simfloat


class _Enter(_Hook):
    """The hook that runs before a module."""

    def __call__(self, called: torch.nn.Module, _: Any) -> None:
        if self._paths.is_here():
            # The frames are: this function, and torch's `inner`, which `_call_impl` calls. The frame of `_call_impl`
            # exists as long as the call of the module, however it ends.
            self._paths.enter(sys._getframe(2), self._module, called is self._module)


class _Leave(_Hook):
    """The hook that runs after a module."""

    def __call__(self, called: torch.nn.Module, _: Any, result: Any) -> None:
        run = active_run()
        if run is not None and run.simulation is self._paths.simulation:
            self._paths.leave(sys._getframe(2), result)


def _parts(module: torch.nn.Module) -> tuple[Any, ...]:
    """Return the direct submodules and the parameters of a module, by name, the latter as identities."""
    parameters = module._parameters
    return *module._modules.items(), *parameters, *map(id, parameters.values())


class ModulePaths:
    """The paths of the modules that run, the innermost last."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._hooks: list[Any] = []
        self.calls: list[Call] = []  # of the modules that run, the innermost last
        self._model = torch.nn.Module()
        self._modules: list[tuple[torch.nn.Module, tuple[Any, ...]]] = []  # of the model, with their parts
        self._path_of: dict[int, str] = {}  # of the modules with hooks, by identity
        self._check: Callable[[str, torch.nn.Module], None] = lambda path, module: None
        self._when_moved: Callable[[torch.nn.Module], None] = lambda model: None
        self._node_numbers: list[int] = []  # the number of the next node at each change of the path
        self._paths: list[str | None] = []  # the path that began to run there; None outside the block

    def begin(
        self,
        model: torch.nn.Module,
        check: Callable[[str, torch.nn.Module], None],
        when_moved: Callable[[torch.nn.Module], None],
    ) -> None:
        """Register hooks for the modules of a model. A module that occurs twice has the path that is listed first.

        `check` is called for each module before it runs, but not for copies, which also have the hooks. `when_moved` is
        called if parts of the model have new paths.
        """
        self._model, self._check, self._when_moved = model, check, when_moved
        self._log("")
        listed = list(model.named_modules())
        self._path_of = {id(module): path for path, module in listed}
        self._modules = [(module, _parts(module)) for _, module in listed]
        for _, module in listed:
            # `always_call` covers errors of a module, but torch's `_call_impl` catches only Exception: after Ctrl-C no
            # hook reports the end of the module. It is found later from the frames of the stack.
            self._hooks += [
                module.register_forward_pre_hook(_Enter(self, module)),
                module.register_forward_hook(_Leave(self, module), always_call=True),
            ]

    def end(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self.calls, self._modules = [], [], []
        self._log(None)

    def follow(self) -> None:
        """Update the paths if a module has gained, lost or replaced a part.

        A module that left the model keeps its path, unless another one has it now.
        """
        # This runs for the outermost call of a module and for each step of an optimizer, not for inner modules or
        # operations.
        if all([parts == _parts(module) for module, parts in self._modules]):
            return
        listed = list(self._model.named_modules())
        now, listed_paths = {id(module): path for path, module in listed}, {path for path, _ in listed}
        for module, path in self._path_of.items():
            self._path_of[module] = now.get(module, "" if path in listed_paths else path)
        self._modules = [(module, _parts(module)) for _, module in listed]
        self._when_moved(self._model)

    def _check_open(self, gradient: torch.Tensor) -> None:
        """Raise ValueError for a backward pass outside the block, where PyTorch would compute it without simulation."""
        if not self._hooks or active_run() is None:
            raise ValueError(
                "backward() was called outside the block in which the model ran, or while the block was paused, and "
                "would not be simulated; call it and the optimizer's step inside, unlike with torch.autocast."
            )

    @property
    def path(self) -> str | None:
        """The path of the innermost module that runs; None if none does."""
        return self.calls[-1][1] if self.calls else None

    def pause(self) -> None:
        """Mark the nodes that follow as not belonging to the run."""
        self._log(None)

    def resume(self) -> None:
        """Mark the nodes that follow as belonging to the module that runs."""
        self._log(self.path or "")

    @contextmanager
    def at_path(self, path: str) -> Iterator[None]:
        """Open a block that runs at the path of this module, wherever it is entered."""
        before, self.calls = self.calls, [(None, path)]
        self.resume()
        try:
            yield
        finally:
            self.calls = before
            self.resume()

    def forget(self) -> None:
        """Forget all nodes so far."""
        self._node_numbers, self._paths = [], []

    def path_at(self, number: int) -> str | None:
        """Return the path of the module that ran when the node of this number was created; None outside the block."""
        # The log has one entry for each change of the running module. That is less than one for each node, and costs
        # nothing for operations without a node.
        place = bisect_right(self._node_numbers, number)
        return self._paths[place - 1] if place else None

    def _log(self, path: str | None) -> None:
        number = sequence_number()
        if self._node_numbers and self._node_numbers[-1] == number:
            self._paths[-1] = path
            return
        self._node_numbers.append(number)
        self._paths.append(path)
        if len(self._node_numbers) > REMEMBERED:
            del self._node_numbers[: REMEMBERED // 2], self._paths[: REMEMBERED // 2]

    def is_here(self) -> bool:
        """True if the module runs inside the open block of this run; ValueError if only another thread has the block.

        A copy that was created inside the block keeps its hooks; they do nothing after the block has ended.
        """
        run = active_run()
        if run is not None:
            return run.simulation is self.simulation
        if open_run() is None and self._hooks:
            raise ValueError(
                f"{type(self._model).__name__} is simulated in another thread's block, and would not be simulated in "
                "this thread; call it in the thread that opened the block."
            )
        return False

    def enter(self, call: FrameType, module: torch.nn.Module, is_own: bool) -> None:
        """Note that a module begins, or a copy of it that has its hooks."""
        if self.calls:
            self.forget_ended_calls()
        if not self.calls and torch._C._current_autograd_node() is None:
            self.follow()
        path = self._path_of[id(module)]
        if is_own:
            self._check(path, module)
        self.simulation.known_paths[path] = None
        self.calls.append((call, path))
        self._log(path)

    def leave(self, call: FrameType, result: Any) -> None:
        """Note that a module ends with this result."""
        if self.calls and self.calls[-1][0] is not call:
            self.forget_ended_calls()
        if self.calls:
            self.calls.pop()
        if not self.calls:
            # A backward pass begins at the results of the model. A hook there is the only way to notice `backward()`
            # after the block, which would otherwise compute float32 gradients silently.
            for x in (result,) if isinstance(result, torch.Tensor) else tensors_in(result):
                if x.grad_fn is not None:
                    x.register_hook(self._check_open)
        self._log(self.calls[-1][1] if self.calls else "")

    def forget_ended_calls(self) -> None:
        """Remove calls that ended in an error without a hook."""
        calls = self.calls
        # The stack is searched when modules begin and end, and between steps. A search at every operation gave the same
        # results, and took longer.
        while calls and (call := calls[-1][0]) is not None and not is_going_on(call):
            calls.pop()
