"""The file of a run, with its origin, GPU, versions and results. Every new result is written at once."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import simfloat as sf

#: The folder from which the tests read files.
RECORDED = Path("tests", "cuda", "recorded")

#: Packages whose versions are recorded if they are installed.
PACKAGES = (
    *("cupy-cuda12x", "cupy-cuda13x", "torch", "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cuda-nvrtc"),
    *("nvidia-cuda-nvrtc-cu12", "numba-cuda", "numpy"),
)


class Recording:
    """A growing file: first facts, then lists of entries."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path, self.contents = path, {**facts, "instructions": [], "libraries": []}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def add(self, section: str, entry: dict[str, Any]) -> None:
        """Append an entry to a section, and write the file."""
        self.contents[section].append(entry)
        self._write()

    def _write(self) -> None:
        """Write the file atomically, so that it is complete whenever the process ends."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.contents, indent=1) + "\n")
        os.replace(draft, self.path)


def facts() -> dict[str, Any]:
    """Return the current GPU, its driver and the versions of libraries."""
    import cupy

    runtime = cupy.cuda.runtime
    return {
        "device": runtime.getDeviceProperties(0)["name"].decode(),
        "capability": int(cupy.cuda.Device().compute_capability),
        "driver": _driver(),
        "cuda": {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()},
        "versions": {"python": platform.python_version(), "simfloat": sf.__version__, **package_versions()},
    }


def origin() -> dict[str, str]:
    """Return the date, the command, and the commit of the sources, with "-dirty" if they have changed since."""
    folder = str(Path(__file__).parent)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _first_word(["git", "-C", folder, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]),
        "command": " ".join(["python", *sys.orig_argv[1:]]),
    }


def _driver() -> str:
    """Return the version of the driver, from its own tool."""
    return _first_word(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])


def _first_word(command: list[str]) -> str:
    """Return the first word that a command prints, or "unknown" if the command fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
