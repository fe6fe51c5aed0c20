"""What is in force and where: a policy, its random streams and its observer; the place of an operation, its arithmetic.

Every front end asks this room how an operation is to be carried out, and nothing else.
"""

from simfloat.simulation.arithmetic import Arithmetic, Input
from simfloat.simulation.context import Names, composite
from simfloat.simulation.place import Place
from simfloat.simulation.recording import is_recording, no_grad
from simfloat.simulation.rows import added_rows
from simfloat.simulation.simulation import Simulation, current, here, module_running, simulate
from simfloat.simulation.streams import Streams
from simfloat.simulation.switching import Switch, Switching
from simfloat.simulation.widest import widest

__all__ = [
    "Arithmetic", "Input", "Names", "Place", "Simulation", "Streams", "Switch", "Switching", "added_rows", "composite",
    "current", "here", "is_recording", "module_running", "no_grad", "simulate", "widest",
]  # fmt: skip
