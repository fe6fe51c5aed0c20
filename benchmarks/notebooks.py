"""Run notebooks and store their outputs, made small: `python -m benchmarks.notebooks NAME ...`, by default all.

A digest of the code is stored with the outputs. A test compares it with the code to find outputs that are out of date.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"

#: The key of the digest in the metadata of a notebook.
KEY = "simfloat_outputs_of"

#: The number of colours of a stored figure, and its longest side in pixels.
COLORS, SIDE = 48, 700

#: Kinds of output that are kept. A table is kept as text, which every viewer shows.
KINDS = ("image/png", "text/plain")


def code_of(notebook: dict) -> list[str]:
    """Return the sources of the code cells."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(notebook: dict) -> str:
    """Return a digest of the code of a notebook."""
    return hashlib.sha256(json.dumps(code_of(notebook)).encode()).hexdigest()[:16]


def store(path: Path) -> float:
    """Run the notebook in its own kernel, write it with its outputs, and return the seconds that this took."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    begun = time.perf_counter()
    NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(ROOT)}}).execute()
    seconds = time.perf_counter() - begun
    kept = json.loads(path.read_text(encoding="utf-8"))
    for cell, done in zip(kept["cells"], notebook.cells, strict=True):
        if cell["cell_type"] == "code":
            cell["outputs"] = merged([small(output) for output in done.outputs if output.get("name") != "stderr"])
    kept["metadata"][KEY] = digest(kept)
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return seconds


def small(output: dict) -> dict:
    """Return an output with only the parts that viewers show."""
    if output["output_type"] == "stream":
        return {"name": "stdout", "output_type": "stream", "text": output["text"].splitlines(keepends=True)}
    data = {kind: output["data"][kind] for kind in KINDS if kind in output["data"]}
    if "image/png" in data:
        data = {"image/png": smaller(data["image/png"]), "text/plain": "a figure"}
    shown = {"data": data, "metadata": {}, "output_type": output["output_type"]}
    return {**shown, "execution_count": None} if output["output_type"] == "execute_result" else shown


def merged(outputs: list[dict]) -> list[dict]:
    """Return the outputs, with successive printed lines merged into one."""
    found: list[dict] = []
    for output in outputs:
        if found and output["output_type"] == "stream" == found[-1]["output_type"]:
            found[-1]["text"] += output["text"]
        else:
            found.append(output)
    return found


def smaller(png: str) -> str:
    """Return a figure with few colours, no larger than a page shows it."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        picture = image.convert("RGB")
    picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    kept = io.BytesIO()
    picture.quantize(COLORS).save(kept, "png", optimize=True)
    return base64.b64encode(kept.getvalue()).decode()


def main(names: Sequence[str]) -> None:
    """Store the outputs of these notebooks, and print the seconds that each took."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        print(f"{path.stem}: {store(path):.1f} s, {path.stat().st_size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
