"""The public operations, a line each. What has no underscore here is a name of `simfloat.arithmetic` and `simfloat`."""

from simfloat.arithmetic.calls import binary as _binary
from simfloat.arithmetic.calls import ternary as _ternary
from simfloat.arithmetic.calls import unary as _unary

add = _binary("add")
subtract = _binary("subtract")
multiply = _binary("multiply")
divide = _binary("divide")
fma = _ternary("fma")
power = _binary("power")
sqrt = _unary("sqrt")
exp = _unary("exp")
log = _unary("log")
log2 = _unary("log2")
tanh = _unary("tanh")
sin = _unary("sin")
cos = _unary("cos")
erf = _unary("erf")
gelu = _unary("gelu")
sigmoid = _unary("sigmoid")
reciprocal = _unary("reciprocal")
rsqrt = _unary("rsqrt")
