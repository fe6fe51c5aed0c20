"""Without PyTorch everything else works, and the functions that need it name the extra to install."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import simfloat as sf
print(sf.add(1.0, 2.0, sf.BF16), sf.as_format("bf16"))
with sf.simulate("bf16-standard"):
    sf.nn.Linear(2, 3)(sf.Tensor([[1.0, 2.0]]))
try:
    sf.torch.simulate
except ImportError as error:
    print(error)
"""


def test_without_pytorch_the_package_works_and_its_part_for_pytorch_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[1:] == ["simfloat.torch needs PyTorch: pip install 'simfloat[torch]'."]
