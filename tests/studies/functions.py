"""Functions of a module, which other processes find by name."""

import os
import signal
from pathlib import Path

import numpy as np

import simfloat as sf


def error(format, seed):
    """How far does rounding reach?"""
    x = np.random.default_rng(seed).standard_normal(20)
    return float(np.abs(sf.round(x, format) - x).max())


def dies_once(folder, seed):
    """A number; the process that comes to seed 2 first is killed."""
    if seed == 2 and not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return seed**2
