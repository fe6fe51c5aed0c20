"""PyTorch's models in a block for tensors of our own, which has no part in what they compute."""

from __future__ import annotations

import sys
from typing import Any
from weakref import finalize, ref

from simfloat.hints import warn
from simfloat.simulation.context import under_way


class Foreign:
    """Whether a torch.nn.Module was called while a simulation was the innermost one; PyTorch is not imported for it."""

    def __init__(self, simulation: object) -> None:
        # Weakly, so that the hook of a block that never ends, as in a generator that is left, goes with the simulation.
        self._simulation, self._was_called = ref(simulation), False
        module = sys.modules.get("torch.nn.modules.module")
        hook = None if module is None else module.register_module_forward_pre_hook(self._called)
        self._listen_no_more = finalize(simulation, hook.remove) if hook is not None else lambda: None

    def _called(self, *_: Any) -> None:
        if under_way().simulation is self._simulation():
            self._was_called = True
            self._listen_no_more()

    def end(self, has_met: bool) -> None:
        """Listen no more; warn if a model was called, and the block met no operation of ours."""
        self._listen_no_more()
        if self._was_called and not has_met:
            warn(
                "A PyTorch model was called in a block of simfloat.simulate, which ended without having met an "
                "operation: nothing was rounded. PyTorch's models run under simfloat.torch.simulate(model, policy)."
            )
