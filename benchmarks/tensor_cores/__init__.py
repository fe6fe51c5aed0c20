"""A GPU's tensor cores beside our models of them, bit for bit.

``python -m benchmarks.tensor_cores [FILE]`` multiplies the same operands by the instructions themselves (`mma.sync`,
and `wgmma.mma_async` on Hopper), so that no library decides on the order of sums, and by libraries, whose order
:func:`simfloat.reveal` finds; it counts the bits that differ from our models and writes all that to a file. A file
among those of tests/cuda/recorded/ is replayed by the tests, on any machine.
"""
