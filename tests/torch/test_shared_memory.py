"""Parameters that are parts of one flat tensor: each part is recognised."""

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import simfloat as sf

POLICY = sf.policies["bf16-standard"].override("2.bias", weights=sf.FP32)


def flatten(model):
    vector_to_parameters(parameters_to_vector(model.parameters()), model.parameters())


def flatten_gradients(model):
    sizes = [p.numel() for p in model.parameters()]
    for p, part in zip(model.parameters(), torch.zeros(sum(sizes)).split(sizes), strict=True):
        p.grad = part.view_as(p)


def trained(prepare=None, start=None, after=None):
    """All parameters and gradients after two steps, and the operations; parts are changed at three times."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    if prepare:
        prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    with sf.torch.simulate(model, POLICY) as run:
        for _ in range(2):
            optimizer.zero_grad()
            if start:
                start(model)
            model(torch.linspace(-1, 1, 12).reshape(4, 3)).square().mean().backward()
            optimizer.step()
            if after:
                after(model)
    return [x.detach().clone() for p in model.parameters() for x in (p, p.grad)], run.met


def test_parts_of_a_flat_tensor_are_trained_as_parameters_and_gradients_with_memory_of_their_own():
    expected, operations = trained()
    found, same = trained(prepare=flatten)
    assert all(map(torch.equal, found, expected)) and same == operations
    for options in ({"after": flatten}, {"start": flatten_gradients}):
        assert all(map(torch.equal, trained(**options)[0], expected))


def test_values_written_to_the_flat_vector_are_used_as_rounded():
    model, flat = nn.Linear(2, 1), torch.zeros(3)
    vector_to_parameters(flat, model.parameters())
    with sf.torch.simulate(model, "bf16-standard"), torch.no_grad():
        flat.fill_(0.1)
        assert model(torch.tensor([1.0, 0.0])).item() == 0.2001953125


def test_gradients_have_memory_of_their_own_and_come_to_it_by_no_operation_that_is_met():
    pair = nn.ParameterList([nn.Parameter(torch.full((2, 3), float(i))) for i in range(2)])
    with sf.torch.simulate(pair, "fp32") as run:
        total = pair[0] + pair[1]
        total.retain_grad()
        total.square().sum().backward()
        pair[0].grad.zero_()
    assert pair[1].grad.eq(2.0).all() and total.grad.eq(2.0).all()
    assert not {"aten.new_empty_strided.default", "aten.copy_.default"} & {str(func) for func, _, _ in run.met}
