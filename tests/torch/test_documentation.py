"""The page on PyTorch models: its example runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    namespace = {}
    exec(example, namespace)
    assert namespace["recorder"].counts(phase="update")["total"] > 0
