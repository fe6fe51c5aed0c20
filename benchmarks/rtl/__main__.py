"""Check two circuits in SystemVerilog with test vectors: they are right, and every planted fault is found.

Usage: python -m benchmarks.rtl

It needs Icarus Verilog 11 (iverilog, vvp). With cocotb 1.8 or 1.9, it also runs `cocotb_adder.py`. The steps by hand::

    simfloat vectors work --unit adder.toml
    cp work/adder.txt vectors.txt
    iverilog -g2012 -o simulation numbers.sv adder.sv dot4.sv testbench.sv && vvp -n simulation
    simfloat check results.txt --unit adder.toml
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from simfloat.__main__ import main as simfloat

FOLDER = Path(__file__).parent
SOURCES = [str(FOLDER / name) for name in ("numbers.sv", "adder.sv", "dot4.sv", "testbench.sv")]

#: The unit, and the definition with which the testbench drives it.
UNITS = {"adder": [], "dot4": ["-DDOT"]}

FAULTS = {1: "results are truncated", 2: "ties are rounded up", 3: "overflow is lost"}


def run(*words: str, where: Path, **variables: str) -> str:
    """Run a program in a folder and return its output; raise CalledProcessError if it fails."""
    done = subprocess.run(words, cwd=where, env=os.environ | variables, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def check(unit: str, fault: int, work: Path) -> tuple[int, str]:
    """Simulate a unit with the vectors in `work`; return the exit code and the output of `simfloat check`."""
    shutil.copy(work / f"{unit}.txt", work / "vectors.txt")
    run("iverilog", "-g2012", f"-DFAULT={fault}", *UNITS[unit], "-o", "simulation", *SOURCES, where=work)
    run("vvp", "-n", "simulation", where=work)
    output = StringIO()
    with redirect_stdout(output):
        code = simfloat(["check", str(work / "results.txt"), "--unit", str(FOLDER / f"{unit}.toml")])
    return code, output.getvalue()


def check_with_cocotb(work: Path) -> bool:
    """Run the cocotb test of the adder; return False if cocotb 1.8 or 1.9 is not installed."""
    if find_spec("cocotb") is None or find_spec("cocotb.runner") is None:
        return False
    from cocotb.runner import get_runner

    runner = get_runner("icarus")
    runner.build(sources=SOURCES[:2], hdl_toplevel="adder", build_args=["-g2012"], build_dir=work / "cocotb")
    options = {"build_dir": work / "cocotb", "test_dir": FOLDER, "results_xml": str(work / "results.xml")}
    runner.test(hdl_toplevel="adder", test_module="cocotb_adder", **options)
    return True


def main() -> int:
    """Check both units, right and with every fault; return 1 if something else happens."""
    if shutil.which("iverilog") is None:
        print("Icarus Verilog is missing: apt-get install iverilog, or brew install icarus-verilog.", file=sys.stderr)
        return 2
    wrong = 0
    with TemporaryDirectory() as name:
        work = Path(name)
        for unit in UNITS:
            simfloat(["vectors", name, "--unit", str(FOLDER / f"{unit}.toml")])
            for fault, mistake in ((0, "right"), *FAULTS.items()):
                code, output = check(unit, fault, work)
                wrong += code != (fault > 0)
                print(f"{unit}, {mistake}:\n{output}")
        print("cocotb: the adder agrees." if check_with_cocotb(work) else "cocotb is not installed.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
