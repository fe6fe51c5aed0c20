"""Replace settings and functions of PyTorch while a block is open.

Without fused kernels, every operation is dispatched separately. With torch.func.functional_call, tensors of the program
replace the parameters of a model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from itertools import product
from threading import Lock
from typing import Any

import torch
from torch import _VF
from torch.autograd import forward_ad
from torch.autograd.profiler import record_function as Mark
from torch.jit._builtins import _get_builtin_table
from torch.nn.utils import stateless
from torch.utils import checkpoint

from simfloat.simulation.formulas.recurrent import CELLS
from simfloat.torch.attention import ATTENTION, attention
from simfloat.torch.formula_rows import ROWS
from simfloat.torch.forward_log import forward_pass, reentrant, remembering
from simfloat.torch.narrowing import (
    CHANNEL_DROPOUTS,
    LISTED,
    RECURRENT,
    dropout_in_operand_format,
    listed_function,
    upcasts,
    with_autocast_types,
    with_requested_upcast,
)
from simfloat.torch.on_gpu import COMPOSITIONS, composed_on_gpu
from simfloat.torch.open_run import active_run, scaling, without_dispatch
from simfloat.torch.quick_formulas import is_alone, kernel_of
from simfloat.torch.quick_layers import convolution_kernel, linear_layer
from simfloat.torch.quick_recurrent import layer_in_one_call
from simfloat.torch.quick_updates import WHOLE_UPDATES
from simfloat.torch.run_context import BY_PYTORCH
from simfloat.torch.tensors import Tag, check_unwrapped, put_tag, tag_of

#: The keys of kernels above autograd, on the CPU and on an NVIDIA GPU.
KEYS = ("AutogradCPU", "AutogradCUDA") if torch.backends.cuda.is_built() else ("AutogradCPU",)


def with_other_weights(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap functional_call: tensors that replace a parameter are rounded and used as this parameter."""

    @wraps(function)
    def call(module: torch.nn.Module, others: dict[str, Any], *args: Any, **options: Any) -> Any:
        run = active_run()
        if run is None:
            return function(module, others, *args, **options)
        above = next((path for path, each in run.run.model.named_modules() if each is module), None)
        if above is None:
            raise ValueError(
                f"functional_call calls a {type(module).__name__} that is not in the simulated model; simulate a "
                "torch.nn.ModuleList of all modules that are called."
            )
        prefix = f"{above}." if above else ""
        weights = {name: run.in_place_of(prefix + name, x) for name, x in others.items()}
        return function(module, weights, *args, **options)

    return call


def with_known_functions(load: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap the import of PyTorch's formulas for forward derivatives, which torch.jit compiles at the first derivative.

    torch.jit finds PyTorch's own functions by identity. During the import, wrappers have the names of their functions.
    """

    @wraps(load)
    def call() -> Any:
        if FORWARD_FORMULAS in sys.modules:
            return None
        names, added = _get_builtin_table(), list[int]()
        try:
            for before, wrapper in filter(None, (setting.pair for setting in SETTINGS)):
                # A function may have two wrappers: the outer one wraps a function that has just been added.
                if id(before) in names and id(wrapper) not in names:
                    names[id(wrapper)] = names[id(before)]
                    added.append(id(wrapper))
            return load()
        finally:
            for key in added:
                del names[key]

    return call


class Setting:
    """A setting of the process that has a value while any block needs it, and is restored afterwards."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any], value: Callable[[Any], Any]) -> None:
        self._read, self._write, self._value = read, write, value
        self._before: Any = None
        self._blocks = 0
        #: The value that the last block replaced, and its own; None before the first block.
        self.pair: tuple[Any, Any] | None = None

    def begin(self) -> None:
        """Begin a block; the first block sets the value."""
        if self._blocks == 0:
            self._set()
        self._blocks += 1

    def end(self) -> None:
        """End a block; the last block restores the setting."""
        self._blocks -= 1
        if self._blocks == 0:
            self._restore()

    def _set(self) -> None:
        """Store the present value, and set the value that is computed from it."""
        before = self._before = self._read()
        # Wrapping 30 functions again in each block took a tenth of the time of an empty block.
        if self.pair is None or self.pair[0] is not before:
            self.pair = before, self._value(before)
        self._write(self.pair[1])

    def _restore(self) -> None:
        self._write(self._before)


class Backend(Setting):
    """A kernel of attention that is on or off while any block needs it.

    Values that the program sets apply after the block.

    Inside the block the program reads its own value: torch.nn.attention.sdpa_kernel has no effect there.
    """

    def __init__(self, name: str, is_on: bool) -> None:
        self._names, self._is_on = (f"_get_{name}_sdp_enabled", f"_set_sdp_use_{name}"), is_on
        super().__init__(lambda: bool(getattr(torch._C, self._names[0])()), self._keep, lambda _: is_on)

    def _set(self) -> None:
        # torch.nn.attention.sdpa_kernel reads and writes these settings through torch._C. In the block it uses the
        # values of the program, while only the kernel that consists of single operations is on.
        self._functions = read, write = [getattr(torch._C, name) for name in self._names]
        self._before = read()
        write(self._is_on)
        for name, function in zip(self._names, (lambda: self._before, self._keep), strict=True):
            setattr(torch._C, name, function)

    def _keep(self, value: bool) -> None:
        self._before = value

    def _restore(self) -> None:
        for name, function in zip(self._names, self._functions, strict=True):
            setattr(torch._C, name, function)
        self._functions[1](self._before)


class ReplacedKernels(Setting):
    """Functions that replace PyTorch's kernels of operations, above autograd, while any block needs them.

    They receive calls of an operation by any name. Each wrapper gets PyTorch's kernel of its operation.
    """

    def __init__(self, wrappers: Sequence[tuple[Any, Callable[[Any], Any]]]) -> None:
        name = f"aten::{ATTENTION}"
        super().__init__(lambda: torch._C._dispatch_has_kernel_for_dispatch_key(name, KEYS[0]), off, off)
        self._wrappers = wrappers
        self._names = [operation.name() for operation, _ in wrappers]
        self._kernels: list[Any] = []  # empty before the first block

    def _set(self) -> None:
        # Replacing F.scaled_dot_product_attention would miss modules that have imported the function by name, and
        # modules that have stored an activation, such as F.gelu.
        self._library: Any = torch.library.Library("aten", "IMPL")
        for key in KEYS:
            self._library.impl(ATTENTION, attention, key)
        # Finding and wrapping PyTorch's kernels took half of the time of an empty block. It is repeated only if a
        # program has replaced one of them.
        if not self._kernels or any(map(_is_replaced, self._names)):
            # Given the name of the key, `get_kernel` would list all keys for each operation, which took 0.3 ms.
            keys = [torch._C.DispatchKey.__members__[key] for key in KEYS]
            kernels = [wrapper(torch.library.get_kernel(op, key)) for key in keys for op, wrapper in self._wrappers]
            self._kernels = [] if any(map(_is_replaced, self._names)) else kernels
        else:
            kernels = self._kernels
        for (key, name), kernel in zip(product(KEYS, self._names), kernels, strict=True):
            self._library.impl(name, kernel, key, with_keyset=True)

    def _restore(self) -> None:
        self._library._destroy()


def _is_replaced(name: str) -> bool:
    """True if a program has registered a kernel above autograd for an operation."""
    is_registered = any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in KEYS)
    return is_registered or f"{name.replace('::', '/')}/Autograd" in torch.library._impls


def off(before: bool) -> bool:
    """Return the value of a setting that turns fused kernels off."""
    return False


def with_marked_gradients(engine: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the start of a backward pass: mark the gradients that it begins with, and find the nodes of the pass."""

    def begin(
        outputs: Any, gradients: Any, keeps: bool, is_recorded: bool, inputs: Any, *args: Any, **options: Any
    ) -> Any:
        run = active_run()
        if run is None:
            return engine(outputs, gradients, keeps, is_recorded, inputs, *args, **options)
        check_unwrapped([*outputs, *gradients])
        for gradient in gradients:
            if isinstance(gradient, torch.Tensor):
                # These are ones, or the gradients that the caller passed. Without the mark, the first product of the
                # pass would round them as activations.
                put_tag(gradient, tag_of(gradient)._replace(is_gradient=True, is_weight=False))
        # backward() accumulates into `.grad`, and torch.autograd.grad returns the gradients: both call this function.
        accumulates = options.get("accumulate_grad", False)
        run.paths.forget_ended_calls()
        with run.backward_nodes.open(outputs, accumulates, is_recorded, not inputs):
            return engine(outputs, gradients, keeps, is_recorded, inputs, *args, **options)

    return begin


def without_dispatched_ones(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that creates the ones that backward() starts with: they are dispatched only if watched."""

    @wraps(function)
    def call(outputs: Any, gradients: Any, *args: Any, **options: Any) -> Any:
        run: Any = active_run()
        if run is None or not is_alone(run):
            return function(outputs, gradients, *args, **options)
        with without_dispatch():
            results = function(outputs, gradients, *args, **options)
        if run.simulation.observer is None:
            return results
        # Ones without a format are rounded, which changes no value, but is counted. If dispatched, they have a format.
        for output, gradient, result in zip(outputs, gradients, results, strict=True):
            if gradient is None and result is not None:
                is_tensor = isinstance(output, torch.Tensor)
                put_tag(result, Tag(tag_of(output).format if is_tensor else run.constant_format))
        return results

    return call


def without_dispatched_mark(operation: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that marks a part of the program for PyTorch's profiler by an operation."""

    @wraps(method)
    def call(*args: Any) -> Any:
        run: Any = active_run()
        if run is None or not is_alone(run):
            return method(*args)
        # Each step of an optimizer has four marks. Dispatched, they took 3 % of a step of an MLP.
        run.count_operation(operation, BY_PYTORCH)
        with without_dispatch():
            return method(*args)

    return call


def while_scaling(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of torch.amp.GradScaler: its own multiplications are not simulated."""

    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        with scaling():
            return method(*args, **options)

    return call


def step_after_unscaling(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap GradScaler.step: for a fused optimizer, the scaler itself unscales the gradients, as for others."""

    @wraps(step)
    def call(scaler: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
        if active_run() is None or "_step_supports_amp_scaling" not in vars(optimizer):
            return step(scaler, optimizer, *args, **options)
        unscales = vars(optimizer).pop("_step_supports_amp_scaling")
        try:
            return step(scaler, optimizer, *args, **options)
        finally:
            optimizer._step_supports_amp_scaling = unscales

    return call


def function_setting(owner: Any, name: str, wrapper: Callable[..., Any]) -> Setting:
    """Return the setting for a function with this name in its owner."""
    return Setting(lambda: getattr(owner, name), lambda function: setattr(owner, name, function), wrapper)


def set_method(name: str, method: Callable[..., Any]) -> None:
    """Set a method of tensors, or remove it if it is the inherited method."""
    if method is getattr(torch._C.TensorBase, name):
        delattr(torch.Tensor, name)
    else:
        setattr(torch.Tensor, name, method)


#: The methods of tensors that may convert to float32.
CONVERSIONS = ("float", "to", "type", "type_as")

#: The functions with an argument `dtype` that converts the operand. Tensors have the functions of `torch` as methods.
#: cumsum and cumprod are not among them: PyTorch rounds their gradients to the dtype of the operand first.
REDUCTIONS = ("sum", "nansum", "mean", "nanmean", "prod", "norm")
SOFTMAX = ("softmax", "log_softmax")
WITH_DTYPE = (
    *((torch.nn.functional, name) for name in SOFTMAX),
    *((torch, name) for name in (*SOFTMAX, *REDUCTIONS)),
    *((torch.linalg, name) for name in ("norm", "vector_norm", "matrix_norm")),
)

#: The module with formulas for forward derivatives.
FORWARD_FORMULAS = "torch._decomp.decompositions_for_jvp"

#: Operations, each with a function that wraps PyTorch's kernel.
KERNELS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    *((row.operation, partial(kernel_of, row)) for row in ROWS),
    (torch.ops.aten.convolution.default, convolution_kernel),
)

#: The kernels of attention, by PyTorch's names.
BACKENDS = [
    name for name in ("flash", "mem_efficient", "cudnn", "overrideable", "fa3", "math")
    if hasattr(torch._C, f"_set_sdp_use_{name}")
]  # fmt: skip

#: Switched off: oneDNN, the fused kernels of attention, and the fast path of nn.MultiheadAttention and
#: nn.TransformerEncoder. Wrapped: the start of backward passes, recomputation, GradScaler, and functions with operands
#: that autocast converts to one dtype.
SETTINGS: tuple[Setting, ...] = (
    ReplacedKernels(KERNELS),
    # A kernel of oneDNN, for example for a layer of an LSTM, is one operation without single roundings.
    Setting(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, off),
    *(Backend(name, name == "math") for name in BACKENDS),
    # In inference mode, the fast path runs a whole encoder layer as one operation.
    Setting(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, off),
    function_setting(checkpoint, "_checkpoint_without_reentrant_generator", remembering),
    Setting(forward_pass, partial(setattr, checkpoint.CheckpointFunction, "forward"), reentrant),
    function_setting(torch.autograd, "_make_grads", without_dispatched_ones),
    function_setting(
        Mark, "__enter__", partial(without_dispatched_mark, torch.ops.profiler._record_function_enter_new.default)
    ),
    function_setting(
        Mark, "__exit__", partial(without_dispatched_mark, torch.ops.profiler._record_function_exit._RecordFunction)
    ),
    function_setting(torch.autograd, "_engine_run_backward", with_marked_gradients),
    function_setting(stateless, "_functional_call", with_other_weights),
    *(
        function_setting(forward_ad, name, with_known_functions)
        for name in ("_maybe_load_decompositions",)
        if hasattr(forward_ad, name)
    ),
    *(function_setting(torch.amp.GradScaler, name, while_scaling) for name in ("scale", "unscale_")),
    function_setting(torch.amp.GradScaler, "step", step_after_unscaling),
    function_setting(torch.nn.functional, "linear", linear_layer),
    # cuDNN computes a whole layer by one kernel, for example a batch norm or a recurrent layer.
    Setting(torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled, off),
    *(
        function_setting(owner, name, composed_on_gpu(name))
        for name in COMPOSITIONS
        for owner in (_VF, torch)
        if hasattr(owner, name)
    ),
    *(function_setting(_VF, name, with_autocast_types) for name in RECURRENT),
    *(function_setting(_VF, name, layer_in_one_call(name)) for name in CELLS),
    *(function_setting(_VF, name, dropout_in_operand_format) for name in CHANNEL_DROPOUTS),
    *(Setting(partial(getattr, torch.Tensor, name), partial(set_method, name), upcasts) for name in CONVERSIONS),
    *(function_setting(owner, name, with_requested_upcast) for owner, name in WITH_DTYPE),
    *(function_setting(owner, name, listed_function) for owner, name in LISTED),
    *(
        Setting(partial(getattr, torch.Tensor, name), partial(set_method, name), with_requested_upcast)
        for name in (*SOFTMAX, *REDUCTIONS)
    ),
    *(function_setting(*place, update) for place, update in WHOLE_UPDATES.items()),
)

# The settings belong to the process, and several threads may have open blocks. Each setting counts its blocks, so the
# last block of any thread restores it. The lock covers the whole list: otherwise another thread could find half of the
# settings changed.
_lock = Lock()


class without_fused_kernels:
    """A ``with`` block without fused kernels; the settings are restored after the last block of all threads."""

    def __enter__(self) -> None:
        with _lock:
            for setting in SETTINGS:
                setting.begin()

    def __exit__(self, *_: object) -> None:
        with _lock:
            for setting in reversed(SETTINGS):  # functions with two wrappers are unwrapped from the outside
                setting.end()


class with_fused_kernels:
    """A ``with`` block inside :class:`without_fused_kernels` that restores the settings from before it."""

    def __enter__(self) -> None:
        without_fused_kernels().__exit__()

    def __exit__(self, *_: object) -> None:
        without_fused_kernels().__enter__()
