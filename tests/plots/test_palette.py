"""Colours that readers can distinguish: with normal vision, without green or red cones, and in grey."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from simfloat.plots.curves import STYLES
from simfloat.plots.formats import GAINED_STYLE, KEPT_STYLE, LOST_STYLE
from simfloat.plots.heat_map import COLORS

#: Of linear RGB, for severity 1: Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009, table 1.
VISION = {
    "all cones": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}

#: From linear RGB to CIE XYZ (IEC 61966-2-1), and the white of D65.
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])

#: A difference in CIELAB that is seen at once, even between thin lines; 2.3 is just noticeable.
APART = 15


def lab(color, vision="all cones"):
    """A colour as it is seen, in CIELAB."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    share = XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / WHITE
    f = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_the_conversion_gives_the_values_that_cielab_is_known_by():
    assert np.allclose(lab("white"), [100, 0, 0], atol=0.02) and np.allclose(lab("black"), 0)
    assert np.allclose(lab("red"), [53.24, 80.09, 67.20], atol=0.05)
    assert np.allclose(lab("blue"), [32.30, 79.19, -107.86], atol=0.05)


def test_readers_without_green_cones_confuse_red_and_green_of_one_lightness_in_the_simulation():
    pair = ("#c04000", "#607000")
    apart = {vision: np.linalg.norm(lab(pair[0], vision) - lab(pair[1], vision)) for vision in VISION}
    assert apart["deuteranopia"] < 0.25 * apart["all cones"]


@pytest.mark.parametrize("vision", VISION)
def test_all_lines_differ_in_colour_however_they_are_seen(vision):
    for one, other in combinations(STYLES, 2):
        assert np.linalg.norm(lab(one.color, vision) - lab(other.color, vision)) > APART, (one.color, other.color)


def test_lines_of_one_grey_differ_in_dashes_or_markers():
    for one, other in combinations(STYLES, 2):
        if abs(lab(one.color)[0] - lab(other.color)[0]) < APART:
            assert (str(one.dashes), one.marker) != (str(other.dashes), other.marker)


def test_bars_of_a_histogram_differ_in_grey_or_by_their_hatching():
    kept, gained, lost = lab(KEPT_STYLE["color"])[0], lab(GAINED_STYLE["facecolor"])[0], lab(LOST_STYLE["facecolor"])[0]
    assert kept + APART < gained and gained + APART < lost and LOST_STYLE["hatch"]


@pytest.mark.parametrize("vision", VISION)
def test_a_heat_map_grows_darker_from_its_least_to_its_greatest_value(vision):
    lightness = [lab(colormaps[COLORS](level), vision)[0] for level in np.linspace(0, 1, 64)]
    assert (np.diff(lightness) < 0).all() and lightness[0] - lightness[-1] > 70
