"""Simulate a PyTorch model: `simulate`, its block and its dispatch mode, and the dry run `explain`.

In the block every floating-point operation is simulated. `explain` shows how each operation of a model would run under
a policy.
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
from simfloat.common import Table, select_rows
from simfloat.common import table as aligned
from simfloat.environment import in_usual_environment
from simfloat.policy import Policy
from simfloat.policy.policy import as_policy
from simfloat.policy.roles import UPDATE
from simfloat.simulation import Simulation
from simfloat.simulation.switching import Switch, SwitchingRule
from simfloat.torch.backward import current_node
from simfloat.torch.open_run import active_run, open_run, pause, set_open_run
from simfloat.torch.paths import tensors_in
from simfloat.torch.run_context import RunContext, Shown
from simfloat.torch.search import HANDLERS, handler_of
from simfloat.torch.settings import with_fused_kernels, without_fused_kernels
from simfloat.torch.tensors import call_model
from simfloat.uninterrupted import uninterrupted


class DispatchMode(TorchDispatchMode):
    """The dispatch mode that passes every ATen call to its handler, including calls of autograd and of optimizers."""

    def __init__(self, run: RunContext) -> None:
        super().__init__()
        self.run = run

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: the code below excludes this mode from compilation without loading all of torch.compile."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the result of the operation."""
        return self._carry_out(func, args, kwargs or {})

    @in_usual_environment
    def _carry_out(self, func: Any, args: Any, options: Any) -> Any:
        # This runs for every operation; an empty dispatch mode takes 9 to 14 us an operation. The other mechanisms do
        # not work: function modes and torch.fx do not cover the backward pass, torch.fx fails on data-dependent Python,
        # and tensor subclasses would have to replace the user's parameters.
        handler, run = HANDLERS.get(id(func)) or handler_of(func), self.run
        args, options = run.parameters.arguments_as_read(func, args, options)
        node = None if current_node() is None else run.backward_nodes.current()
        # Parts of a composite do not wait: the composite itself has waited, or its rule names the operand of each
        # gradient.
        deferred = None if node is None or node.way is None or run.composites else node.way.deferred
        if deferred is not None and deferred.must_wait(func, handler.is_rule, args, options):
            return deferred.result(func, args, options, handler.plain, run.note)
        run.operation_counts.begin(func, handler.how, run.path_of(node and node.note))
        return handler(run, func, args, options)


class Redispatch:
    """A ``with`` block inside a rule: its operations are dispatched to the mode again."""

    def __init__(self, mode: DispatchMode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        # `with mode:` would run `TorchDispatchMode.__enter__`, with its bookkeeping, for each rule. Inside the block of
        # the mode it is enough to push and pop the mode.
        torch._C._push_on_torch_dispatch_stack(self._mode)

    def __exit__(self, *_: object) -> None:
        torch._C._pop_torch_dispatch_stack(None)

    def end(self) -> None:
        """End the blocks that Ctrl-C left open."""
        while self._mode in _get_current_dispatch_mode_stack():
            torch._C._pop_torch_dispatch_stack(None)


# torch.compile does not compile this method or the functions that it calls. Otherwise TorchDispatchMode would wrap
# `__torch_dispatch__` in torch._disable_dynamo, which costs one more call for each operation and imports all of
# torch.compile at the first one.
set_code_exec_strategy(
    DispatchMode.__torch_dispatch__.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
)


class Run:
    """The run of a PyTorch model under a policy, as :func:`simulate` returns it.

    Its ``with`` block may be entered several times; the random streams continue from block to block.

    Parameters:
        model: the torch.nn.Module to run.
        policy: the `Policy` at the beginning.
        seed: the seed of the random streams.
        observer: receives the events of every rounding, for example a `simfloat.Recorder`; None for no observer.
        draws: a dictionary from parameter paths to the given random bits of their stochastic updates; None for random
            bits from `seed`.

    Raises:
        ValueError: if `model` is not a torch.nn.Module, or contains a ScriptModule.
    """

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
            # TorchScript's interpreter runs a ScriptModule: hooks of inner modules are not called, and operations may
            # be fused.
            if isinstance(module, torch.jit.ScriptModule):
                where = f", the layer {path!r}," if path else ""
                raise ValueError(f"A ScriptModule{where} hides its operations; simulate the original module.")
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
            raise ValueError(
                "The block of this run is open in another thread; a run can be open in only one thread at a time."
            )
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
            # Each part registers its end before it begins, or together with its beginning: if an error occurs in
            # between, the parts that have begun are ended in reverse order. The dispatch mode comes after the
            # preparations, so none of these is simulated.
            stack.enter_context(self.simulation)
            stack.enter_context(without_fused_kernels())
            stack.callback(context.parameters.end)
            context.parameters.begin(self.model)
            follow = getattr(self.simulation.observer, "follow_storage", None)
            if follow is not None:
                follow(context.parameters.storage)
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
        """The number of calls of each operation, by operation, way of execution and path of the layer."""
        return self._context.operation_counts.counts()

    def show(self) -> Shown:
        """Make this a dry run, in which PyTorch computes operations without a rule.

        Returns:
            A dictionary that receives each operation and the place where it is computed.
        """
        self._context.shown = {}
        return self._context.shown

    @property
    def policy(self) -> Policy:
        """The current policy.

        A Policy or a name may be assigned between steps; `switches` lists the assignments. Random streams and the state
        of casts continue. A backward pass follows the policy of its forward pass.

        An assignment raises ValueError while a module, a backward pass or an optimizer runs, if the type of a parameter
        cannot represent the new `weights`, and if an override of the previous policy matched nothing.
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
        """The changes of policy so far, each with the step after which it happened, if `follow` passed that step."""
        return self.simulation.switches

    def follow(self, rule: SwitchingRule, step: int) -> None:
        """Call a switching rule after a step, and switch to the policy that it returns for the next step.

        Parameters:
            rule: a `simfloat.Switching`, or any function of the step and the observer that returns a policy or its
                name.
            step: the number of the step that has just ended.
        """
        self._context.check_between_steps()
        self.simulation.follow(rule, step)
        self._context.parameters.renew()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the simulation: a ``with`` block inside the block of the run, with PyTorch's own arithmetic.

        Use it for metrics and data. Later operations treat its results as data, and parameters that were written to are
        rounded again at their next use. A backward pass through simulated operations raises an error inside this block.

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
                # The first callback runs last: the parameters are read again after the dispatch mode is restored.
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
        """Evaluate without side effects: a ``with`` block inside the block of the run, for metrics during a training.

        Operations inside are simulated, and no bit of the training changes. At the end, the random streams, PyTorch's
        random states and the amax histories are restored; the observer receives no events. Call
        `model.eval()` as for any evaluation, because batch norm writes to its buffers in training mode. Raises
        ValueError while a module, a backward pass or an optimizer runs.

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
        # Without `devices=[]`, fork_rng looks for CUDA devices, although the program uses none.
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices=devices), self.simulation.trial_run():
            yield

    @property
    def state(self) -> dict[str, Any]:
        """The state that `load_state` needs to continue with the same bits, in this or another process; JSON-able.

        It contains the random streams and the histories of delayed scalings. Parameters and the state of an optimizer,
        including Kahan's compensation, are in PyTorch's own state dictionaries.
        """
        return self.simulation.state

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state`. If it is invalid, raise ValueError that names the error, and change nothing."""
        self.simulation.load_state(state)
        self._context.parameters.renew()

    def table(self, path: str | None = None, *, operation: str | None = None) -> Table:
        """Return a table of all operations so far: how each was carried out, how often, and in which layers.

        Parameters:
            path: a shell pattern of the paths of layers, such as ``"blocks.0.*"``. Operations outside of all layers
                have the path ``"(outside)"``. Only calls in matching layers are listed and counted. None for all.
            operation: a shell pattern of PyTorch's names of operations, such as ``"*softmax*"``; None for all.

        Returns:
            A table with the columns operation, carried out by, where, and times.

        Raises:
            ValueError: if a pattern, or both patterns together, match nothing although operations ran.
        """
        calls = [(str(func), how, where or OUTSIDE, count) for (func, how, where), count in self.met.items()]
        totals: dict[tuple[str, str], tuple[int, dict[str, None]]] = {}
        names = [name for name, _, _, _ in calls]
        for name, how, where, count in select_rows(
            calls, path=(path, [where for _, _, where, _ in calls]), operation=(operation, names)
        ):
            total, paths = totals.get((name, how), (0, {}))
            totals[name, how] = total + count, {**paths, where: None}
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
    """Run a PyTorch model under a policy: forward pass, backward pass and optimizer.

    The result is a ``with`` block. Inside it, any code may use the model: losses, ``backward()``, the optimizers of
    torch.optim. Parameters are rounded to `weights` when they are used. The stored values change only by an optimizer's
    step, or if the program writes to them.

    Parameters:
        model: a torch.nn.Module; the block uses this object, not a copy.
        policy: a Policy, or the name of one in `simfloat.policies`.
        seed: the seed of the random streams; every place (path, phase and operation) has its own stream.
        observer: receives the events of every rounding, at the paths of the model's modules and parameters; for example
            a `simfloat.Recorder`. None for no observer.
        draws: a dictionary from parameter paths to the given random bits of their stochastic updates, as in
            :func:`simfloat.simulate`; None for random bits from `seed`.

    Returns:
        A `Run`, which can be entered as a ``with`` block several times.

    Raises:
        ValueError: if the policy is unknown; if the type of a parameter cannot represent its `weights`; inside the
            block, if a floating-point operation has no rule; at the end of the block, if an override matched nothing.

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


#: PyTorch's error text for an operation, or one of its operands, without a derivative. PyTorch raises an ordinary
#: RuntimeError: its text is the only sign. The name of the operation in it may begin with "aten::".
WITHOUT_DERIVATIVE = re.compile(r"derivative for '?(?:aten::)?(\w+)[^']*'? is not implemented")

#: The name in tables of operations outside all layers.
OUTSIDE = "(outside)"

#: The roles that `explain` shows.
SHOWN = (
    "compute",
    "compute_weights",
    "compute_gradients",
    "weights",
    "activations",
    "gradients",
    "accumulate",
    "reduce",
)


def explain(
    model: torch.nn.Module, sample: Any, policy: Policy | str, path: str | None = None, *, operation: str | None = None
) -> Table:
    """Return a table of the operations that a forward and a backward pass of a model would run under a policy.

    Each row has the layer, the operation, how it is carried out, and its formats. The last column is the name that an
    override of a policy uses for the operation, after the names of the composites around it: a product with a parameter
    is `linear`, and the addition of its bias is `add`.

    The backward pass starts from the sum of the results. An operation that is not supported is listed as "refused", and
    PyTorch computes it. An operation without a derivative in PyTorch is listed as "no derivative", and ends the
    backward pass. A copy of the model runs, so the model does not change.

    Parameters:
        model: a torch.nn.Module.
        sample: the argument of the model, a tuple of its arguments, or a dictionary of its keyword arguments.
        policy: a Policy, or the name of one in `simfloat.policies`.
        path: a shell pattern of the paths of layers, such as ``"blocks.0.*"``; ``"(outside)"`` for operations outside
            of all layers. None for all.
        operation: a shell pattern of names in the column operation, such as ``"*softmax*"``; None for all.

    Returns:
        A `Table`, with one row for each operation and place.

    Raises:
        ValueError: if the policy is unknown; if `model` is not a torch.nn.Module, or cannot be called with the sample;
            if the type of a parameter cannot represent its `weights`; if an operation has complex or sparse operands;
            if a pattern, or both patterns together, match no row.
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
    rows: list[tuple[str, ...]] = []
    for name, place in shown:
        stored = place.active_policy.policy.recipe(place.path, UPDATE).weights
        cells = [str(stored if role == "weights" else getattr(place.recipe, role)) for role in SHOWN]
        rows.append((place.path or OUTSIDE, name, "rule", *cells, " ".join(place.operations)))
    for func, how, layer in run.met:
        if how == "refused":
            rows.append((layer or OUTSIDE, str(func), how, *["-"] * len(SHOWN), "-"))
    if lacking is not None:
        name = lacking.group(1)
        where = next((layer for func, _, layer in run.met if _base_name(func) == name), "")
        rows.append((where or OUTSIDE, f"aten.{name}", "no derivative", *["-"] * len(SHOWN), "-"))
    names = [name for _, name, *_ in rows]
    selected = select_rows(rows, path=(path, [layer for layer, *_ in rows]), operation=(operation, names))
    return aligned([("layer", "operation", "carried out by", *SHOWN, "to a policy"), *selected])


def _base_name(func: Any) -> str:
    """Return the name of an operation without its library and overload."""
    return str(func.overloadpacket.__name__) if hasattr(func, "overloadpacket") else ""
