"""Rules of users."""

from __future__ import annotations

from collections.abc import Callable

from simfloat.torch.rules.search import forget
from simfloat.torch.rules.users import USERS, Function, name_operation


def rule(name: str) -> Callable[[Function], Function]:
    """A decorator that makes a function the rule of an operation, such as ``"mylib::op"``, or takes its rule's place.

    The function takes the operation's own arguments and gives its result, in PyTorch's operations, which are then
    simulated in the place of the operation. If the operation is differentiated by another operation, that one needs a
    rule too. Example::

        @simfloat.torch.rule("mylib::swish")
        def swish(x):
            return x * x.sigmoid()

    Raises ValueError for a name without a library, and for what is no function.
    """
    if not isinstance(name, str) or name.count("::") != 1 or not all(name.split("::")):
        raise ValueError(f"A rule is for an operation's name with its library's, such as 'mylib::op'; got {name!r}.")

    def register(function: Function) -> Function:
        if not callable(function):
            raise ValueError(f"The rule of {name} is a function of its arguments, got {function!r}.")
        name_operation(name.partition("::")[2], "composite")
        USERS[name] = function
        forget()
        return function

    return register
