"""The entries of the reference: which names a file defines, and the texts of names without a docstring of their own."""

from importlib import import_module
from inspect import isclass, isfunction, unwrap

from simfloat.formats import Format

#: The texts of public names that have no docstring of their own.
OTHERS = {
    "simfloat.CATALOG": "All named formats by name, in a dictionary. :doc:`/docs/formats` shows them as a table.",
    "simfloat.nearest_even": "Round to the nearest number; a tie goes to the neighbour with an even significand. "
    "This is the default.",
    "simfloat.nearest_away": "Round to the nearest number; a tie goes to the neighbour with the larger magnitude.",
    "simfloat.nearest_toward_zero": "Round to the nearest number; a tie goes to the neighbour nearer to zero.",
    "simfloat.nearest_up": "Round to the nearest number; a tie goes up, to the neighbour nearer to plus infinity.",
    "simfloat.nearest_down": "Round to the nearest number; a tie goes down, to the neighbour nearer to minus infinity.",
    "simfloat.toward_zero": "Round to the neighbour with the smaller magnitude: truncate.",
    "simfloat.toward_positive": "Round up, to the neighbour nearer to plus infinity.",
    "simfloat.toward_negative": "Round down, to the neighbour nearer to minus infinity.",
    "simfloat.to_odd": "Keep a number of the format; round every other value to the neighbour with an odd significand. "
    "A second rounding to a format with at least two bits less then equals one rounding of the exact value.",
    "simfloat.exact": "The accumulator without rounding: the exact sum is rounded once, to the output format.",
    "simfloat.policies": "All presets by name. ``print(simfloat.policies)`` shows them with their sources, and "
    ":doc:`/docs/presets` as a table.",
    "simfloat.attention_kernels": "Kernels of attention by name, as :func:`simfloat.flash_attention` describes them. "
    ":doc:`/docs/policies` shows them as a table.",
    "simfloat.nn.Parameter": "The same class as :class:`simfloat.Parameter`.",
    "simfloat.nn.MultiheadAttention": "PyTorch's spelling of :class:`simfloat.nn.MultiHeadAttention`.",
    "simfloat.train.save": "The same function as :func:`simfloat.save`.",
    "simfloat.train.load": "The same function as :func:`simfloat.load`.",
    "simfloat.telemetry.Recorder": "The same class as :class:`simfloat.Recorder`.",
    "simfloat.studies.search": "The same function as :func:`simfloat.search`.",
    "simfloat.plots.SMALL": "The size of small text in figures, in points.",
    "simfloat.plots.COLUMN_WIDTH": "The width of a figure in one column of a paper, in inches.",
    "simfloat.plots.FULL_WIDTH": "The width of a figure across both columns of a paper, in inches.",
    "simfloat.studies.ATTEMPTS": "How often a job is started if its process dies.",
    "simfloat.studies.SWEEP_FILES": "The files that a sweep writes: its table as CSV and Parquet, and a summary.",
    "simfloat.studies.SWEEP_HIDDEN": "The folder with the finished points of a sweep, which are not computed again.",
    "simfloat.studies.Job": "The type of a job: a dictionary of plain values, as in JSON.",
    "simfloat.studies.Result": "The type of a job's result: a dictionary of plain values, as in JSON.",
    "simfloat.studies.Executor": "The type of an executor: a function that takes a function and jobs, and yields "
    "pairs of a job's index and its result, in any order.",
    "simfloat.studies.Measured": "The type of a claim's result: the measurement as text, the outcome of a test, and "
    "optionally further values for the text of the claim.",
    "simfloat.studies.verdicts": "The module with the tests and words of verdicts, such as ``ratio_test`` and "
    "``every_test``.",
    "simfloat.studies.margins": "The module with the margins of claims, such as ``MATCH``. It is ``verdicts`` under a "
    "second name.",
}


def home_of(module, file):
    """Return the module of a file below a package, or the module itself without a file."""
    return import_module(f"{module}.{file}" if file else module)


def defined(module, file):
    """Return the public classes and functions of a module that a file defines, by name."""
    home, package = home_of(module, file), import_module(module)
    return {
        name: value
        for name, value in vars(home).items()
        if name in package.__all__ and getattr(package, name) is value and (isclass(value) or isfunction(unwrap(value)))
        if (value.__module__, value.__name__) == (home.__name__, name)
    }


def listed(module, words):
    """Yield the names that an `others` directive lists; ``CATALOG.*`` stands for the keys of the dictionary."""
    for word in words:
        yield from getattr(import_module(module), word[:-2]) if word.endswith(".*") else (word,)


def text_of(module, name):
    """Return the text of a name that is neither a function nor a class of its own."""
    value = getattr(import_module(module), name)
    if f"{module}.{name}" in OTHERS or not isinstance(value, Format):
        return OTHERS[f"{module}.{name}"]
    sign = "1 sign bit, " if value.signed else "no sign, "
    widths = f"{sign}{value.exponent_bits} exponent bits, {value.mantissa_bits} fraction bits"
    return f"The format with {widths}, and the largest number {value.max:.8g}. All facts: :doc:`/docs/formats`."
