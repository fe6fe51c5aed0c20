"""Links from code in sentences to the entries of the reference: `sf.round(0.1, sf.E4M3)` leads to `simfloat.round`.

Code that begins with ``sf.``, also behind ``stream=`` or ``print(``, leads to that name. Code that begins with the
usual name of an object, such as ``recorder.advise()``, leads to the method of its class. Names without an entry, such
as constants, stay plain code.
"""

import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms import SphinxTransform

#: The class of an object that the pages call by this name.
CLASSES = {
    "recorder": "Recorder",
    "policy": "Policy",
    "sim": "Simulation",
    "run": "torch.Run",
    "history": "train.History",
}

_CALL = re.compile(r"(?:with |print\(|@|\w+=)?(\w+)\.([A-Za-z_][\w.]*\w|[A-Za-z_])")


def entry_of(code):
    """Return the name of the entry that a piece of code leads to, or None."""
    found = _CALL.match(code)
    if found is None:
        return None
    owner, name = found.groups()
    if owner in ("sf", "simfloat"):
        return f"simfloat.{name}"
    return f"simfloat.{CLASSES[owner]}.{name}" if owner in CLASSES else None


class CodeLinks(SphinxTransform):
    """Make a link of each piece of code that begins with a name of the reference."""

    default_priority = 400

    def apply(self, **options):
        """Replace code outside links and headings by a reference, which is dropped where the name has no entry."""
        for code in list(self.document.findall(nodes.literal)):
            if isinstance(code.parent, nodes.reference | nodes.title | pending_xref):
                continue
            if name := entry_of(code.astext()):
                link = pending_xref(refdomain="py", reftype="obj", reftarget=name, refdoc=self.env.docname)
                code.replace_self(link)
                link += code


def entry_of_owner(app, env, node, code):
    """Link `sf.E4M3.values()` to the entry of `simfloat.E4M3`, if there is none for the method."""
    owner = node.get("reftarget", "").rpartition(".")[0]
    if node.get("refdomain") == "py" and owner.startswith("simfloat."):
        return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", owner, node, code)


def setup(app):
    """Add the transform."""
    app.add_transform(CodeLinks)
    app.connect("missing-reference", entry_of_owner)
    return {"parallel_read_safe": True}
