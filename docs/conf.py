"""Configuration of the documentation site. `make docs` builds it below build/docs, from the pages in the repository."""

import re
import sys
from pathlib import Path

from docutils.nodes import SkipNode, math_block
from docutils.utils.math.latex2mathml import tex2mathml

import simfloat

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

project = "simfloat"
author = "the simfloat authors"
version = release = simfloat.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "names",
]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "benchmarks/history/*.md",
    "docs/**",
    "experiments/README.md",
    "experiments/*/README.md",
    "notebooks/*.ipynb",
    "simfloat/*/README.md",
    "tests/accumulate/recorded/README.md",
]
templates_path = ["_templates"]
html_additional_pages = {"index": "index.html"}  # redirects to the first page, which is in docs/
html_theme = "furo"
html_title = "simfloat"
extensions += ["code_links"]
pygments_dark_style = "github-dark"  # the default underlines names of modules, as if they were links

default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"
autosummary_generate = False  # entries are on the page below their table, not on pages of their own
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]

myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "dollarmath"]
myst_dmath_allow_digits = False  # amounts of money are not formulas
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # the notice that kernels are being compiled
nb_merge_streams = True  # separate print calls form one output

#: Characters that reStructuredText would read as markup in a plain sentence: |x|, name_ and x*, except in a list item.
_MARKUP = re.compile(r"(\||(?<=\w)_(?!\w)|(?<!^)\*)")


def escape(sentence):
    """Escape the characters that reStructuredText would read as markup."""
    return _MARKUP.sub(r"\\\1", sentence)


def plain_sentences(app, what, name, obj, options, lines):
    """Escape formulas in the sentences of docstrings. Code, in quotes or indented, and bold words stay."""
    is_section = False
    for number, line in enumerate(lines):
        if line and not line.startswith(" "):
            is_section = re.fullmatch(r"(Parameters|Returns|Yields|Raises|Attributes):", line) is not None
        if is_section or not line.startswith("    "):
            bullet, rest = re.fullmatch(r"( *\* |)(.*)", line).groups()
            parts = re.split(r"(`+[^`]*`+|\*\*\S[^*]*\S\*\*)", rest)
            lines[number] = bullet + "".join(part if part.startswith(("`", "**")) else escape(part) for part in parts)
    if what in ("property", "attribute", "data"):
        # Napoleon reads the words before a colon in the first line as a type. An empty comment has no colon.
        lines[:0] = ["..", ""]


def skip_fields(app, what, name, obj, skip, options):
    """Leave out a field of a named tuple that has no text of its own. The signature shows its name."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


#: Links the page of all experiments to the page of each.
_EXPERIMENTS = "\n```{toctree}\n:hidden:\n:glob:\n\n*/README\n```\n"


def figures_of_experiments(app, page, source):
    """Put every figure of every experiment on the page of the gallery, under its experiment's question."""
    from experiments.catalog import EXPERIMENTS

    if page == "experiments/README":
        source[0] += _EXPERIMENTS
    if page == "benchmarks/README":
        source[0] += _EXPERIMENTS.replace("*/README", "history/*")
    if page == "docs/gallery":
        for name, experiment in EXPERIMENTS.items():
            folder = f"experiments/{name.replace('-', '_')}"
            source[0] += f"\n## {name}\n\n{experiment.question} [Claims and verdicts](../{folder}/README.md)\n"
            for figure in sorted((ROOT / folder).glob("*.png")):
                source[0] += f"\n![{name}: {figure.stem}](../{folder}/{figure.name})\n"


def formula(translator, node):
    """Write a formula as MathML, which browsers draw without a network."""
    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, math_block)))
    raise SkipNode


def setup(app):
    """Register what this file adds. Docstrings are escaped before napoleon removes the indentation of examples."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", plain_sentences, priority=100)
    app.connect("source-read", figures_of_experiments)
    app.connect("autodoc-skip-member", skip_fields)
