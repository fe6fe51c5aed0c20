"""The entry to a simulated PyTorch model: `simulate`, its block and its dispatch mode, and the dry run `explain`.

In the block every operation on floating numbers is simulated. `explain` tells what would happen to a model under a
policy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode_stack

from simfloat.arithmetic import GivenBits, Observer
from simfloat.common import Table
from simfloat.common import table as aligned
from simfloat.environment import in_usual_environment
from simfloat.policy import Policy
from simfloat.policy.policy import as_policy
from simfloat.policy.roles import UPDATE
from simfloat.simulation import Simulation
from simfloat.simulation.switching import Switch, SwitchingRule
from simfloat.torch.open_run import active_run, open_run, pause, set_open_run
from simfloat.torch.paths import tensors_in
from simfloat.torch.run_context import RunContext, Shown
from simfloat.torch.search import handler_of
from simfloat.torch.settings import with_fused_kernels, without_fused_kernels
from simfloat.torch.tensors import call_model
from simfloat.uninterrupted import uninterrupted


class DispatchMode(TorchDispatchMode):
    """The dispatch mode that sends every ATen call to its handler, those of autograd and of optimizers too."""

    def __init__(self, run: RunContext) -> None:
        super().__init__()
        self.run = run

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: the code below says so itself, at no cost a call, and without importing all of torch.compile."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation's result."""
        return self._carry_out(func, args, kwargs or {})

    @in_usual_environment
    def _carry_out(self, func: Any, args: Any, options: Any) -> Any:
        # This runs for every operation; an empty dispatch mode takes 9 to 14 us an operation. Of the other mechanisms
        # function modes and torch.fx see no backward pass, torch.fx fails on data-dependent Python, and tensor
        # subclasses would have to replace the user's parameters.
        handler, run = handler_of(func), self.run
        args, options = run.parameters.arguments_as_read(func, args, options)
        deferred = run.deferred_operations()
        if deferred is not None and deferred.must_wait(func, handler.is_rule, args, options):
            return deferred.result(func, args, options, handler.plain, run.note)
        run.count_operation(func, handler.how)
        return handler(run, func, args, options)


class Redispatch:
    """A ``with`` block inside of a rule, whose operations come to a mode of dispatch again."""

    def __init__(self, mode: DispatchMode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        # `with mode:` would run `TorchDispatchMode.__enter__`, with its bookkeeping, for each rule. To push and pop the
        # mode is all that is needed inside of its own block.
        torch._C._push_on_torch_dispatch_stack(self._mode)

    def __exit__(self, *_: object) -> None:
        torch._C._pop_torch_dispatch_stack(None)

    def end(self) -> None:
        """End the blocks that Ctrl-C left open."""
        while self._mode in _get_current_dispatch_mode_stack():
            torch._C._pop_torch_dispatch_stack(None)


# Neither this nor what it calls is compiled where torch.compile runs a model.
# TorchDispatchMode would wrap `__torch_dispatch__` by torch._disable_dynamo, at a call an operation, and import all of
# torch.compile at the first one.
set_code_exec_strategy(
    DispatchMode.__torch_dispatch__.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
)


class Run:
    """What :func:`simulate` returns: a block that may be entered again and again, its random streams going on."""

    def __init__(
        self,
        model: torch.nn.Module,
        policy: Policy,
        seed: int,
        observer: Observer | None,
        draws: Mapping[str, GivenBits] | None = None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            ours = "; a model of simfloat.nn runs under simfloat.simulate" if hasattr(model, "named_parameters") else ""
            raise ValueError(f"simfloat.torch.simulate takes a torch.nn.Module, got {type(model).__name__}{ours}.")
        for path, module in model.named_modules():
            # A ScriptModule runs in TorchScript's interpreter: hooks of inner modules do not run, and operations may be
            # fused.
            if isinstance(module, torch.jit.ScriptModule):
                where = f", the layer {path!r}," if path else ""
                raise ValueError(
                    f"A ScriptModule{where} hides its operations; simulate the module that it was made of."
                )
        self.model = model
        self.simulation = Simulation(policy, seed, observer, draws)
        self._context = RunContext(self.simulation)
        self._context.run = self
        self._mode = DispatchMode(self._context)
        self._context.redispatch = self._again = Redispatch(self._mode)
        self._depth = 0
        self._open = ExitStack()

    def __enter__(self) -> Run:
        if self._depth and open_run() is not self._context:
            raise ValueError("The block of this run is open in another thread; a run is that of one thread at a time.")
        if self._depth == 0:
            if open_run() is not None:
                raise ValueError(
                    "A simulated model runs inside the block of another one; simulate one torch.nn.ModuleList of both, "
                    "or end the outer block first."
                )
            try:
                with uninterrupted():
                    self._begin()
            except BaseException:
                self._open.close()
                raise
        self._depth += 1
        return self

    def _begin(self) -> None:
        context = self._context
        context.begin()
        with ExitStack() as stack:
            # Each part registers its end before, or as, it begins: an error in the middle ends what has begun, in
            # reverse order. The dispatch mode comes after the preparations, so that none of them is simulated.
            stack.enter_context(self.simulation)
            stack.enter_context(without_fused_kernels())
            stack.callback(context.parameters.end)
            context.parameters.begin(self.model)
            stack.callback(context.paths.end)
            context.paths.begin(self.model, context.parameters.check_known, context.parameters.follow)
            stack.callback(context.optimizing.end)
            context.optimizing.begin(context.parameters.by_path, context.paths.follow)
            stack.callback(self._again.end)
            stack.enter_context(self._mode)
            stack.callback(set_open_run, None)
            set_open_run(context)
            self._open = stack.pop_all()

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            with uninterrupted():
                self._open.__exit__(*error)

    @property
    def met(self) -> Counter[tuple[Any, str, str]]:
        """How often each operation was met, with how it was carried out and the path of its layer."""
        return self._context.operation_counts.counts()

    def show(self) -> Shown:
        """Run dry from now on: leave what has no rule to PyTorch. What this gives fills with what is computed where."""
        self._context.shown = {}
        return self._context.shown

    @property
    def policy(self) -> Policy:
        """The policy in force. It may be assigned between steps, a Policy or a name; `switches` is the log of that.

        Random streams and the state of casts go on; a backward pass follows the policy of its forward pass. Raises
        ValueError while a module, a backward pass or an optimizer runs, for parameters whose type does not hold the new
        `weights`, and if an override of the policy that ends met nothing.
        """
        return self.simulation.policy

    @policy.setter
    def policy(self, policy: Policy | str) -> None:
        chosen = as_policy(policy, "A run")
        self._context.check_between_steps()
        self._context.parameters.check(chosen)
        self.simulation.policy = chosen
        self._context.parameters.renew()

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The changes of policy so far, each with the step after which it happened, if that was told."""
        return self.simulation.switches

    def follow(self, rule: SwitchingRule, step: int) -> None:
        """Ask a rule, after the step of this number, which policy the next step takes, and switch to it.

        rule is a `simfloat.Switching`, or any function of the step and the observer that returns a policy or a name.
        """
        self._context.check_between_steps()
        self.simulation.follow(rule, step)
        self._context.parameters.renew()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A ``with`` block, inside the run's own, in which all is PyTorch's own arithmetic: for metrics and data.

        Results are data to what follows, and parameters that were written to are rounded again when they are used. A
        backward pass through what was simulated is refused there.

        Examples:
            >>> import torch
            >>> x = torch.full((), 1 / 3)
            >>> with sf.torch.simulate(torch.nn.Identity(), "bf16-standard") as run:
            ...     rounded = float(x + 0)
            ...     with run.paused():
            ...         plain = float(x + 0)
            >>> rounded, plain
            (0.333984375, 0.3333333432674408)
        """
        if active_run() is not self._context:
            yield
            return
        block = ExitStack()
        try:
            with uninterrupted():
                # The first callback runs last: parameters are read anew once the dispatch mode is back.
                block.callback(self._context.resume)
                self._context.pause()
                for part in (with_fused_kernels(), pause(), _disable_current_modes()):
                    block.enter_context(part)
            yield
        finally:
            with uninterrupted():
                block.close()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A ``with`` block, inside the run's own, for an evaluation that changes no bit of the training around it.

        What runs inside is simulated. Random streams, PyTorch's own random numbers on the CPU and amax histories are
        afterwards where they were, and the observer receives nothing. Call `model.eval()` as for any evaluation: in
        training batch norm writes to its buffers. Raises ValueError while a module, a backward pass or an optimizer
        runs.

        Examples:
            >>> import torch
            >>> layer, x = torch.nn.Dropout(), torch.ones(8)
            >>> with sf.torch.simulate(layer, "fp32") as run:
            ...     with run.aside():
            ...         first = layer(x)
            ...     second = layer(x)
            >>> bool((first == second).all())
            True
        """
        self._context.check_between_steps("An evaluation runs aside")
        # `devices=[]`: without it fork_rng asks for CUDA devices and saves the state of each.
        with torch.random.fork_rng(devices=[]), self.simulation.trial_run():
            yield

    @property
    def state(self) -> dict[str, Any]:
        """What `load_state` needs to go on with the same bits, in this or another process; JSON-able.

        It holds random streams and what delayed scalings met; parameters, and what an optimizer keeps, Kahan's
        compensation too, are in PyTorch's own states.
        """
        return self.simulation.state

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave. Raises ValueError naming what is wrong with it, and then changes nothing."""
        self.simulation.load_state(state)
        self._context.parameters.renew()

    def table(self) -> Table:
        """Every operation met so far, how it was carried out, how often, and in which layers."""
        totals: dict[tuple[str, str], tuple[int, dict[str, None]]] = {}
        for (func, how, path), count in self.met.items():
            total, paths = totals.get((str(func), how), (0, {}))
            totals[str(func), how] = total + count, {**paths, path or "(outside)": None}
        rows = [(name, how, " ".join(paths), str(count)) for (name, how), (count, paths) in sorted(totals.items())]
        return aligned([("operation", "carried out by", "where", "times"), *rows], number_columns=1)

    def __repr__(self) -> str:
        return f"simfloat.torch.{self.simulation!r}"


def simulate(
    model: torch.nn.Module,
    policy: Policy | str,
    seed: int = 0,
    observer: Observer | None = None,
    *,
    draws: Mapping[str, GivenBits] | None = None,
) -> Run:
    """A ``with`` block in which a PyTorch model is carried out under `policy`: forward, backward and optimizer.

    Inside, any code may use the model: losses, ``backward()``, torch.optim's optimizers. Parameters are used as rounded
    to `weights`; what is stored changes by an optimizer's step, or where the program writes it. policy is a Policy or
    the name of one in `simfloat.policies`; `seed` is that of the random streams, one for each place; `observer`, for
    example a `simfloat.Recorder`, receives the events of every rounding, at the paths of the model's own modules and
    parameters. `draws` are those of :func:`simfloat.simulate`.

    Raises ValueError for an unknown policy, for parameters that cannot hold it, inside the block for any operation on
    floating numbers that has no rule, and at its end if an override matched nothing.

    Examples:
        >>> import torch
        >>> net = torch.nn.Linear(2, 1)
        >>> with sf.torch.simulate(net, "bf16-standard") as run:
        ...     net(torch.ones(4, 2)).square().mean().backward()
        >>> net.weight.grad.shape
        torch.Size([1, 2])
    """
    if isinstance(model, Policy | str):
        raise ValueError(f"simfloat.torch.simulate takes the model first, then the policy; got {model!r} first.")
    return Run(model, as_policy(policy, "simfloat.torch.simulate"), seed, observer, draws)


#: What PyTorch says of an operation that it has no derivative of, or of one of its operands.
# PyTorch raises a RuntimeError like any other: its text is the only sign, and has the operation's name with or without
# "aten::".
WITHOUT_DERIVATIVE = re.compile(r"derivative for '?(?:aten::)?(\w+)[^']*'? is not implemented")

#: The layer of what runs in none.
OUTSIDE = "(outside)"

#: The roles that are shown.
SHOWN = ("compute", "compute_gradients", "weights", "activations", "gradients", "accumulate", "reduce")


def explain(model: torch.nn.Module, sample: Any, policy: Policy | str) -> Table:
    """The table of what a forward and a backward pass of `model(sample)` do: where, by what, and in which formats.

    sample is what the model takes, or a tuple or dictionary of several arguments. The backward pass starts from the
    sum of the results. The last column is what a policy calls an operation, behind the composites around it: a product
    with a parameter is `linear`, and the addition of its bias `add`. An operation that would be refused is listed as
    such, and then computed by PyTorch itself; one of which PyTorch has no derivative is listed as that, and ends the
    backward pass. It is a copy of the model that runs, so that the model stays as it is.

    Raises ValueError for an unknown policy, a model that is none or cannot be called with the sample, and parameters
    that cannot hold the policy.
    """
    run = Run(deepcopy(model), as_policy(policy, "simfloat.torch.explain"), 0, None)
    shown = run.show()
    lacking: re.Match[str] | None = None
    with run:
        if isinstance(sample, Mapping):
            results = call_model(run.model, **sample)
        else:
            results = call_model(run.model, *sample) if isinstance(sample, tuple) else call_model(run.model, sample)
        differentiable = [x for x in tensors_in(results) if x.requires_grad]
        try:
            torch.autograd.backward([x.sum() for x in differentiable])
        except RuntimeError as error:
            lacking = WITHOUT_DERIVATIVE.search(str(error))
            if lacking is None:
                raise
    rows: list[tuple[str, ...]] = [("layer", "operation", "carried out by", *SHOWN, "to a policy")]
    for name, place in shown:
        stored = place.active_policy.policy.recipe(place.path, UPDATE).weights
        cells = [str(stored if role == "weights" else getattr(place.recipe, role)) for role in SHOWN]
        rows.append((place.path or OUTSIDE, name, "rule", *cells, " ".join(place.operations)))
    for func, how, path in run.met:
        if how == "refused":
            rows.append((path or OUTSIDE, str(func), how, *["-"] * len(SHOWN), "-"))
    if lacking is not None:
        name = lacking.group(1)
        where = next((path for func, _, path in run.met if _base_name(func) == name), "")
        rows.append((where or OUTSIDE, f"aten.{name}", "no derivative", *["-"] * len(SHOWN), "-"))
    return aligned(rows)


def _base_name(func: Any) -> str:
    """The name of an operation without its library and overload."""
    return str(func.overloadpacket.__name__) if hasattr(func, "overloadpacket") else ""
