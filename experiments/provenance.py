"""What a result depends on besides its job: the code and the packages."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import simfloat as sf


def versions() -> dict[str, str]:
    """The versions of all that a result might depend on."""
    packages = {name: version(name) for name in ("numpy", "numba", "scikit-learn")}
    return {"simfloat": sf.__version__, "python": platform.python_version(), "machine": platform.machine(), **packages}


@cache
def code_digest() -> str:
    """A digest of the sources of simfloat and the experiments, and of the versions: another state of either differs."""
    digest = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for package in (Path(sf.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            source = path.read_bytes()
            digest.update(f"{path.relative_to(package.parent)} {len(source)}\n".encode() + source)
    return digest.hexdigest()
