"""Layers, containers and losses."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


def test_names_and_shapes_are_torchs():
    model = sf.nn.MLP([4, 3, 2, 5])
    assert {k: v.shape for k, v in model.named_parameters()} == {
        "hidden.0.weight": (3, 4), "hidden.0.bias": (3,), "hidden.1.weight": (2, 3), "hidden.1.bias": (2,),
        "head.weight": (5, 2), "head.bias": (5,),
    }  # fmt: skip
    assert [path for path, _ in model.named_modules()] == ["", "hidden", "hidden.0", "hidden.1", "head"]
    assert model.hidden[1].weight.path == "hidden.1.weight" and model.head.path == "head" and model.path == ""
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2, bias=False))
    mine = sf.nn.Sequential(sf.nn.Linear(4, 3), sf.nn.Linear(3, 2, bias=False))
    assert {k: tuple(v.shape) for k, v in theirs.state_dict().items()} == {
        k: v.shape for k, v in mine.named_parameters()
    }


def test_initial_values_come_from_the_generator():
    a, b, c = (
        sf.nn.MLP([9, 3, 2], rng=1),
        sf.nn.MLP([9, 3, 2], rng=np.random.default_rng(1)),
        sf.nn.MLP([9, 3, 2], rng=2),
    )
    for x, y, z in zip(a.parameters(), b.parameters(), c.parameters(), strict=True):
        assert_bits(x.data, y.data)
        assert (x.data != z.data).any()
    assert np.abs(a.hidden[0].weight.data).max() <= 1 / 3


def test_train_and_eval_reach_everything():
    model = sf.nn.MLP([2, 2, 2])
    assert not any(module.training for _, module in model.eval().named_modules())
    assert all(module.training for _, module in model.train().named_modules())


def test_a_module_without_forward_says_so():
    with pytest.raises(ValueError, match="Module has no forward method"), sf.simulate("fp32"):
        sf.nn.Module()(1)


def test_models_print_as_trees_with_parameter_counts():
    assert repr(sf.nn.MLP([4, 3, 2])) == (
        "MLP(\n  (hidden): Sequential(\n    (0): ReLULinear(4, 3)  # 15 parameters\n  )  # 15 parameters\n"
        "  (head): Linear(3, 2)  # 8 parameters\n)  # 23 parameters"
    )
    layer = sf.nn.Linear(3, 3, bias=False)
    assert repr(sf.nn.Sequential(layer, layer)).endswith(")  # 9 parameters"), "a shared layer counts once"
    assert repr(sf.nn.Module()) == "Module()"


def test_keyword_arguments_reach_forward():
    class Shifted(sf.nn.Module):
        def forward(self, x, *, by):
            return sf.Tensor(x) + by

    with sf.simulate("fp32"):
        assert Shifted()([1.0], by=2.0).data.tolist() == [3.0]


def test_a_sequential_is_a_sequence_of_modules():
    model = sf.nn.Sequential(*(sf.nn.Linear(2, 2) for _ in range(3)))
    assert len(model) == 3 and list(model)[-1] is model[-1] is model[2]
    part = model[1:]
    assert isinstance(part, sf.nn.Sequential) and part[0] is model[1] and model[1].path == "1"


def test_a_module_list_holds_modules_for_a_module_that_calls_them_itself():
    class Layers(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = sf.nn.ModuleList(sf.nn.Linear(2, 2, rng=n) for n in range(2))
            self.layers.append(sf.nn.Linear(2, 2, rng=2)).extend([self.layers[0]])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model = Layers()
    assert len(model.layers) == 4 and model.layers[-1] is model.layers[0] and len(model.layers[1:3]) == 2
    assert [path for path, _ in model.named_parameters()][-1] == "layers.2.bias", "the shared layer is listed once"
    with sf.simulate("fp32"):
        assert model(np.ones((3, 2))).shape == (3, 2)
    with pytest.raises(ValueError, match=r"got a list at 0. Unpack it: Sequential\(\*modules\)"):
        sf.nn.Sequential([sf.nn.ReLU()])
    with pytest.raises(ValueError, match="ModuleList takes modules, got a int at 4"):
        model.layers.append(3)


def test_functions_are_applied_as_in_torch_from_the_inside_out():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    orders = []
    for nn in (sf.nn, torch.nn):
        shared, order = nn.Linear(1, 1), []
        model = nn.Sequential(nn.Sequential(nn.Linear(1, 1), shared), shared, shared)
        assert model.apply(lambda module, order=order: order.append(type(module).__name__)) is model
        children = [name for name, _ in model.named_children()]
        orders.append((order, children, len(list(model.children())), len(list(model.modules()))))
    assert orders[0] == orders[1]
