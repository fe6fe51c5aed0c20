"""Fixtures for tests of PyTorch models."""

import pytest


@pytest.fixture
def own_rules():
    """A test's own rules are forgotten at its end: another test's operation may be differentiated by theirs."""
    from simfloat.torch.search import USERS, forget

    before = dict(USERS)
    yield
    USERS.clear()
    USERS.update(before)
    forget()
