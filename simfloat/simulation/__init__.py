"""What is in force and where: a policy, its random streams and its observer; the place of an operation, its arithmetic.

Every front end asks this room how an operation is to be carried out, and nothing else.
"""

from simfloat.simulation.context import no_grad
from simfloat.simulation.simulation import Simulation, simulate
from simfloat.simulation.switching import Switching

__all__ = ["Simulation", "Switching", "no_grad", "simulate"]
