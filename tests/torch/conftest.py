"""What tests of PyTorch models share."""

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
