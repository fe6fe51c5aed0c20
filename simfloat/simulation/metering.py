"""Counting work where it is done: results, operands and multiply-adds, with the roles of a policy they concern."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.geometry import Geometry
from simfloat.accumulate.scales import Scales
from simfloat.accumulate.volumes import Volumes
from simfloat.arithmetic import Observer
from simfloat.arithmetic.catalog import kind_of
from simfloat.formats import Format
from simfloat.simulation.arithmetic import Arithmetic, Input

#: The role by which an operand of a contraction is rounded, by the name of its cast.
ROLE_OF_CAST = {"cast_input": "compute", "cast_weight": "compute_weights", "cast_gradient": "compute_gradients"}


class Site(NamedTuple):
    """Where a policy is asked for a role: the layer, the path and the operations that it is asked by."""

    layer: str
    path: str  # of the layer, or of the parameter that the role concerns
    operations: tuple[str, ...]
    phase: str
    role: str
    format: Format | None = None  # of results, where it follows from their operands


class Product(NamedTuple):
    """Products of two kinds of operands that are summed for one kind of result."""

    result: Site
    a: Site
    b: Site


class Silent(Observer):
    """Wants no events: with any observer, gradients of parameters are kept apart from those of activations."""

    def wants(self, path: str, phase: str) -> bool:
        """Never."""
        return False

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Nothing comes here."""


class WorkMeter(Silent):
    """Counts the work of a simulation: see `Simulation.meter`. As an observer it wants no events.

    * results: numbers that are rounded to a role; read: those that elementwise operations and sums take for them;
    * operands: numbers that are rounded for contractions;
    * products: multiply-adds; sums: additions that belong to no contraction.
    """

    def __init__(self) -> None:
        self.results: Counter[Site] = Counter()
        self.read: Counter[Site] = Counter()
        self.operands: Counter[Site] = Counter()
        self.products: Counter[Product] = Counter()
        self.sums: Counter[Site] = Counter()


class Metering(NamedTuple):
    """The meter of an arithmetic, the site of its results, and the place, which knows whose its operands are."""

    meter: WorkMeter
    site: Site
    place: Any


def _hands_on(operation: str) -> bool:
    """Whether the gradient of an operand is that of the result, perhaps moved."""
    return operation == "add" or kind_of(operation) == "movement"


class MeteredArithmetic(Arithmetic):
    """An arithmetic whose work is counted."""

    __slots__ = ()

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """An elementwise operation."""
        return self._count_result(super().apply(operation, *operands), operands)

    def round(self, x: NDArray, operation: str = "", *sources: NDArray) -> NDArray:
        """The numbers themselves, rounded; what hands a gradient on in its own format does no work."""
        result, site = super().round(x, operation, *sources), self.metering.site
        is_handed_on = site.phase == "backward" and _hands_on(site.operations[-1])
        return result if is_handed_on else self._count_result(result, (x,))

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes`."""
        self.metering.meter.sums[self.metering.site] += x.size
        return self._count_result(super().sum(x, axes), (x,))

    def matmul(self, a: NDArray, b: NDArray, a_input: Input, b_input: Input, scales: Scales | None = None) -> NDArray:
        """The products of matrices."""
        result = super().matmul(a, b, a_input, b_input, scales)
        return self._count_products(result, result.size * a.shape[-1], (a, b), (a_input, b_input))

    def conv2d(self, x: NDArray, w: NDArray, geometry: Geometry | Volumes, x_input: Input, w_input: Input) -> NDArray:
        """The convolution of images with kernels; a transposed one is as much work as the one that it is of."""
        result = super().conv2d(x, w, geometry, x_input, w_input)
        if self.rotation is not None:
            return result  # a product of matrices, which was counted
        by_image = geometry.slices.is_transposed
        products = x.size * w.size // max(x.shape[1], 1) if by_image else result.size * w[0].size
        return self._count_products(result, products, (x, w), (x_input, w_input))

    def correlate(
        self, g: NDArray, x: NDArray, geometry: Geometry | Volumes, g_input: Input, x_input: Input
    ) -> NDArray:
        """The gradient of a convolution's kernels."""
        result = super().correlate(g, x, geometry, g_input, x_input)
        if self.rotation is not None:
            return result  # a product of matrices, which was counted
        return self._count_products(result, result.size * (g.size // max(g.shape[1], 1)), (g, x), (g_input, x_input))

    def _count_result(self, result: NDArray, operands: tuple[Any, ...]) -> NDArray:
        """A result that operands were read for; numbers without axes are constants."""
        meter, site = self.metering.meter, self.metering.site
        meter.results[site] += result.size
        meter.read[site] += sum(math.prod(np.shape(x)) for x in operands if np.ndim(x))
        return result

    def _count_products(
        self, result: NDArray, products: int, operands: tuple[NDArray, NDArray], inputs: tuple[Input, Input]
    ) -> NDArray:
        """The result of a contraction of so many products."""
        meter, site = self.metering.meter, self.metering.site
        a, b = (self._site_of(x) for x in inputs)
        meter.results[site] += result.size
        meter.products[Product(site, a, b)] += products
        for operand, array in zip((a, b), operands, strict=True):
            meter.operands[operand] += array.size
        return result

    def _site_of(self, operand: Input) -> Site:
        """Where a policy says how an operand is rounded."""
        site, path = self.metering.site, self.metering.place.path_of_input(operand)
        return site._replace(path=path, role=ROLE_OF_CAST[operand.operation], format=None)
