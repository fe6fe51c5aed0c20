"""The output of processes."""

from simfloat.terminal import LINE


def without_notice(errors):
    """What stands on standard error besides that kernels are being compiled, as they are where none are kept yet."""
    return errors.replace(f"{LINE}\n", "", 1)
