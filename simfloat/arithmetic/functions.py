"""The public operations, a line each, with operands and their result in BF16 as an example.

What has no underscore here is a name of `simfloat.arithmetic` and `simfloat`.
"""

from simfloat.arithmetic.calls import binary as _binary
from simfloat.arithmetic.calls import ternary as _ternary
from simfloat.arithmetic.calls import unary as _unary

add = _binary("add", "256.0, 1.0 -> 256.")
subtract = _binary("subtract", "1.0, 2.0**-9 -> 1.")
multiply = _binary("multiply", "0.1, 3.0 -> 0.30078125")
divide = _binary("divide", "1.0, 3.0 -> 0.33398438")
fma = _ternary("fma", "7.0, 37.0, -(2.0**-60) -> 258.")
power = _binary("power", "2.0, 0.5 -> 1.4140625")
sqrt = _unary("sqrt", "2.0 -> 1.4140625")
exp = _unary("exp", "1.0 -> 2.71875")
log = _unary("log", "10.0 -> 2.296875")
log2 = _unary("log2", "10.0 -> 3.328125")
tanh = _unary("tanh", "0.5 -> 0.46289062")
sin = _unary("sin", "1e6 -> -0.34960938")
cos = _unary("cos", "1e6 -> 0.9375")
erf = _unary("erf", "0.5 -> 0.51953125")
gelu = _unary("gelu", "-1.0 -> -0.15820312")
sigmoid = _unary("sigmoid", "2.0 -> 0.87890625")
reciprocal = _unary("reciprocal", "3.0 -> 0.33398438")
rsqrt = _unary("rsqrt", "2.0 -> 0.70703125")
