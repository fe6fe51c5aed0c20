"""Random programs under random policies have one result on every machine; more: python -m tests.properties."""

import pytest

from tests.properties.compared import disagreement
from tests.properties.programs import random_program, shrunk

PROGRAMS, BATCHES = 24, 4


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.filterwarnings("ignore")
def test_all_machines_agree(batch):
    for seed in range(batch, PROGRAMS, BATCHES):
        program = random_program(seed)
        if (what := disagreement(program)) is not None:
            kind = what.split(":")[0]
            pytest.fail(f"{what}\n{shrunk(program, lambda one, kind=kind: (disagreement(one) or '').startswith(kind))}")
