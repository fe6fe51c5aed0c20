"""Two circuits in SystemVerilog, checked with the test vectors of simfloat in a simulator: `python -m benchmarks.rtl`."""
