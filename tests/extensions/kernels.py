"""Extensions that have kernels of their own, which run as plain Python here."""

KERNELS = ()
