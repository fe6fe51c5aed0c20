"""Compare a layer with torch's layer in double precision: state, results and gradients."""

import numpy as np

import simfloat as sf


def tensors(torch, values):
    """Convert floating-point arrays to tensors that require a gradient; integers and booleans stay unchanged."""
    return [torch.tensor(v, requires_grad=True) if v.dtype.kind == "f" else torch.tensor(v) for v in values]


def flat(results):
    """Results of a layer, whatever tuples they come in, one after the other."""
    if isinstance(results, tuple | list):
        return [single for result in results for single in flat(result)]
    return [] if results is None else [results]


def close(got, want, what=""):
    """Check equality up to 1e-12, relative to the largest value."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    largest = np.abs(want).max(initial=0)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12 * largest, err_msg=what)


def compare(ours, theirs, *inputs, training=True, run=None, **options):
    """Load torch's state, run both on arrays, and compare every result, and the gradients of all that has one."""
    import torch

    theirs = theirs.double().train(training)
    ours.train(training)
    ours.load_state_dict({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
    run = run or (lambda layer, arguments: layer(*arguments, **options))
    given = tensors(torch, inputs)
    wanted = flat(run(theirs, given))
    weights = [np.random.default_rng(i).standard_normal(tuple(w.shape)) for i, w in enumerate(wanted)]
    sum((w * torch.tensor(v)).sum() for w, v in zip(wanted, weights, strict=True)).backward()
    with sf.simulate("fp64"):
        mine = [sf.Tensor(x, requires_grad=True) if x.dtype.kind == "f" else x for x in inputs]
        results = flat(run(ours, mine))
        sum((r * v).sum() for r, v in zip(results, weights, strict=True)).backward()
    for result, want in zip(results, wanted, strict=True):
        close(result, want.detach().numpy(), "result")
    for x, t in zip(mine, given, strict=True):
        if isinstance(x, sf.Tensor) and t.grad is not None:
            close(x.grad, t.grad.numpy(), "an input's gradient")
    gradients = {name: p.grad.numpy() for name, p in theirs.named_parameters() if p.grad is not None}
    for name, parameter in ours.named_parameters():
        close(parameter.grad, gradients[name], name)
