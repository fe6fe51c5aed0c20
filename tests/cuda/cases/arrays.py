"""Arrays of a format: reads and writes."""

import numpy as np

import simfloat as sf

#: Zeros of both signs, and more than one NaN in a row.
X = np.array([[1.5, -0.0, 0.0], [np.nan, -2.0, np.nan], [-0.0, -1.0, -0.0], [3, np.inf, 0.5]], np.float32)
Y = np.array([[0.5, 1.0, -3.0]], np.float32)
FIRST_TWO = np.array([True, True, False, False])

READS = {
    "extremes": lambda a, b: [a.max(), a.max(0), a.max(1, True), a.min(), a.min(0), np.min(a, 1), np.max(a[[0, 2]], 1)],
    "places of extremes": lambda a, b: [a.argmax(), a.argmax(1), a.argmin(0), np.argmax(a, 1, keepdims=True)],
    "comparisons": lambda a, b: [a == 0.1, a < 2, 1.5 <= a, a > b, a != sf.array(0.1, "fp32"), b == b[0, 1]],
    "numbers not of the type": lambda a, b: [sf.array(b, sf.FP32) == 0.1, np.full_like(b, 0.1) < 0.1],
    "masks": lambda a, b: [a[a > 0], a[FIRST_TWO], a[FIRST_TWO, 1:], a[..., np.array([True, False, True])]],
    "places": lambda a, b: [
        np.resize(a, 300)[np.array([-1, 9], np.int8)],
        a[[0, -1]],
        a[np.array([1, 1])],
        a[[0, 2], [1, -3]],
        a[None, ..., [2, 0]],
        a[-1, ::-1],
    ],
    "choices": lambda a, b: [np.where(a > 0, a, b), np.where(X > 0, -0.0, a), np.where(a > 0, a, 0.1)],
    "joined": lambda a, b: [np.append(a, [0.1, -0.0]), np.concatenate([a, b]), np.stack([b, b], 1), np.append(a, b, 0)],
    "joined with numbers": lambda a, b: [
        np.hstack([a, X]),
        np.concatenate([b, 0.1], None),
        np.select([a > 0], [a], 0.1),
    ],
    "exact functions": lambda a, b: [np.rint(a / 3), np.floor(b / 2), np.sign(a), np.copysign(a, b), np.fmod(a, b)],
    "operands": lambda a, b: [a + b.numbers, np.fmax(a, b), np.fmin(a, 0.5)],
    "padded": lambda a, b: [np.pad(b, 1, constant_values=0.1), np.insert(b, 1, 0.1, axis=1), np.atleast_3d(b)],
    "norms": lambda a, b: [np.linalg.norm(b), np.linalg.norm(b, np.inf), np.trace(b.T @ b)],
    "moved": lambda a, b: [np.take(a, [0, -2], 1), np.take_along_axis(a, np.ones((4, 2), int), -1), np.delete(a, 1, 0)],
    "filled": lambda a, b: [np.full_like(a, -0.0), np.full_like(a, 0.3, shape=()), np.ones_like(a, shape=(2,))],
    "sorted": lambda a, b: [np.sort(a), np.sort(a, 0), np.sort(a[2])],
    "complex": lambda a, b: [a + 0j, (a * 1j).abs(), (b + 2j) * (b - 1j), (b + 2j) / (b - 1j), 1j / b, (b + 1j) @ b.T],
}

WRITES = {
    "a row": lambda a, b: a.__setitem__(0, [1.1, -0.0, 3]),
    "rows with axes of one": lambda a, b: a.__setitem__([0, 1], sf.array(np.ones((1, 1, 3)), sf.BF16)),
    "all": lambda a, b: a.__setitem__(..., -0.0),
    "by mask": lambda a, b: a.__setitem__(a > 0, -0.0),
    "rows": lambda a, b: a.__setitem__([0, -2], -0.0),
    "the last of several values": lambda a, b: a.__setitem__(([0, 0, -4], 1), sf.array([1.0, 2.0, 3.0], sf.BF16)),
    "places in a short type": lambda a, b: a.__setitem__(np.array([-1, 0], np.int8), 2.0),
    "into a view": lambda a, b: a.T.__setitem__([2, 0, 2], sf.array([[1.0], [2.0], [3.0]], sf.BF16)),
    "over its source": lambda a, b: a.__setitem__(slice(1, None), a[:-1]),
    "backwards": lambda a, b: a.__setitem__(slice(None, None, -1), a),
    "rows over its source": lambda a, b: a.__setitem__([0, 1, 2], a[1:]),
    "in place": lambda a, b: a.__imul__(b),
    "by NumPy's functions": lambda a, b: [np.put(a, [0, -1], 0.1), np.copyto(a, 0.3, where=X == -2), a.T.fill(0.7)],
}


def both(move):
    """Arrays without other references."""
    return [sf.array(move(x.copy()), sf.BF16) for x in (X, Y)]


def parts_of(result):
    """The numbers of a result, real and imaginary ones apart."""
    x = result.numbers if isinstance(result, sf.Array) else result
    x = np.asarray(x) if isinstance(x, np.generic) else x
    return [x.real, x.imag] if x.dtype.kind == "c" else [x]


def reads(move):
    for read in READS.values():
        for result in read(*both(move)):
            yield from parts_of(result)


def writes(move):
    for write in WRITES.values():
        a, b = both(move)
        write(a, b)
        yield a.numbers
