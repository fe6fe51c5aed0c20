"""The directive of the reference: ``.. names:: simfloat.nn``, and below it files of that module.

It stands for the public names that these files define, in their order: a name that the module exports is on its page.
With ``:inherited: Variable`` classes show what they inherit too, from the bases before `Variable`.
"""

from importlib import import_module
from inspect import isclass, isfunction

from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective


def defined(module, file):
    """The public classes and functions of a module that a file defines, by name."""
    home, public = import_module(f"{module}.{file}"), import_module(module).__all__
    return {
        name: value
        for name, value in vars(home).items()
        if name in public and (isclass(value) or isfunction(value)) and value.__module__ == home.__name__
    }


class Names(SphinxDirective):
    """The names of files of a module, each with its docstring."""

    required_arguments = 1
    option_spec = {"inherited": directives.unchanged_required}
    has_content = True

    def run(self):
        """What autodoc makes of each name."""
        (module,) = self.arguments
        files = " ".join(self.content).split()
        found = {name: value for file in files for name, value in defined(module, file).items()}
        lines = [f".. currentmodule:: {module}", ""]
        for name, value in found.items():
            inherited = "".join(f"   :inherited-members: {base}\n" for base in self.options.values())
            of_class = f".. autoclass:: {name}\n   :members:\n{inherited}"
            lines += [of_class if isclass(value) else f".. autofunction:: {name}\n"]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    """Make the directive known."""
    app.add_directive("names", Names)
    return {"parallel_read_safe": True}
