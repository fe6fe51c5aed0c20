"""The drawings of the documentation, written as SVG: boxes with dark text, and lines that show on white and on black.

`python -m docs.tables --write` writes them next to the pages.
"""

from html import escape
from math import atan2, cos, pi, sin

#: The fill and the edge of boxes: values, roundings, and operations that do not round.
VALUE, ROUNDING, OPERATION = ("#dbe9f6", "#2f6ea5"), ("#fde0bd", "#b5651d"), ("#e6e6e6", "#707070")
KEPT, LOST = ("#dbe9f6", "#2f6ea5"), ("#f6d5d5", "#b03a3a")
LINE = "#7d7d7d"  # legible on white and on black
FONT = "font-family='Helvetica, Arial, sans-serif'"


class Drawing:
    """An SVG of a given size, and the parts that it consists of."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def text(self, x, y, words, size=13, color=LINE, anchor="middle", weight="normal"):
        """Add one line of text, centred at a point."""
        self.parts.append(
            f"<text x='{x:g}' y='{y + size * 0.35:g}' {FONT} font-size='{size}' font-weight='{weight}' "
            f"fill='{color}' text-anchor='{anchor}'>{escape(words)}</text>"
        )

    def box(self, x, y, width, words, kind, size=13):
        """Add a box that is as high as its lines of text; return its height."""
        lines = words.split("\n")
        height = 14 + 16 * len(lines)
        fill, edge = kind
        self.parts.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height}' rx='4' fill='{fill}' stroke='{edge}'/>"
        )
        for number, line in enumerate(lines):
            bold = "bold" if kind is ROUNDING and number else "normal"
            self.text(x + width / 2, y + 15 + 16 * number, line, size, "#111111", weight=bold)
        return height

    def arrow(self, *points):
        """Add a line through points that ends in an arrow."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f"<polyline points='{path}' fill='none' stroke='{LINE}' stroke-width='1.5'/>")
        (x0, y0), (x, y) = points[-2:]
        angle = atan2(y - y0, x - x0)
        tips = [(x - 8 * cos(angle + turn), y - 8 * sin(angle + turn)) for turn in (pi / 7, -pi / 7)]
        corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in [(x, y), *tips])
        self.parts.append(f"<polygon points='{corners}' fill='{LINE}'/>")

    def svg(self):
        """Return the text of the file."""
        head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' "
        head += f"width='{self.width}' height='{self.height}' role='img'>"
        return "\n".join([head, f"<title>{escape(self.title)}</title>", *self.parts, "</svg>"]) + "\n"


def linear_layer():
    """Draw what a policy rounds in a linear layer: forward, backward and update."""
    d = Drawing(500, 846, "The roles of a policy in a linear layer: forward pass, backward pass and update")
    d.text(0, 12, "Forward", 16, anchor="start", weight="bold")
    d.box(20, 30, 190, "x, activation", VALUE)
    d.box(290, 30, 190, "W, stored in weights", VALUE)
    d.arrow((115, 60), (115, 78))
    d.arrow((385, 60), (385, 78))
    d.box(20, 78, 190, "round to\ncompute", ROUNDING)
    d.box(290, 78, 190, "round to\ncompute_weights", ROUNDING)
    d.arrow((115, 124), (115, 142))
    d.arrow((385, 124), (385, 142))
    d.box(20, 142, 460, "products and sums, rounded as in\naccumulate", ROUNDING)
    d.arrow((95, 188), (95, 206))
    d.box(20, 206, 150, "round to\nactivations", ROUNDING)
    d.arrow((170, 229), (192, 229))
    d.box(192, 214, 46, "+ b", OPERATION)
    d.arrow((238, 229), (260, 229))
    d.box(260, 206, 150, "round to\nactivations", ROUNDING)
    d.arrow((410, 229), (432, 229))
    d.box(432, 214, 48, "y", VALUE)

    d.text(0, 286, "Backward", 16, anchor="start", weight="bold")
    d.box(20, 304, 460, "g, the gradient of y", VALUE)
    d.arrow((180, 334), (180, 352))
    d.arrow((420, 334), (420, 416))
    d.box(20, 352, 320, "round to\ncompute_gradients", ROUNDING)
    d.arrow((95, 398), (95, 416))
    d.arrow((260, 398), (260, 416))
    for x, width, words, role, result in (
        (20, 150, "g times W, as in\naccumulate_gradients", "activation_gradients", "gradient of x"),
        (185, 155, "g times x, as in\naccumulate_gradients", "weight_gradients", "gradient of W"),
        (355, 125, "sum of g, as in\nreduce", "weight_gradients", "gradient of b"),
    ):
        d.box(x, 416, width, words, ROUNDING)
        d.arrow((x + width / 2, 462), (x + width / 2, 480))
        d.box(x, 480, width, f"round to\n{role}", ROUNDING)
        d.arrow((x + width / 2, 526), (x + width / 2, 544))
        d.box(x, 544, width, result, VALUE)

    d.text(0, 602, "Update by an optimizer", 16, anchor="start", weight="bold")
    d.box(20, 628, 150, "gradient of W", VALUE)
    d.arrow((170, 643), (192, 643))
    d.box(192, 620, 288, "sum over replicas, if there are several\nall_reduce", ROUNDING)
    d.arrow((336, 666), (336, 684))
    d.box(192, 684, 288, "moments, stored in\noptimizer_state", ROUNDING)
    d.arrow((336, 730), (336, 748))
    d.box(192, 748, 288, "step u: every operation rounded to\nweights", ROUNDING)
    d.arrow((192, 771), (170, 771))
    d.box(20, 748, 150, "W + u, rounded as in\nupdate", ROUNDING)
    d.arrow((95, 794), (95, 812))
    d.box(20, 812, 150, "new W, in weights", VALUE)
    return d.svg()


#: The terms of the drawing of a fused sum, each with its words; the last is the sum so far.
TERMS = ((27.0, "27"), (6.5, "6.5"), (0.71875, "0.71875"), (1.125, "1.125, sum so far"))


def bits_of(x, highest, lowest):
    """Return the bits of a number from 2^highest down to 2^lowest."""
    scaled = int(x / 2.0**lowest)
    return [(scaled >> place) & 1 for place in range(highest - lowest, -1, -1)]


def aligned_sum():
    """Draw how a matrix unit aligns, truncates, adds and rounds: five fraction bits, a result of five bits."""
    d = Drawing(500, 380, "A fused sum: terms are aligned, truncated and added, and the total is rounded")
    highest, last, lowest, cell, left = 5, -1, -5, 26, 160

    def row(y, words, x, kept_to, shown_to):
        d.text(left - 12, y + 12, words, 13, anchor="end")
        for number, bit in enumerate(bits_of(x, highest, shown_to)):
            fill, edge = KEPT if highest - number >= kept_to else LOST
            d.parts.append(
                f"<rect x='{left + cell * number}' y='{y}' width='{cell}' height='24' fill='{fill}' stroke='{edge}'/>"
            )
            d.text(left + cell * (number + 0.5), y + 12, str(bit), 13, "#111111")

    d.text(0, 12, "1. Align to the largest exponent, here 4.", 14, anchor="start", weight="bold")
    for number, place in enumerate(range(highest, lowest - 1, -1)):
        d.text(left + cell * (number + 0.5), 38, str(place), 11)
    d.text(left - 12, 38, "power of two", 11, anchor="end")
    for number, (x, words) in enumerate(TERMS):
        row(50 + 28 * number, words, x, last, lowest)
    d.text(
        0,
        188,
        "2. Truncate to five bits below this exponent. Red bits are lost.",
        12.5,
        anchor="start",
        weight="bold",
    )
    d.text(0, 222, "3. Add what is left. The sum is exact.", 14, anchor="start", weight="bold")
    total = sum(int(x / 2.0**last) * 2.0**last for x, _ in TERMS)
    row(240, f"{total:g}", total, last, last)
    d.text(0, 292, "4. Round to the result, here to five bits toward zero.", 14, anchor="start", weight="bold")
    row(310, "34", total, 1, last)
    d.text(0, 362, "The exact sum is 35.34375. Rounded once to nearest, it would be 36.", 12.5, anchor="start")
    return d.svg()


#: The drawings by their files below docs.
DRAWINGS = {"linear_layer.svg": linear_layer, "aligned_sum.svg": aligned_sum}
