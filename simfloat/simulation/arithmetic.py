"""The arithmetic of a place: operations on arrays whose every result is rounded once, as the policy says there.

`MeteredArithmetic` also counts results, operands and multiply-adds, with the roles of a policy that they concern.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.arithmetic.bit_stream import NO_WORDS, BitStream
from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.catalog import kind_of
from simfloat.arithmetic.machines import CPU, Device, device_of, on_device_of
from simfloat.arithmetic.operands import LEAST_ALIGNED
from simfloat.arithmetic.operations import compute, round_array
from simfloat.arithmetic.plan import plan_for
from simfloat.arithmetic.scaling import Hadamard
from simfloat.arithmetic.target import Target, notify, wants
from simfloat.formats import FP32, Format, Rounding
from simfloat.kernels.rounding.events import TOTAL, wants_optional_counts
from simfloat.sums import Accumulator, exact, matmul, sequential
from simfloat.sums.convolution import conv2d_weight_gradient, convolve
from simfloat.sums.geometry import Geometry, Volumes, im2col, kernel_shape, weight_gradient_factors
from simfloat.sums.partial_sums import running_sums_of_vectors
from simfloat.sums.plan import Histories, Options, product_plan
from simfloat.sums.product import multiply_matrices
from simfloat.sums.scales import Scales, as_scales


@dataclass(frozen=True, eq=False, slots=True)
class Input:
    """How an operand of a contraction is rounded first, and the name by which an observer receives its events.

    One object for each operand of a place: it is a key by what it is, not by what it holds.
    """

    cast: Cast
    operation: str  # cast_input, cast_weight or cast_gradient
    is_already_in_format: bool = False  # whether the cast is known to leave its numbers as they are


class Rotation(NamedTuple):
    """Operands of a product turned along k by one orthogonal matrix, which leaves the exact product as it was."""

    transform: Hadamard
    stream: BitStream  # whose seed the signs follow from; no call of it is taken

    def rotate(self, a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
        """Matrices (..., m, k) and (..., k, n), turned along k."""
        return self._rotate_rows(a), self._rotate_rows(b.swapaxes(-1, -2)).swapaxes(-1, -2)

    def _rotate_rows(self, x: NDArray) -> NDArray:
        """The numbers of runs of the last axis, filled up with zeros, transformed and rounded once to FP32."""
        size = self.transform.size
        short = -x.shape[-1] % size
        filled = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, short)]) if short else x
        runs = filled.reshape(-1, size)
        turned = matmul(runs, on_device_of(self.transform.matrix(self.stream.seed), x), accumulate=exact, output=FP32)
        return turned.reshape(filled.shape)


class Elementwise:
    """The four operations of arithmetic, by `apply`."""

    __slots__ = ()

    def apply(self, operation: str, *operands: Any) -> NDArray:
        """An elementwise operation of the catalog."""
        raise NotImplementedError

    def add(self, a: Any, b: Any) -> NDArray:
        """a + b."""
        return self.apply("add", a, b)

    def subtract(self, a: Any, b: Any) -> NDArray:
        """a - b."""
        return self.apply("subtract", a, b)

    def multiply(self, a: Any, b: Any) -> NDArray:
        """a * b."""
        return self.apply("multiply", a, b)

    def divide(self, a: Any, b: Any) -> NDArray:
        """a / b."""
        return self.apply("divide", a, b)


class ArithmeticFields(NamedTuple):
    """What an arithmetic computes by: the fields of `Arithmetic`."""

    target: Target
    accumulate: Accumulator  # of contractions
    reduce: Accumulator  # of all other sums
    where: str  # the operation and the layer, for messages
    options_cache: dict[
        Any, Options
    ]  # the options of its sums on the CPU by the inputs of their operands, looked up once
    refusal: str = ""  # why results of elementwise operations would be rounded twice, if they would
    histories: Histories = (None, None)  # of the operands of contractions, for delayed scalings
    rotation: Rotation | None = None  # of both operands of contractions along k, before they are rounded
    metering: Any = None  # what counts its work, if it is counted


class Arithmetic(Elementwise, ArithmeticFields):
    """Operations whose results go to one target: a format, a rounding mode, a random stream, an observer."""

    __slots__ = ()

    @property
    def format(self) -> Format:
        """The format of its results."""
        return self.target.format

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """An elementwise operation; ValueError where its result cannot be proven to be rounded once."""
        if self.refusal:
            raise ValueError(self.refusal)
        try:
            return compute(operation, list(operands), self.target)
        except ValueError as error:
            raise self._with_place(error) from None

    def round(self, x: NDArray, operation: str = "", *sources: NDArray) -> NDArray:
        """The numbers themselves, rounded; as which step of a formula makes no difference here."""
        try:
            return round_array(x, self.target)
        except ValueError as error:
            raise self._with_place(error) from None

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes`, in row-major order; the axes are dropped."""
        if axes == tuple(range(len(axes))):
            # Leading axes: the rows as they are, times ones from the left.
            shape, count = x.shape[len(axes) :], math.prod(x.shape[: len(axes)])
            rows = x.reshape(count, math.prod(shape))
            return self._multiply(_ones(x, (1, count)), rows, self.reduce).reshape(shape)
        remaining_axes = [axis for axis in range(x.ndim) if axis not in axes]
        shape, count = tuple([x.shape[axis] for axis in remaining_axes]), math.prod([x.shape[axis] for axis in axes])
        rows = x.transpose(*remaining_axes, *axes).reshape(math.prod(shape), count)
        return self._multiply(rows, _ones(x, (count, 1)), self.reduce).reshape(shape)

    def running_sums(self, rows: NDArray) -> NDArray:
        """The sums of all rows (n, columns) up to each, every one as `sum` makes it; linear in n where that can be."""
        count, columns = rows.shape
        if self._allows_float32_loop(rows) and self.reduce == sequential(FP32):
            # NumPy accumulates float32 numbers one after the other, which is sequential(FP32) bit for bit. The row of
            # zeros is the accumulator's start: a first -0 becomes +0.
            with np.errstate(invalid="ignore", over="ignore"):
                return self.round(np.add.accumulate(np.concatenate([np.zeros_like(rows[:1]), rows]))[1:])
        # Prefixes are sums of their own only where terms are added one at a time. A draw depends on the number of the
        # call, and a meter counts every sum, so both need a sum for each row. With more columns than rows that is also
        # the smaller number of calls.
        modes = (*self.reduce.roundings, self.target.rounding)
        is_linear = self.reduce.chunk == 1 and not any(mode.is_stochastic for mode in modes)
        if not is_linear or self.metering is not None or columns > count or type(rows) is not np.ndarray:
            return np.stack([self.sum(rows[: i + 1], (0,)) for i in range(count)])
        options, ones = self._options(self.reduce, None, CPU), _ones(rows, (count,))
        try:
            sums = [running_sums_of_vectors(np.ascontiguousarray(rows[:, j]), ones, options) for j in range(columns)]
        except ValueError as error:
            raise self._with_place(error) from None
        return np.stack(sums, 1)

    def running_products(self, rows: NDArray) -> NDArray:
        """The products of all rows (n, columns) up to each, every one rounded."""
        target, products = self.target, [self.round(rows[0])]
        plan = plan_for(target.format, target.rounding, np.float64, CPU)
        # Products of numbers of float32 and of the format are exact in float64.
        if not (
            self._allows_float32_loop(rows)
            and target.format.precision <= 29
            and target.format.fits_float32
            and plan.has_nan
        ):
            for row in rows[1:]:
                products.append(self.multiply(products[-1], row))
            return np.stack(products)
        results, wide = np.empty(rows.shape, target.dtype), rows.astype(np.float64)
        results[0], exact_product = products[0], np.empty(rows.shape[1:])
        with np.errstate(invalid="ignore"):
            for i in range(1, len(rows)):
                np.multiply(results[i - 1], wide[i], out=exact_product)
                plan.loop(exact_product, NO_WORDS, results[i], plan.numbers)
        return results

    def _allows_float32_loop(self, x: NDArray) -> bool:
        """Whether float32 numbers on the CPU are computed with that nobody counts, and for which nothing is drawn."""
        is_seen = self.target.observer is not None or self.metering is not None
        return type(x) is np.ndarray and x.dtype == np.float32 and not (is_seen or self.target.rounding.is_stochastic)

    def mean(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """The sums over `axes` divided by the number of terms: two roundings."""
        return self.divide(self.sum(x, axes), np.array(float(math.prod(x.shape[axis] for axis in axes))))

    def for_operation(self, operation: str) -> Arithmetic:
        """The arithmetic of a formula's step: all steps have this one."""
        return self

    def with_format_of(self, x: NDArray, *sources: NDArray) -> NDArray:
        """`x` itself, a new array of numbers that were those of `sources`: all steps have one format here."""
        return x

    def composite(self, name: str, formula: Callable[..., NDArray], *operands: NDArray, **options: Any) -> NDArray:
        """The result of a formula that is a composite of its own where steps have places of their own."""
        return formula(self, *operands, **options)

    def matmul(self, a: NDArray, b: NDArray, a_input: Input, b_input: Input, scales: Scales | None = None) -> NDArray:
        """The products of matrices (..., m, k) and (..., k, n), each operand rounded as its input says.

        Operands that bring `scales` of their blocks are elements, which no rotation turns.
        """
        if scales is not None:
            return self._sum_products(_multiply_scaled, (a, b, scales), self.accumulate, (a_input, b_input))
        if self.rotation is not None:
            a, b = self.rotation.rotate(a, b)
        return self._multiply(a, b, self.accumulate, (a_input, b_input))

    def conv2d(self, x: NDArray, w: NDArray, geometry: Geometry | Volumes, x_input: Input, w_input: Input) -> NDArray:
        """The convolution of images (N, C, H, W) with kernels (O, C / groups, h, w), each rounded as its input says."""
        if self.rotation is not None:
            # A rotation turns runs along k, the axis of the sum, which only the patches as rows of a matrix have.
            patches, kernels = im2col(geometry.images_for_kernels(x), w, geometry.slices)
            product = self.matmul(patches, kernels, x_input, w_input).swapaxes(-1, -2)
            return product.reshape(len(patches), len(w), *geometry.slices.result)
        return self._sum_products(convolve, (x, w, geometry), self.accumulate, (x_input, w_input))

    def correlate(
        self, g: NDArray, x: NDArray, geometry: Geometry | Volumes, g_input: Input, x_input: Input
    ) -> NDArray:
        """The gradient of a convolution's kernels from that of its results, each operand rounded as its input says."""
        if self.rotation is not None:
            images, slices = geometry.images_for_kernels(x), geometry.slices
            gradients, patches = weight_gradient_factors(g, images, slices)
            return self.matmul(gradients, patches, g_input, x_input).reshape(kernel_shape(g, images, slices))
        return self._sum_products(conv2d_weight_gradient, (g, x, geometry), self.accumulate, (g_input, x_input))

    def _multiply(self, a: NDArray, b: NDArray, by: Accumulator, inputs: tuple[Input, Input] | None = None) -> NDArray:
        return self._sum_products(multiply_matrices, (a, b), by, inputs)

    def _sum_products(
        self,
        sums: Callable[..., NDArray],
        operands: tuple[Any, ...],
        by: Accumulator,
        inputs: tuple[Input, Input] | None,
    ) -> NDArray:
        """Sums of products, by a function of `operands`, of which the first two are arrays, and of Options."""
        machine = device_of(operands[0], operands[1])
        # Options hold loops of one device, and the key does not name it: those of a GPU are made for every call.
        options = self.options_cache.get(inputs) if machine is CPU else None
        try:
            if options is None:
                options = self._options(by, inputs, machine)
                if machine is CPU:
                    self.options_cache[inputs] = options
            return sums(*operands, options)
        except ValueError as error:
            raise self._with_place(error) from None

    def _options(self, by: Accumulator, inputs: tuple[Input, Input] | None, machine: Device) -> Options:
        """What is asked of sums of products: without inputs those through `reduce`."""
        target = self.target
        if inputs is None:
            return Options(product_plan(by, None, target.format, target.rounding, machine), target)
        x, y = inputs
        plan = product_plan(by, (x.cast, y.cast), target.format, target.rounding, machine)
        return Options(
            plan, target, (x.operation, y.operation), self.histories, (x.is_already_in_format, y.is_already_in_format)
        )

    def _with_place(self, error: ValueError) -> ValueError:
        return ValueError(f"{self.where}: {error}")

    def with_rounding(self, rounding: Rounding) -> Arithmetic:
        """Return this arithmetic with a rounding mode that draws nothing."""
        return self.with_target(self.target._replace(rounding=rounding, stream=None))

    def with_observer(self, observer: Observer | None) -> Arithmetic:
        """Return this arithmetic with another observer."""
        return self.with_target(self.target._replace(observer=observer))

    def with_operation(self, operation: str) -> Arithmetic:
        """Return this arithmetic with the name under which an observer receives its sums and roundings."""
        return self.with_target(self.target._replace(operation=operation))

    def with_target(self, target: Target) -> Arithmetic:
        """Return this arithmetic with another target."""
        return self._replace(target=target, options_cache={})


def _multiply_scaled(a: NDArray, b: NDArray, scales: Scales, options: Options) -> NDArray:
    """The products of matrices whose blocks along k have scales."""
    return multiply_matrices(a, b, options, as_scales(scales, a, b, options.accumulator))


def _ones(x: NDArray, shape: tuple[int, ...]) -> NDArray:
    """As many ones as a sum has terms, where `x` is and of its type."""
    if type(x) is np.ndarray and math.prod(shape) <= LEAST_ALIGNED:
        return _few_ones(shape, x.dtype)
    return np.ones_like(x, order="C", shape=shape)


@lru_cache(maxsize=64)
def _few_ones(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Return an array of ones that all sums of one length share."""
    return np.ones(shape, dtype)


@dataclass(frozen=True)
class WithPath(Observer):
    """Passes events on with the path of one layer and one phase."""

    observer: Observer
    layer: str
    stage: str
    more: bool = False

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Pass the events on with the layer's path and the phase."""
        notify(self.observer, events, operation, self.layer, self.stage)


class PendingEvents(Observer):
    """Keeps the events of one operation for an observer, until it is known at which path the last rounding counts."""

    def __init__(self, observer: Observer | None, layer: str = "") -> None:
        self.observer, self.layer = observer, layer
        self.more = wants_optional_counts(observer)
        self.pending: list[tuple[NDArray[np.int64], str]] = []

    @property
    def count(self) -> int:
        """How many results the last rounding had."""
        return int(self.pending[-1][0][TOTAL]) if self.pending else 0

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Keep the events of one call."""
        self.pending.append((events, operation))

    def release(self, path: str | None = None, elements: int | None = None) -> None:
        """Give the observer the events of a backward pass: of the last rounding at `path`, of others at the layer's.

        elements is how many have the numbers that were rounded last, where these are fewer.
        """
        last = len(self.pending) - 1
        for number, (events, operation) in enumerate(self.pending):
            where = path if number == last and path is not None else self.layer
            if self.observer is not None and wants(self.observer, where, "backward"):
                if number == last and elements is not None and events[TOTAL]:
                    events = events * (elements // events[TOTAL])
                notify(self.observer, events, operation, where, "backward")
        self.pending.clear()


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
