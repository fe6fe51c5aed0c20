"""Settings of figures in tests."""

import matplotlib
import pytest


@pytest.fixture(scope="session", autouse=True)
def coarse():
    """Write pictures with few dots, which takes a third less time: a user's setting takes precedence."""
    with matplotlib.rc_context({"savefig.dpi": 40}):
        yield
