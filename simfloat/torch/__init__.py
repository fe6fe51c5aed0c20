"""Run unmodified PyTorch models under a policy: every operation of forward, backward and optimizer is rounded.

Other parts of the package import torch only when they receive a PyTorch model.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("simfloat.torch needs PyTorch: pip install 'simfloat[torch]'.") from error

from simfloat.torch.search import rule
from simfloat.torch.simulated_model import Run, explain, simulate

__all__ = ["Run", "explain", "rule", "simulate"]
