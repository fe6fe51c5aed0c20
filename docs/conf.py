"""The site of documentation: `make docs` builds it below build/docs, from pages that stay where they are."""

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

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "sphinx_copybutton", "names"]
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
html_additional_pages = {"index": "index.html"}  # leads to the first page, which lies below docs/
html_theme = "furo"
html_title = "simfloat"

default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]

myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "dollarmath"]
myst_dmath_allow_digits = False  # sums of money are no formulas
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # that kernels are compiled, where they were not before
nb_merge_streams = True  # lines that are printed one by one are one output

#: What reStructuredText would read as markup in a plain sentence: |x|, a name_ and x*, but no item of a list.
_MARKUP = re.compile(r"(\||(?<=\w)_(?!\w)|(?<!^)\*)")


def plain_sentences(app, what, name, obj, options, lines):
    """Take formulas in the sentences of docstrings as they are; code, in quotes or indented, stays code."""
    for number, line in enumerate(lines):
        if not line.startswith("    "):
            parts = re.split(r"(`+[^`]*`+)", line)
            lines[number] = "".join(part if part.startswith("`") else _MARKUP.sub(r"\\\1", part) for part in parts)


#: Leads from the page of all experiments to each one's own.
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
    """Write a formula as MathML, which browsers draw by themselves, without a network too."""
    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, math_block)))
    raise SkipNode


def setup(app):
    """Docstrings are read before napoleon takes examples out of their indentation."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", plain_sentences, priority=100)
    app.connect("source-read", figures_of_experiments)
