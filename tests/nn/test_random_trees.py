"""Properties of random trees of modules, which are built, shared, tied, rearranged and taken apart."""

import copy
from fnmatch import fnmatchcase

import numpy as np
import pytest

import simfloat as sf
from simfloat.simulation.simulation import current

SEEDS = range(8)
ACTIONS = 25


class Part(sf.nn.Module):
    """Adds its own parameters to x, then runs the modules inside; notes where, and in which format, it ran."""

    def __init__(self, ran):
        super().__init__()
        self.ran = ran

    def forward(self, x):
        place = current().place("add")
        self.ran.append((self, place.path, place.recipe.activations))
        for value in list(vars(self).values()):
            if isinstance(value, sf.Parameter):
                x = x + value
            elif isinstance(value, sf.nn.Module):
                x = value(x)
        return x


class Tree:
    """A model and the list of all parts that were ever made; with torch installed its twin, built by the same steps."""

    def __init__(self, seed, twin_of=None):
        self.rng = np.random.default_rng(seed)
        self.ran, self.twin_of, self.ran_unowned = [], twin_of, set()
        self.model = Part(self.ran)
        self.modules, self.parameters, self.put_where = [self.model], [], []
        self.twins = {id(self.model): twin_of.Module()} if twin_of else {}
        for _ in range(ACTIONS):
            self.act()

    def act(self):
        """One step at random: a new or an old part at a new or an old name of some module, or away with one."""
        holder, slot = self.one_of(self.modules), int(self.rng.integers(4))
        match self.rng.integers(6):
            case 0 | 1:
                self.modules.append(Part(self.ran))
                self.put(holder, f"m{slot}", self.modules[-1])
            case 2 | 3:
                self.parameters.append(sf.Parameter(float(self.rng.integers(8))))
                self.put(holder, f"p{slot}", self.parameters[-1])
            case 4:
                self.put(holder, f"m{slot}", self.one_of(self.modules))
                if self.parameters:
                    self.put(holder, f"p{slot}", self.one_of(self.parameters))
            case 5:
                names = [name for name, value in vars(holder).items() if isinstance(value, sf.nn.Module | sf.Parameter)]
                if names:
                    self.take(holder, self.one_of(names))

    def one_of(self, things):
        return things[int(self.rng.integers(len(things)))]

    def put(self, holder, name, part):
        if isinstance(part, Part) and any(module is holder for module in reached(part)):
            with pytest.raises(ValueError, match="would contain itself"):
                setattr(holder, name, part)
            return
        setattr(holder, name, part)
        self.put_where.append((part, holder, name))
        if self.twin_of:
            kind = self.twin_of.Module() if isinstance(part, Part) else self.twin_of.Parameter()
            setattr(self.twins[id(holder)], name, self.twins.setdefault(id(part), kind))

    def take(self, holder, name):
        if self.rng.integers(2):
            delattr(holder, name)
            if self.twin_of:
                delattr(self.twins[id(holder)], name)
        else:
            setattr(holder, name, None)
            if self.twin_of:
                setattr(self.twins[id(holder)], name, None)

    def path_of(self, part):
        """The path by way of the first that was given the part and holds it now; none if it ran before it had one."""
        for given, holder, name in self.put_where:
            if given is part and vars(holder).get(name) is part and id(part) not in self.ran_unowned:
                return f"{above}.{name}" if (above := self.path_of(holder)) else name
        return ""

    def run(self, module, policy="fp64", observer=None):
        """The calls in order: the module, its path, and the format of its results."""
        self.ran.clear()
        if not self.path_of(module):
            self.ran_unowned.add(id(module))
        with sf.simulate(policy, observer=observer):
            out = module(sf.Tensor(0.0))
            if out.requires_grad:
                out.backward()
        return list(self.ran)


def reached(module):
    """The module and all modules inside, a shared one as often as it occurs."""
    yield module
    for value in vars(module).values():
        if isinstance(value, sf.nn.Module):
            yield from reached(value)


def parts_of(module):
    """The attributes that belong to it, by path, each thing at the first of its paths."""
    found = {}

    def visit(path, thing):
        if id(thing) not in found:
            found[id(thing)] = path, thing
            for name, value in vars(thing).items() if isinstance(thing, sf.nn.Module) else ():
                if isinstance(value, sf.nn.Module | sf.Parameter):
                    visit(f"{path}.{name}" if path else name, value)

    visit("", module)
    return {path for path, _ in found.values()}, {id(thing) for _, thing in found.values()}


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_reached_is_listed_once_in_torchs_order(seed):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")

    class Twin:
        Module = torch.nn.Module

        @staticmethod
        def Parameter():
            return torch.nn.Parameter(torch.zeros(()))

    tree = Tree(seed, Twin)
    theirs = tree.twins[id(tree.model)]
    assert [path for path, _ in tree.model.named_modules()] == [path for path, _ in theirs.named_modules()]
    assert [path for path, _ in tree.model.named_parameters()] == [path for path, _ in theirs.named_parameters()]
    _, things = parts_of(tree.model)
    listed = [*tree.model.named_modules(), *tree.model.named_parameters()]
    assert len(listed) == len(things) and {id(thing) for _, thing in listed} == things
    assert list(tree.model.state_dict()) == list(theirs.state_dict()), "what occurs twice is there under each path"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_updates_every_parameter_once_and_states_round_trip(seed):
    model = Tree(seed).model
    parameters = dict(model.named_parameters())
    if not parameters:
        return
    before = model.state_dict()
    assert set(before) >= set(parameters) and {id(array) for array in before.values()} == {
        id(before[path]) for path in parameters
    }
    for parameter in parameters.values():
        parameter.grad = np.ones(())
    with sf.simulate("fp64"):
        sf.optim.SGD(model.parameters(), lr=1.0).step()
    assert {path: array - 1 for path, array in before.items()} == model.state_dict()
    twin = copy.deepcopy(model)
    model.load_state_dict(before)
    assert model.state_dict() == before
    assert {path: array - 1 for path, array in before.items()} == twin.state_dict()


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_and_counts_are_at_the_listed_paths(seed):
    tree, recorder = Tree(seed), sf.Recorder()
    listed = {id(module): path for path, module in tree.model.named_modules(tree.model.path)}
    for module, path, _ in tree.run(tree.model, observer=recorder):
        assert path == listed[id(module)]
    gradients = {key.path for key, _ in recorder.entries() if key.phase == "backward"}
    parameters = {path for path, _ in tree.model.named_parameters(tree.model.path)}
    assert parameters <= gradients <= parameters | set(listed.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_names_follow_every_change_between_two_runs(seed):
    tree = Tree(seed)
    for _ in range(ACTIONS):
        tree.act()
        listed = {id(module): path for path, module in tree.model.named_modules(tree.path_of(tree.model))}
        assert {id(module): path for module, path, _ in tree.run(tree.model)} == listed


@pytest.mark.parametrize("seed", SEEDS)
def test_an_override_by_path_hits_the_layers_it_names(seed):
    tree = Tree(seed)
    listed = [path for path, _ in tree.model.named_modules(tree.model.path)]
    for pattern in (tree.one_of(listed) or "*", "m0", "*.m1", "m2.*"):
        hit = [path for path in listed if matched(pattern, path)]
        policy = sf.policies["fp64"].override(pattern, activations=sf.FP32)
        for _, path, format in tree.run(tree.model, policy if hit else "fp64"):
            assert (format == sf.FP32) == (path in hit)


def matched(pattern, path):
    parts = path.split(".")
    return any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_part_that_is_called_alone_runs_under_its_first_owners_name(seed):
    tree = Tree(seed)
    for module in tree.modules:
        inside = {id(part): path for path, part in module.named_modules(tree.path_of(module))}
        assert {id(part): path for part, path, _ in tree.run(module)} == inside
    for part in (*tree.modules, *tree.parameters):
        assert part.path == tree.path_of(part)
