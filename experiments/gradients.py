"""Histograms of the exponents of gradients, as results carry them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from functools import partial

import simfloat as sf
from simfloat.telemetry.entries import Key, exponents, zeros
from simfloat.telemetry.range_fit import Histogram


def gradient_histograms(recorder: sf.Recorder, parameters: Container[str]) -> dict[str, dict[str, int]]:
    """The exponents of all gradients that a recorder saw, of "activations" and of "parameters" apart.

    parameters are the paths of these. Gradients of activations are what backward operations at the other paths of a
    model gave; roundings of operands, which would count them again, and what lies inside of the loss are left out.
    """
    is_activation = partial(_is_activation, parameters)
    return {
        "activations": _histogram(recorder, is_activation),
        "parameters": _histogram(recorder, lambda key: key.path in parameters),
    }


def as_histogram(counts: dict[str, int]) -> Histogram:
    """One of these histograms as `Recorder.histogram` gives it: JSON made texts of the exponents."""
    return {"zero" if name == "zero" else int(name): count for name, count in counts.items()}


def _is_activation(parameters: Container[str], key: Key) -> bool:
    return bool(key.path) and key.path not in parameters and not key.operation.startswith("cast_")


def _histogram(recorder: sf.Recorder, belongs: Callable[[Key], bool]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for key, events in recorder.entries():
        if key.phase == "backward" and belongs(key):
            total.update({str(exponent): count for exponent, count in exponents(events).items()})
            total["zero"] += zeros(events)
    return dict(total)
