"""Options that a class declares: its constructor, its attributes, and the classes of users that derive from it."""

import inspect
import typing

import pytest

import simfloat as sf
from simfloat.nn.arguments import as_number
from simfloat.nn.layer import Layer
from simfloat.options import KW_ONLY, InitVar, flag, option, with_options


@with_options
class Scale(Layer):
    factor: float = option(as_number)
    shift: float = option(as_number, default=0.5)
    _: KW_ONLY
    checked: InitVar[bool] = option(flag, default=False)

    def forward(self, x):
        return sf.Tensor(x) * self.factor + self.shift


@with_options
class Shift(Scale):
    shift: float = option(as_number, default=2.0)
    _: KW_ONLY
    name: str = option(lambda name, value: value, default="none")


class Own(Shift):
    def __init__(self, factor, extra):
        super().__init__(factor, name="own")
        self.extra = extra


def test_a_constructor_has_the_options_in_their_order_with_types_and_defaults():
    assert str(inspect.signature(Scale)).replace("'", "") == (
        "(factor: float, shift: float = 0.5, *, checked: bool = False) -> None"
    )
    assert list(inspect.signature(Shift).parameters.items())[1][1].default == 2.0, "in the place of the base's"
    assert list(inspect.signature(Shift).parameters) == ["factor", "shift", "checked", "name"]
    assert typing.get_type_hints(Shift.__init__)["factor"] is float
    assert (Scale.__init__.__qualname__, Scale.__init__.__module__) == ("Scale.__init__", __name__)


def test_options_are_read_stored_and_printed():
    layer = Shift(2, name="a")
    assert (layer.factor, layer.shift, layer.name) == (2.0, 2.0, "a") and type(layer.factor) is float
    assert repr(layer) == "Shift(factor=2.0, shift=2.0, name='a')"
    assert not hasattr(layer, "checked") and not hasattr(Scale, "factor")
    with sf.simulate("fp32"):
        assert layer([1.0]).data == 4.0


def test_classes_of_users_derive_from_them_as_from_others():
    layer = Own(3.0, extra=[1])
    assert (layer.factor, layer.name, layer.extra) == (3.0, "own", [1]) and repr(layer).startswith("Own(factor=3.0, ")

    class Typed(sf.nn.ELU):
        alpha: float  # no option without a value

    assert Typed(0.5).alpha == 0.5


@pytest.mark.parametrize("call, error, message", [
    (lambda: Scale("a"), ValueError, "factor must hold real numbers"),
    (lambda: Scale("a", checked="b"), ValueError, "checked must be True or False, got 'b'"),
    (lambda: Scale(), TypeError, r"Scale.__init__\(\) missing 1 required positional argument: 'factor'"),
    (lambda: Scale(1.0, 2.0, True), TypeError, r"Scale.__init__\(\) takes from 2 to 3 positional arguments but 4"),
    (lambda: Shift(1.0, fcator=1), TypeError, r"Shift.__init__\(\) got an unexpected keyword argument 'fcator'"),
])  # fmt: skip
def test_what_no_option_takes_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
