"""All cases by their names."""

from tests.cuda import borders, cases, every_loop, models

CASES = {
    **cases.CASES,
    **{case.__name__: case for case in (every_loop.careful_functions, every_loop.steps)},
    **{case.__name__: case for case in (borders.layouts, borders.spacings, borders.running_sums, borders.nothing)},
    **{case.__name__: case for case in (models.layers, models.losses, models.optimizers, models.loss_scales)},
    **{case.__name__: case for case in (models.clipped, models.conditions)},
}
