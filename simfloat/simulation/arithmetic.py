"""The arithmetic of a place: operations on arrays that round every result once, as the policy says for the place.

`MeteredArithmetic` also counts results, operands and multiply-adds, with the roles of the policy that they concern.
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
from simfloat.arithmetic.bit_stream import NO_WORDS, BitStream, take_draw
from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.catalog import kind_of
from simfloat.arithmetic.machines import CPU, Device, device_of, on_device_of
from simfloat.arithmetic.operands import FLOAT32, LEAST_ALIGNED, FloatType, flat
from simfloat.arithmetic.operations import compute, round_array, round_vector
from simfloat.arithmetic.plan import plan_for
from simfloat.arithmetic.scaling import Hadamard
from simfloat.arithmetic.target import Target, WithPath, bound_counts, carrier_of, check_precision, notify, wants
from simfloat.formats import FP32, Format, Rounding
from simfloat.kernels.rounding.events import INFINITE, NAN, TOTAL, wants_optional_counts
from simfloat.sums import Accumulator, exact, matmul, sequential
from simfloat.sums.convolution import conv2d_weight_gradient, convolve
from simfloat.sums.geometry import Geometry, Volumes, im2col, kernel_shape, weight_gradient_factors
from simfloat.sums.partial_sums import running_sums_of_vectors
from simfloat.sums.plan import Histories, Options, product_plan
from simfloat.sums.product import multiply_matrices
from simfloat.sums.scales import Scales, as_scales


@dataclass(frozen=True, eq=False, slots=True)
class Input:
    """The rounding of an operand of a contraction, and the name under which an observer receives its events.

    Each operand of a place has its own object, which serves as a key by identity.
    """

    cast: Cast
    operation: str  # cast_input, cast_weight or cast_gradient
    is_already_in_format: bool = False  # True if the cast is known to change no value


class Rotation(NamedTuple):
    """The rotation of both operands of a product along k by one orthogonal matrix; it keeps the exact product."""

    transform: Hadamard
    stream: BitStream  # its seed determines the signs; no call of it is used

    def rotate(self, a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
        """Rotate matrices (..., m, k) and (..., k, n) along k."""
        return self._rotate_rows(a), self._rotate_rows(b.swapaxes(-1, -2)).swapaxes(-1, -2)

    def _rotate_rows(self, x: NDArray) -> NDArray:
        """Pad the last axis with zeros to whole runs, transform each run, and round once to FP32."""
        size = self.transform.size
        short = -x.shape[-1] % size
        filled = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, short)]) if short else x
        runs = filled.reshape(-1, size)
        turned = matmul(runs, on_device_of(self.transform.matrix(self.stream.seed), x), accumulate=exact, output=FP32)
        return turned.reshape(filled.shape)


class Elementwise:
    """The four arithmetic operations, by `apply`."""

    __slots__ = ()

    def apply(self, operation: str, *operands: Any) -> NDArray:
        """Compute an elementwise operation of the catalog."""
        raise NotImplementedError

    def add(self, a: Any, b: Any) -> NDArray:
        """Return a + b."""
        return self.apply("add", a, b)

    def subtract(self, a: Any, b: Any) -> NDArray:
        """Return a - b."""
        return self.apply("subtract", a, b)

    def multiply(self, a: Any, b: Any) -> NDArray:
        """Return a * b."""
        return self.apply("multiply", a, b)

    def divide(self, a: Any, b: Any) -> NDArray:
        """Return a / b."""
        return self.apply("divide", a, b)


class ArithmeticFields(NamedTuple):
    """The fields of `Arithmetic`."""

    target: Target
    accumulate: Accumulator  # of contractions
    reduce: Accumulator  # of all other sums
    where: str  # the operation and the layer, for messages
    options_cache: dict[Any, Any]  # for this format and mode: options of sums on the CPU, routes, plans of roundings
    refusal: str = ""  # the reason if results of elementwise operations would be rounded twice
    histories: Histories = (None, None)  # of the operands of contractions, for delayed scalings
    rotation: Rotation | None = None  # of both operands of contractions along k, before they are rounded
    metering: Any = None  # counts the work, if given


class Arithmetic(Elementwise, ArithmeticFields):
    """Operations with one target for results: a format, a rounding mode, a random stream, an observer."""

    __slots__ = ()

    @property
    def format(self) -> Format:
        """The format of results."""
        return self.target.format

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """Compute an elementwise operation; ValueError if a single rounding of its result cannot be proven."""
        if self.refusal:
            raise ValueError(self.refusal)
        try:
            return compute(operation, list(operands), self.target, self.options_cache)
        except ValueError as error:
            raise self._with_place(error) from None

    def round(self, x: NDArray, operation: str = "", *sources: NDArray) -> NDArray:
        """Round values; the name of the step of a formula makes no difference in this class."""
        try:
            target = self.target
            if type(x) is not np.ndarray:
                return round_array(x, target)
            draw = take_draw(target.stream, target.rounding) if target.rounding.mode == "stochastic" else None
            # A dtype as the key would cost 0.2 us for its hash, a tenth of the rounding.
            single = x.dtype is FLOAT32 or x.dtype == FLOAT32
            plan = self.options_cache.get(single)
            if plan is None:
                carrier: FloatType = x.dtype.type
                plan = self.options_cache[single] = plan_for(target.format, target.rounding, carrier, CPU)
            # Contiguity first, as in `flat`.
            vector = x.reshape(-1) if (flags := x.flags).c_contiguous and flags.carray else flat(x)
            return round_vector(vector, plan, x.shape, target, draw)
        except ValueError as error:
            raise self._with_place(error) from None

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Sum over `axes` in row-major order; the axes are dropped."""
        if axes == tuple(range(len(axes))):
            # Leading axes: multiply the unchanged rows by ones from the left.
            shape, count = x.shape[len(axes) :], math.prod(x.shape[: len(axes)])
            rows = x.reshape(count, math.prod(shape))
            ones = _ones(x, (1, count))
            return self._sum_products(multiply_matrices, (ones, rows), self.reduce, None).reshape(shape)
        remaining_axes = [axis for axis in range(x.ndim) if axis not in axes]
        shape, count = tuple([x.shape[axis] for axis in remaining_axes]), math.prod([x.shape[axis] for axis in axes])
        rows = x.transpose(*remaining_axes, *axes).reshape(math.prod(shape), count)
        ones = _ones(x, (count, 1))
        return self._sum_products(multiply_matrices, (rows, ones), self.reduce, None).reshape(shape)

    def running_sums(self, rows: NDArray) -> NDArray:
        """Return the sums of rows 0 to i for every i, of rows (n, columns), each as `sum` computes it.

        The cost is linear in n if possible.
        """
        count, columns = rows.shape
        if self._allows_float32_loop(rows) and self.reduce == sequential(FP32):
            # NumPy accumulates float32 values one after the other, which has the bits of sequential(FP32). The row of
            # zeros is the start of the accumulator: a first -0 becomes +0.
            with np.errstate(invalid="ignore", over="ignore"):
                return self.round(np.add.accumulate(np.concatenate([np.zeros_like(rows[:1]), rows]))[1:])
        # A prefix is a valid sum only if terms are added one at a time. Random bits depend on the number of the call,
        # and a meter counts every sum, so both need a sum for each row. With more columns than rows, this is also the
        # smaller number of calls.
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
        """Return the products of rows 0 to i for every i, of rows (n, columns), each product rounded."""
        target, products = self.target, [self.round(rows[0])]
        plan = plan_for(target.format, target.rounding, np.float64, CPU)
        # The product of a float32 value and a number of the format is exact in float64.
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
        """True for float32 arrays on the CPU without observer, meter or stochastic rounding."""
        is_seen = self.target.observer is not None or self.metering is not None
        return type(x) is np.ndarray and x.dtype == np.float32 and not (is_seen or self.target.rounding.is_stochastic)

    def mean(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Return the sums over `axes` divided by the number of terms, with two roundings."""
        return self.divide(self.sum(x, axes), np.array(float(math.prod(x.shape[axis] for axis in axes))))

    def for_operation(self, operation: str) -> Arithmetic:
        """Return the arithmetic of a step of a formula, which is the same for all steps."""
        return self

    def with_format_of(self, x: NDArray, *sources: NDArray) -> NDArray:
        """Return `x`, a new array of values of `sources`; in this class all steps have one format."""
        return x

    def composite(self, name: str, formula: Callable[..., NDArray], *operands: NDArray, **options: Any) -> NDArray:
        """Compute a formula that is a separate composite if steps have their own places."""
        return formula(self, *operands, **options)

    def matmul(self, a: NDArray, b: NDArray, a_input: Input, b_input: Input, scales: Scales | None = None) -> NDArray:
        """Multiply matrices (..., m, k) and (..., k, n), with each operand rounded by its input.

        Operands with block `scales` are elements, and are not rotated.
        """
        if scales is not None:
            return self._sum_products(_multiply_scaled, (a, b, scales), self.accumulate, (a_input, b_input))
        if self.rotation is not None:
            a, b = self.rotation.rotate(a, b)
        return self._sum_products(multiply_matrices, (a, b), self.accumulate, (a_input, b_input))

    def conv2d(self, x: NDArray, w: NDArray, geometry: Geometry | Volumes, x_input: Input, w_input: Input) -> NDArray:
        """Convolve images (N, C, H, W) with kernels (O, C / groups, h, w), with each operand rounded by its input."""
        if self.rotation is not None:
            # A rotation acts on runs along k, the axis of the sum, which exists only if the patches are rows of a
            # matrix.
            patches, kernels = im2col(geometry.images_for_kernels(x), w, geometry.slices)
            product = self.matmul(patches, kernels, x_input, w_input).swapaxes(-1, -2)
            return product.reshape(len(patches), len(w), *geometry.slices.result)
        return self._sum_products(convolve, (x, w, geometry), self.accumulate, (x_input, w_input))

    def correlate(
        self, g: NDArray, x: NDArray, geometry: Geometry | Volumes, g_input: Input, x_input: Input
    ) -> NDArray:
        """Compute the gradient of the kernels of a convolution, with each operand rounded by its input."""
        if self.rotation is not None:
            images, slices = geometry.images_for_kernels(x), geometry.slices
            gradients, patches = weight_gradient_factors(g, images, slices)
            return self.matmul(gradients, patches, g_input, x_input).reshape(kernel_shape(g, images, slices))
        return self._sum_products(conv2d_weight_gradient, (g, x, geometry), self.accumulate, (g_input, x_input))

    def _sum_products(
        self,
        sums: Callable[..., NDArray],
        operands: tuple[Any, ...],
        by: Accumulator,
        inputs: tuple[Input, Input] | None,
    ) -> NDArray:
        """Compute sums of products by a function of `operands`, of which the first two are arrays, and of Options."""
        a, b = operands[:2]
        machine = CPU if type(a) is np.ndarray and type(b) is np.ndarray else device_of(a, b)
        # Options contain loops of one device, and the key does not name the device: for a GPU they are created for
        # every call.
        options = self.options_cache.get(inputs) if machine is CPU else None
        try:
            if options is None:
                options = self._options(by, inputs, machine)
                if machine is CPU:
                    self.options_cache[inputs] = options
            elif options.target is not self.target:  # this arithmetic has another observer
                options = options._replace(target=self.target)
            return sums(*operands, options)
        except ValueError as error:
            raise self._with_place(error) from None

    def _options(self, by: Accumulator, inputs: tuple[Input, Input] | None, machine: Device) -> Options:
        """Return the options of sums of products; without inputs, the options of `reduce`."""
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
        """Return this arithmetic with a rounding mode that uses no random bits."""
        return self.with_target(self.target._replace(rounding=rounding, stream=None))

    def with_observer(self, observer: Observer | None) -> Arithmetic:
        """Return this arithmetic with another observer."""
        return self._replace(target=self.target._replace(observer=observer))

    def with_own_observer(self, observer: Observer | None) -> Arithmetic:
        """Return this arithmetic with another observer and its own caches, for many calls."""
        return self.with_target(self.target._replace(observer=observer))

    def with_operation(self, operation: str) -> Arithmetic:
        """Return this arithmetic with another name of the operation for an observer."""
        return self.with_target(self.target._replace(operation=operation))

    def with_target(self, target: Target) -> Arithmetic:
        """Return this arithmetic with another target."""
        return self._replace(target=target, options_cache={})

    def in_format(self, format: Format, role: str = "activation_gradients") -> Arithmetic:
        """Return this arithmetic with results of another format, for this role."""
        if self.format == format:
            return self
        refusal = refusal_of(format, self.target.rounding, role, self.where)
        target = self.target._replace(format=format, dtype=carrier_of(format))
        return self.with_target(target)._replace(refusal=refusal)


def refusal_of(format: Format, rounding: Rounding, role: str, where: str) -> str:
    """Return the reason why an elementwise operation with this format and mode cannot be emulated; empty if it can."""
    try:
        check_precision(format, rounding)
    except ValueError as error:
        return f"The role {role} of {where} cannot be emulated: {error}"
    return ""


def _multiply_scaled(a: NDArray, b: NDArray, scales: Scales, options: Options) -> NDArray:
    """Multiply matrices with block scales along k."""
    return multiply_matrices(a, b, options, as_scales(scales, a, b, options.accumulator))


def _ones(x: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return ones, as many as a sum has terms, on the device of x and with its type."""
    if type(x) is np.ndarray and math.prod(shape) <= LEAST_ALIGNED:
        return _few_ones(shape, x.dtype)
    return np.ones_like(x, order="C", shape=shape)


@lru_cache(maxsize=64)
def _few_ones(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Return an array of ones that all sums of one length share."""
    return np.ones(shape, dtype)


class PendingEvents(Observer):
    """Keeps the events of one operation for an observer until the path of its last rounding is known."""

    def __init__(self, observer: Observer | None, layer: str = "") -> None:
        self.observer, self.layer = observer, layer
        self.more = wants_optional_counts(observer)
        self.pending: list[tuple[NDArray[np.int64], str]] = []
        #: Vectors of zeros for the events of later calls. To create a vector of 17 KB takes longer than to count.
        self._spare_events: list[NDArray[np.int64]] = []
        self._located: dict[str, WithPath] = {}

    @property
    def count(self) -> int:
        """The number of results of the last rounding."""
        return int(self.pending[-1][0][TOTAL]) if self.pending else 0

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Keep the events of one call."""
        self.pending.append((events, operation))

    def detach(self) -> PendingEvents:
        """Return the events so far, and keep none of them."""
        events = PendingEvents(self.observer, self.layer)
        events.pending, self.pending = self.pending, events.pending
        return events

    def release(self, path: str | None = None, elements: int | None = None) -> None:
        """Send the events of a backward pass to the observer: the last rounding at `path`, the others at the layer.

        `elements` is the number of elements that share the values of the last rounding, if these are fewer.
        """
        # Before the loop, so that no event is passed on twice if the observer computes or raises an error.
        pending, self.pending = self.pending, []
        last, observer = len(pending) - 1, self.observer
        if observer is None:
            return
        for number, (events, operation) in enumerate(pending):
            where, repeats = self.layer, 1
            if number == last:
                where = self.layer if path is None else path
                if elements is not None and events[TOTAL]:
                    repeats = elements // events[TOTAL]
            located = self._located.get(where)
            if located is None:
                located = self._located[where] = WithPath(observer, where, "backward", self.more)
            # A recorder may search for the first result that is infinite or NaN.
            counts = None if events[NAN] or events[INFINITE] else bound_counts(located, operation)
            if counts is not None:
                counts.move(events, repeats)
                self._spare_events.append(events)
            elif wants(observer, where, "backward"):
                notify(located, events if repeats == 1 else events * repeats, operation)


#: The role of an operand of a contraction, by the name of its cast.
ROLE_OF_CAST = {
    "cast_input": "compute", "cast_weight": "compute_weights", "cast_gradient": "compute_gradients",
    "probabilities": "compute",
}  # fmt: skip


class Site(NamedTuple):
    """A role of the policy at a layer: with the path and the operations at which it is looked up."""

    layer: str
    path: str  # of the layer, or of the parameter concerned
    operations: tuple[str, ...]
    phase: str
    role: str
    format: Format | None = None  # of results, if it follows from their operands


class Product(NamedTuple):
    """Products of two kinds of operands, summed for one kind of result."""

    result: Site
    a: Site
    b: Site


class Silent(Observer):
    """An observer that receives no events. With an observer, gradients of parameters and activations are separate."""

    def wants(self, path: str, phase: str) -> bool:
        """Return False."""
        return False

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Do nothing; this method is never called."""


class WorkMeter(Silent):
    """Counts the work of a simulation: see `Simulation.meter`. As an observer it receives no events.

    * results: values that are rounded to a role
    * read: values that elementwise operations and sums read for them
    * operands: values that are rounded for contractions
    * products: multiply-adds
    * sums: additions outside of contractions
    """

    def __init__(self) -> None:
        self.results: Counter[Site] = Counter()
        self.read: Counter[Site] = Counter()
        self.operands: Counter[Site] = Counter()
        self.products: Counter[Product] = Counter()
        self.sums: Counter[Site] = Counter()


class Metering(NamedTuple):
    """The meter of an arithmetic, the site of its results, and the place, which identifies its operands."""

    meter: WorkMeter
    site: Site
    place: Any


def _passes_gradient_on(operation: str) -> bool:
    """True if the gradient of an operand is the gradient of the result, perhaps moved."""
    return operation == "add" or kind_of(operation) == "movement"


class MeteredArithmetic(Arithmetic):
    """An arithmetic that counts its work."""

    __slots__ = ()

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """Compute an elementwise operation."""
        return self._count_result(super().apply(operation, *operands), operands)

    def round(self, x: NDArray, operation: str = "", *sources: NDArray) -> NDArray:
        """Round values; passing on a gradient in its own format is not counted as work."""
        result, site = super().round(x, operation, *sources), self.metering.site
        is_passed_on = site.phase == "backward" and _passes_gradient_on(site.operations[-1])
        return result if is_passed_on else self._count_result(result, (x,))

    def sum(self, x: NDArray, axes: tuple[int, ...]) -> NDArray:
        """Sum over `axes`."""
        self.metering.meter.sums[self.metering.site] += x.size
        return self._count_result(super().sum(x, axes), (x,))

    def matmul(self, a: NDArray, b: NDArray, a_input: Input, b_input: Input, scales: Scales | None = None) -> NDArray:
        """Multiply matrices."""
        result = super().matmul(a, b, a_input, b_input, scales)
        return self._count_products(result, result.size * a.shape[-1], (a, b), (a_input, b_input))

    def conv2d(self, x: NDArray, w: NDArray, geometry: Geometry | Volumes, x_input: Input, w_input: Input) -> NDArray:
        """Convolve images with kernels; a transposed convolution has the same work as the forward one."""
        result = super().conv2d(x, w, geometry, x_input, w_input)
        if self.rotation is not None:
            return result  # it is a matrix product, which is already counted
        by_image = geometry.slices.is_transposed
        products = x.size * w.size // max(x.shape[1], 1) if by_image else result.size * w[0].size
        return self._count_products(result, products, (x, w), (x_input, w_input))

    def correlate(
        self, g: NDArray, x: NDArray, geometry: Geometry | Volumes, g_input: Input, x_input: Input
    ) -> NDArray:
        """Compute the gradient of the kernels of a convolution."""
        result = super().correlate(g, x, geometry, g_input, x_input)
        if self.rotation is not None:
            return result  # it is a matrix product, which is already counted
        return self._count_products(result, result.size * (g.size // max(g.shape[1], 1)), (g, x), (g_input, x_input))

    def _count_result(self, result: NDArray, operands: tuple[Any, ...]) -> NDArray:
        """Count a result and the operands read for it; 0-dimensional values are constants, and not counted."""
        meter, site = self.metering.meter, self.metering.site
        meter.results[site] += result.size
        meter.read[site] += sum(math.prod(np.shape(x)) for x in operands if np.ndim(x))
        return result

    def _count_products(
        self, result: NDArray, products: int, operands: tuple[NDArray, NDArray], inputs: tuple[Input, Input]
    ) -> NDArray:
        """Count a contraction with this number of products, and return its result."""
        meter, site = self.metering.meter, self.metering.site
        a, b = (self._site_of(x) for x in inputs)
        meter.results[site] += result.size
        meter.products[Product(site, a, b)] += products
        for operand, array in zip((a, b), operands, strict=True):
            meter.operands[operand] += array.size
        return result

    def _site_of(self, operand: Input) -> Site:
        """Return the site at which the policy, or the dtype of a program, defines the rounding of an operand."""
        site, place = self.metering.site, self.metering.place
        format = operand.cast.format if place.is_written else None
        return site._replace(path=place.path_of_input(operand), role=ROLE_OF_CAST[operand.operation], format=format)
