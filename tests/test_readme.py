"""The README's snippets run, one after the other, as a reader would type them."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_snippets_run():
    namespace = {}
    for snippet in re.findall(r"```python\n(.*?)```", README.read_text(), re.S):
        exec(snippet, namespace)
    assert namespace["recorder"].counts(phase="update")["unchanged"] > 0
