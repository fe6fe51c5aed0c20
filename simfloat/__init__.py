"""simfloat: narrow floating-point arithmetic, bit for bit."""

from simfloat.accumulate import *  # noqa: F403
from simfloat.arithmetic import *  # noqa: F403
from simfloat.formats import *  # noqa: F403
