"""Compare the tensor cores of a GPU with our models of them, bit for bit.

``python -m benchmarks.tensor_cores [FILE]`` multiplies the same operands in two ways: by the instructions themselves
(`mma.sync`, and `wgmma.mma_async` on Hopper), so that no library decides on the order of sums, and by libraries, for
which :func:`simfloat.reveal` finds the order. It counts the results that differ from our models, and writes everything
to a file. The tests replay the files in tests/cuda/recorded/ on any computer.
"""
