"""The directives of the reference.

``.. names:: simfloat.nn`` and below it files of that package: a table of the public functions and classes that the
files define, each with its first sentence, and below the table the entry of each. Without files, it uses the module.
With ``:inherited: Variable`` classes also show the members that they inherit, from the bases before `Variable`.

``.. others:: simfloat`` and below it names: the entries of public names that are neither functions nor classes of their
own: constants, types and second names. ``CATALOG.*`` stands for the names in the dictionary `CATALOG`.
"""

from inspect import isclass

from docutils.parsers.rst import directives
from entries import defined, listed, text_of
from sphinx.util.docutils import SphinxDirective


class Names(SphinxDirective):
    """The public functions and classes of files, as a table and as entries."""

    required_arguments = 1
    option_spec = {"inherited": directives.unchanged_required}
    has_content = True

    def run(self):
        """Return what autosummary and autodoc make of the names."""
        (module,) = self.arguments
        files = " ".join(self.content).split() or [""]
        found = {name: value for file in files for name, value in defined(module, file).items()}
        lines = [f".. currentmodule:: {module}", "", ".. autosummary::", "   :nosignatures:", ""]
        lines += [*(f"   {name}" for name in found), ""]
        for name, value in found.items():
            inherited = "".join(f"   :inherited-members: {base}\n" for base in self.options.values())
            of_class = f".. autoclass:: {name}\n   :members:\n{inherited}"
            lines += [of_class if isclass(value) else f".. autofunction:: {name}\n"]
        return self.parse_text_to_nodes("\n".join(lines))


class Others(SphinxDirective):
    """Public names that are constants, types and second names."""

    required_arguments = 1
    has_content = True

    def run(self):
        """Return an entry for each name."""
        (module,) = self.arguments
        lines = [f".. currentmodule:: {module}", ""]
        for name in listed(module, " ".join(self.content).split()):
            lines += [f".. data:: {name}", "", f"   {text_of(module, name)}", ""]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    """Make the directives known."""
    app.add_directive("names", Names)
    app.add_directive("others", Others)
    return {"parallel_read_safe": True}
