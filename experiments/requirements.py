"""What the experiments need beside what simfloat needs: the packages of its extra `experiments`."""

from __future__ import annotations

from importlib.util import find_spec

#: Packages by the names under which they are imported.
IMPORTED = {
    "matplotlib": "matplotlib",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "click": "click",
    "rich": "rich",
    "filelock": "filelock",
    "jinja2": "jinja2",
    "pyarrow": "pyarrow",
}


def missing() -> list[str]:
    """The packages that are not installed. Nothing is imported to find out."""
    return [package for package, name in IMPORTED.items() if find_spec(name) is None]
