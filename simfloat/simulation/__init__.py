"""The simulation in force: policy, random streams and observer; the place of an operation and its arithmetic.

Every front end (autodiff, torch, custom loops) computes its operations through this package.
"""

from simfloat.simulation.context import no_grad
from simfloat.simulation.simulation import Simulation, simulate
from simfloat.simulation.switching import Switching

__all__ = ["Simulation", "Switching", "no_grad", "simulate"]
