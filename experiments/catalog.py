"""All experiments by name."""

from __future__ import annotations

from experiments.accumulator_width import ACCUMULATOR_WIDTH
from experiments.bfloat16_models import BFLOAT16_MODELS
from experiments.block_scaling import BLOCK_SCALING
from experiments.detection import DETECTION
from experiments.dynamic_scale import DYNAMIC_SCALE
from experiments.experiment import Experiment
from experiments.few_bit_stochastic import FEW_BIT_STOCHASTIC
from experiments.fp8_hybrid import FP8_HYBRID
from experiments.fp32_accumulation import FP32_ACCUMULATION
from experiments.harmonic_series import HARMONIC_SERIES
from experiments.layer_switching import LAYER_SWITCHING
from experiments.lognormal_scaling import LOGNORMAL_SCALING
from experiments.loss_scaling import LOSS_SCALING
from experiments.master_weights import MASTER_WEIGHTS
from experiments.operation_lists import OPERATION_LISTS
from experiments.optimizer_state import OPTIMIZER_STATE
from experiments.probabilistic_bounds import PROBABILISTIC_BOUNDS
from experiments.regulariser_underflow import REGULARISER_UNDERFLOW
from experiments.tensor_core_generations import TENSOR_CORE_GENERATIONS
from experiments.update_cancellation import UPDATE_CANCELLATION

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        ACCUMULATOR_WIDTH,
        BFLOAT16_MODELS,
        BLOCK_SCALING,
        DETECTION,
        DYNAMIC_SCALE,
        FEW_BIT_STOCHASTIC,
        FP32_ACCUMULATION,
        FP8_HYBRID,
        HARMONIC_SERIES,
        LAYER_SWITCHING,
        LOGNORMAL_SCALING,
        LOSS_SCALING,
        MASTER_WEIGHTS,
        OPERATION_LISTS,
        OPTIMIZER_STATE,
        PROBABILISTIC_BOUNDS,
        REGULARISER_UNDERFLOW,
        TENSOR_CORE_GENERATIONS,
        UPDATE_CANCELLATION,
    )
}
