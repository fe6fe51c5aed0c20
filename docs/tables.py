"""The tables, counts and drawings of the documentation that follow from the code.

    python -m docs.tables          print the names of pages and drawings that are out of date
    python -m docs.tables --write  write them

A page has a pair of comments for each table, ``<!-- table: formats -->`` and ``<!-- end of table -->``. The text
between them is replaced. The result is checked in, so that the pages can be read without building the site.
"""

import argparse
import re
from collections.abc import Iterable
from math import log2
from pathlib import Path

import numpy as np

import simfloat as sf
from docs.drawings import DRAWINGS
from simfloat.policy.roles import ROLES
from simfloat.sums.units import AMD_UNITS, DOUBLE, GROUPED, INSTRUCTIONS, MMA, NVIDIA_UNITS, TWO_STEPS

DOCS = Path(__file__).parent

Row = tuple[str, ...]

#: The document that defines each format.
SOURCES = {
    "FP64": "IEEE 754-2019, binary64",
    "FP32": "IEEE 754-2019, binary32",
    "TF32": "NVIDIA Ampere; the operands of its tensor cores",
    "BF16": "Google, Intel, Arm; bfloat16",
    "FP16": "IEEE 754-2019, binary16",
    "E5M2": "OCP 8-bit Floating Point (OFP8) 1.0",
    "E4M3": "OCP 8-bit Floating Point (OFP8) 1.0",
    "E3M4": "ml_dtypes, `float8_e3m4`",
    "E4M3_IEEE": "ml_dtypes, `float8_e4m3`",
    "E5M2FNUZ": "Noune et al., arXiv 2206.02915; AMD CDNA3",
    "E4M3FNUZ": "Noune et al., arXiv 2206.02915; AMD CDNA3",
    "E4M3B11FNUZ": "ml_dtypes, `float8_e4m3b11fnuz`",
    "E3M2": "OCP Microscaling Formats (MX) 1.0",
    "E2M3": "OCP Microscaling Formats (MX) 1.0",
    "E2M1": "OCP Microscaling Formats (MX) 1.0",
    "E8M0": "OCP Microscaling Formats (MX) 1.0; block scales",
}

#: What each role rounds in the forward pass, in the backward pass and in the optimizer's update.
PHASES = {
    "compute": ("activations and data as operands of products", "the same", "operands of products (Muon)"),
    "compute_gradients": ("", "gradients as operands of products", ""),
    "compute_weights": ("parameters as operands of products", "the same", ""),
    "weights": ("parameters, when they are read", "", "every step of the formula, and the new parameter"),
    "activations": ("the result of every operation", "", ""),
    "activation_gradients": ("", "results that are gradients of activations", ""),
    "weight_gradients": ("", "results that are gradients of parameters", ""),
    "gradients": ("", "both of the roles above, unless they are given", ""),
    "accumulate": ("the sums of products", "", "the sums of products (Muon)"),
    "accumulate_gradients": ("", "the sums of products", ""),
    "rotation": ("", "no rounding; transforms both operands of products that compute a parameter's gradient", ""),
    "reduce": (
        "all other sums: means, norms, softmax",
        "all other sums: the gradient of a bias",
        "sums in an optimizer",
    ),
    "rounding": ("the mode of results", "the mode of results", "the mode of results"),
    "update": ("", "", "the last addition, parameter + step"),
    "optimizer_state": ("", "", "the moments"),
    "all_reduce": ("", "the sum of a parameter's gradients over replicas", ""),
    "fused": ("only the result of a composite such as softmax", "only the gradients of a composite", ""),
    "written": ("results, to the program's dtype", "the same", "the same"),
}

#: The GPUs of the recorded results of tests/accumulate/recorded, by architecture.
GPUS = {
    "volta": ("V100",),
    "turing": (),
    "ampere": ("A100", "A2"),
    "ada": ("Ada", "L40S"),
    "hopper": ("H100", "H200"),
    "blackwell": ("B200",),
}


def table(head: Row, rows: Iterable[Row]) -> str:
    """Return a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(x: float) -> str:
    """Return a number with all its digits if these are few, and with three digits otherwise."""
    if 1e-4 <= abs(x) < 1e5 and len(digits := f"{x:.12g}") <= 8:
        return digits
    return re.sub(r"e([+-])0?(\d+)", lambda match: f"e{match[1].strip('+')}{match[2]}", f"{x:.2e}")


def power(x: float) -> str:
    """Return a power of two as a power and as a number."""
    return f"2^{log2(x):.0f} = {number(x)}"


def formats_by_range() -> str:
    """Return the table of the catalog's formats with their precision and range."""
    head = ("format", "bits", "precision", "unit roundoff u", "emin", "emax", "largest", "smallest normal", "smallest")
    rows = [
        (
            f"`{name}`",
            str(f.bits),
            str(f.precision),
            power(f.unit_roundoff),
            str(f.emin),
            str(f.emax),
            number(f.max),
            number(f.smallest_normal),
            number(f.smallest_subnormal),
        )
        for name, f in sf.CATALOG.items()
    ]
    return table(head, rows)


def formats_by_layout() -> str:
    """Return the table of the catalog's formats with their fields, special values and sources."""
    head = ("format", "sign", "exponent bits", "fraction bits", "bias", "infinity", "NaN", "-0", "source")
    rows = [
        (
            f"`{name}`",
            str(int(f.signed)),
            str(f.exponent_bits),
            str(f.mantissa_bits),
            str(f.bias),
            *("yes" if has else "no" for has in (f.has_infinity, f.has_nan, f.has_negative_zero)),
            SOURCES[name],
        )
        for name, f in sf.CATALOG.items()
    ]
    return table(head, rows)


def recorded() -> set[tuple[str, str, str]]:
    """Return the GPU, the operand format and the result format of every recorded set of results."""
    keys = np.load(DOCS.parent / "tests" / "accumulate" / "recorded" / "tensor_cores.npz").files
    sets = (key.replace("_d_", "_").split("_") for key in keys if "_d_" in key)
    return {(gpu, operand.upper(), result.upper()) for gpu, operand, result in sets}


def silicon(architecture: str, instruction: str, row, records: set[tuple[str, str, str]]) -> str:
    """Return the GPUs on which results of this unit were recorded that the tests compare with the model."""
    if row.scales or row is DOUBLE:
        return ""
    eight = row.formats[0].bits == 8
    found = []
    for gpu in GPUS[architecture]:
        for operand in map(str, row.formats):
            for result in map(str, row.outputs):
                if (gpu, operand, result) not in records:
                    continue
                # FP8 sets of H100 and H200 are wgmma's with FP32 results; others of these and of B200 are mma's.
                by_mma = architecture == "blackwell" or (architecture == "hopper" and result == "FP16")
                if not eight or architecture == "ada" or by_mma == (instruction == "mma"):
                    found.append(gpu)
    if architecture == "hopper":  # every instruction was run on both: tests/cuda/recorded
        found = list(GPUS[architecture])
    return ", ".join(dict.fromkeys(found))


def tensor_cores() -> str:
    """Return the table of NVIDIA's units."""
    head = (
        "architecture", "operands", "products at a time", "bits kept", "result", "rounding of the result", "recorded on"
    )  # fmt: skip
    records, rows = recorded(), []
    for architecture, units in NVIDIA_UNITS.items():
        first, *others = INSTRUCTIONS.get(architecture, ("",))
        for instruction, listed in ((first, units), *((name, MMA) for name in others)):
            for row in listed:
                if instruction == "mma" and row is not TWO_STEPS:
                    continue  # the same as by the first instruction
                name = f'`"{architecture}"`' + (
                    f", `{instruction}`" if row.formats[0].bits <= 8 and instruction else ""
                )
                rows.append((name, *_unit_cells(row), silicon(architecture, instruction, row, records)))
    return table(head, rows)


def _unit_cells(row) -> Row:
    """Return the cells of one unit: operands, products, bits, result and its rounding."""
    operands = ", ".join(map(str, row.formats))
    if row.scales:
        operands += " with scales " + " or ".join(f"({size}, {format})" for size, format in row.scales)
    if row is DOUBLE:
        return operands, "1", "all", "FP64", "to nearest even, each fused multiply-add"
    terms = "64, in groups of 16" if row is GROUPED else str(row.terms)
    if row is TWO_STEPS:
        return (
            operands,
            "32, in two steps of 16",
            "25",
            "FP32 or FP16",
            "each step as for FP16; their total is added to nearest even",
        )
    modes = {"FP32": "FP32: toward zero", "FP16": "FP16: to nearest even"}
    if row.fraction_bits == 13:
        modes["FP32"] = "FP32: toward zero, to 14 significant bits"
    outputs = tuple(map(str, row.outputs))
    return operands, terms, str(row.fraction_bits), " or ".join(outputs), "; ".join(modes[name] for name in outputs)


#: How AMD's units add, by architecture and width of the operands.
AMD_RULES = {
    "cdna1": "products and the sum so far are added exactly; one rounding to nearest even",
    "cdna2": "products and sums of pairs are rounded to FP32; subnormal operands and results become zero",
    "cdna3": "products: truncated, 24 bits below the largest exponent; sums: to minus infinity, then to nearest even",
}


def matrix_cores() -> str:
    """Return the table of AMD's units."""
    head = ("architecture", "operands", "products at a time", "result", "how they are added")
    rows = []
    for architecture, units in AMD_UNITS.items():
        for row in units:
            operands, terms = ", ".join(map(str, row.formats)), str(row.terms)
            if (architecture, operands) == ("cdna2", "BF16"):
                terms += '; 4 with `variant="1k"`'
            if row.terms == 16:
                terms += ", in two sums: even and odd products"
            rule = "a chain of fused multiply-adds, to nearest even" if row.terms == 1 else AMD_RULES[architecture]
            rows.append((f'`"{architecture}"`', operands, terms, str(row.outputs[0]), rule))
    return table(head, rows)


def roles() -> str:
    """Return the table of the roles of a policy."""
    head = ("role", "value", "default", "forward", "backward", "update")
    rows = []
    for name, role in ROLES.items():
        default = (
            f"as `{role.follows}`" if role.follows else "must be given" if role.default is None else str(role.default)
        )
        if name in ("rotation", "written"):
            default = "none"
        rows.append((f"`{name}`", role.kind.name, default, *(cell or "-" for cell in PHASES[name])))
    return table(head, rows)


def presets() -> str:
    """Return the table of the presets: the parts in which they differ."""
    head = ("preset", "operands of products", "stored parameters", "results", "sums", "further")
    return table(head, ((f"`{name}`", *_preset_cells(policy)) for name, policy in sf.policies.items()))


def _preset_cells(policy: sf.Policy) -> Row:
    recipe = policy.recipe()
    operands = [_operand(recipe.compute)]
    for name in ("weights", "gradients"):
        value = getattr(recipe, f"compute_{name}")
        if value != recipe.compute:
            operands.append(f"{name}: {_operand(value)}")
    stored, results = str(recipe.weights), str(recipe.activations)
    further = [f"update `{recipe.update}`"] if recipe.update != "nearest" else []
    if recipe.optimizer_state != recipe.weights:
        further.append(f"moments {recipe.optimizer_state}")
    if recipe.rotation:
        further.append(f"rotation `{recipe.rotation}`")
    if recipe.written:
        operands, stored, results = ["the program's dtype"], "the program's dtype", "the program's dtype"
    if results == "widest":
        results = "by lists of operations"
    elif policy.overrides:
        further.append("losses, `log_softmax` and `batch_norm` in FP32")
    return "; ".join(operands), stored, results, _accumulator(recipe.accumulate), "; ".join(further) or "-"


def _operand(value) -> str:
    """Return the words for a format or a cast."""
    cast = sf.cast(value) if isinstance(value, sf.Format) else value
    mode = " stochastically rounded" if cast.rounding.is_stochastic else ""
    scale = cast.scale
    if scale is None:
        return f"{cast.format}{mode}"
    if not hasattr(scale, "size"):
        return f"{cast.format}{mode}, one scale per tensor" + (", delayed" if scale == sf.delayed() else "")
    size = " x ".join(map(str, scale.size)) if isinstance(scale.size, tuple) else scale.size
    return f"{cast.format}{mode}, {scale.format} scales of blocks of {size}"


def _accumulator(value: sf.Accumulator) -> str:
    """Return the words for an accumulator."""
    return str(value.result) if value == sf.sequential(value.result) else f"`{value}`"


def sources() -> str:
    """Return the table of the presets' sources."""
    return table(("preset", "source"), ((f"`{name}`", policy.source) for name, policy in sf.policies.items()))


#: For each page below docs its tables, by the names in its comments.
TABLES = {
    "formats.md": {"range": formats_by_range, "layout": formats_by_layout},
    "units.md": {"tensor cores": tensor_cores, "matrix cores": matrix_cores},
    "policies.md": {"roles": roles},
    "presets.md": {"presets": presets, "sources": sources},
}


#: For each page below docs the things that its sentences count, and how many there are.
COUNTS = {"formats.md": ("named formats", sf.CATALOG), "presets.md": ("named policies", sf.policies)}


def page_with_tables(page: str) -> str:
    """Return the text of a page with its tables and its count as they follow from the code."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if page in COUNTS:
        things, counted = COUNTS[page]
        text = re.sub(rf"\d+(?= {things})", str(len(counted)), text)
    for name, make in TABLES[page].items():
        text, count = re.subn(
            rf"(<!-- table: {name} -->\n).*?(<!-- end of table -->)",
            lambda match, make=make: f"{match[1]}\n{make()}\n\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
        if count != 1:
            raise ValueError(f"docs/{page} must have the comments of the table {name!r} once, got {count} times.")
    return text


def generated() -> dict[Path, str]:
    """Return the text of every page with tables and of every drawing, by its path."""
    pages = {DOCS / page: page_with_tables(page) for page in TABLES}
    return pages | {DOCS / name: draw() for name, draw in DRAWINGS.items()}


def main() -> None:
    """Print or write the tables and drawings that are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the pages and drawings")
    write = parser.parse_args().write
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            print(path.relative_to(DOCS.parent))
            if write:
                path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
