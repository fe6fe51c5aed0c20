"""Every floating-point operation of PyTorch is carried out and rounded, or raises an error with its name."""

import torch

import simfloat as sf
from simfloat.torch.search import handler_of

#: What an argument of a type is.
SAMPLES = {
    "Tensor": lambda x: x, "List[Tensor]": lambda x: [x, x], "number": lambda x: 1, "float": lambda x: 0.5,
    "bool": lambda x: False,
}  # fmt: skip
#: What makes no dense tensors of real numbers, or numbers by chance.
OTHERS = ("sparse", "batch_dim", "nested", "quantize", "fbgemm", "_make_dual", "stft", "backward", "rand", "empty")


def operations():
    """The operations of PyTorch's own library that change none of their operands, with arguments for each."""
    x = sf.round(torch.rand(2, 3).numpy() + 0.125, sf.BF16)
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = name.partition("::")
        operation, _, overload = rest.partition(".")
        if space != "aten" or any(word in operation for word in OTHERS):
            continue
        func = getattr(getattr(torch.ops.aten, operation), overload or "default")
        wanted = [a for a in func._schema.arguments if not a.has_default_value()]
        types = [str(a.type) for a in wanted]
        if func._schema.is_mutable or any(a.kwarg_only for a in wanted) or not set(types) <= set(SAMPLES):
            continue
        if types[:1] in (["Tensor"], ["List[Tensor]"]):
            yield func, [SAMPLES[kind](torch.from_numpy(x.copy())) for kind in types]


def fits(found):
    parts = found if isinstance(found, list | tuple) else [found]
    floats = [x for x in parts if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return all(torch.equal(x.bfloat16().to(x.dtype).nan_to_num(), x.nan_to_num()) for x in floats)


def test_accepted_operations_return_values_of_the_format():
    torch.manual_seed(0)
    carried_out, refused, loose = [], [], []
    for func, arguments in operations():
        with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
            try:
                found = func(*arguments)
            except (ValueError, RuntimeError, IndexError) as error:
                # Else it is PyTorch that refuses these arguments, or a rule that does.
                if "cannot be simulated" in str(error):
                    assert isinstance(error, ValueError) and "aten." in str(error)
                    refused.append(func)
                continue
        carried_out.append(func)
        if not fits(found):
            loose.append(func)
    assert loose == []
    assert len(carried_out) > 150 and len(refused) > 100


def test_the_search_for_a_way_ends_for_every_operation():
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    found = [getattr(p, name) for p in packets if hasattr(p, "overloads") for name in p.overloads()]
    ways = {"rule", "decomposition", "movement", "loop", "PyTorch", "refused"}
    assert {handler_of(func).how for func in found} <= ways
