"""Formulas: what derivatives and composites are, written once for tensors of this package and for PyTorch's.

A formula is a function of `u` and of arrays. `u` (`rounded.Rounded`) is the arithmetic of a place: each of its
operations is rounded once, as the policy says there. The docstring of a formula gives its operations in their order,
which is PyTorch's order; what moves, compares or chooses numbers is NumPy's, and `u.moved` (or `where`) says of a new
array whose numbers it has. Plain numbers are arrays without axes, made by `number`. There are

* *slopes*, ``slope(u, g, y, *operands)``: the gradient of one operand, from the gradient `g` of the result `y`;
* *composites*, ``softmax(u, x, axes)``: the result, or a tuple of it and of what the slopes read besides. Each of their
  operands that may require a gradient has a slope.

Which arithmetic a formula gets:

* going forward, a composite gets `simulation.inside.Inside`: every step has a place of its own, inside of the
  composite, by which policies, observers and random streams know it: ``softmax``, then ``exp``. A step that chooses
  numbers says as which operation it is rounded: ``u.round(np.abs(x), "abs", x)``. A composite inside of another one is
  ``u.composite("logsumexp", logsumexp, x)``;
* going back, a slope gets the arithmetic of the role of the gradient that it computes, at the place of the whole
  operation: a policy that names ``softmax`` says how every step of its gradient is rounded;
* where the policy fuses the composite, `Inside` in both directions: steps are rounded to the format of `reduce`, and
  the front end rounds the result, or the gradient, once.

To use a formula, in `simfloat.nn` and `simfloat.autodiff`: ``by_formula("softmax", softmax, (softmax_slope,), x)`` of
`autodiff.by_formula`, with a slope for each operand. In PyTorch's rules, by the classes of `torch.formula`, which give
a formula the arguments of PyTorch's operation, tensors as arrays: ``Formula("softmax", softmax)`` for a composite and
for its gradient with respect to one operand, ``Slopes("layer_norm", to_x, to_weight, to_bias)`` for the gradients of
several, ``Sloped("tanh", slopes.tanh)`` for that of an operation which is no composite.

Where PyTorch's own backward formula differs from the chain rule over the steps, a slope is PyTorch's, so that a model
has the same bits under both front ends.
"""

__all__: list[str] = []
