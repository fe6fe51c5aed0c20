"""Two circuits in SystemVerilog, checked with test vectors in a simulator: `python -m benchmarks.rtl`."""
