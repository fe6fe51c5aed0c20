"""Operations, arguments and uses that have no rule are refused with what to do, and shapes and types as in PyTorch."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf

r, r64 = torch.ones, partial(torch.ones, dtype=torch.float64)
integers = partial(torch.ones, dtype=torch.long)
BLOCK = torch.zeros(1, 1, 16, 16)
COMPLEX = torch.ones(3, dtype=torch.complex64)


def spread(targets, *others, x=BLOCK):
    """The CTC loss of one sequence of 16 steps and classes."""
    return F.ctc_loss(x[0, 0].unsqueeze(1), torch.tensor(targets), *others)


def entropy(classes, *shape, **options):
    return F.cross_entropy(r(shape or (2, 3)), torch.tensor(classes), **options)


#: Calls, and what is said.
REFUSED = [
    (lambda: r(3) * COMPLEX, "aten.mul.Tensor outside of .* complex numbers"),
    (lambda: COMPLEX[1:], "aten.slice.Tensor outside of any layer .* complex numbers"),
    (lambda: torch.fft.rfft(r(4)), "real numbers"),
    (lambda: torch.eye(2).to_sparse_csr().clone(), "sparse tensors have no rules; make the layer dense"),
    (lambda: nn.Embedding(4, 3, sparse=True)(torch.tensor([0])).sum().backward(), "dense"),
    (lambda: nn.EmbeddingBag(4, 3, mode="sum", sparse=True)(torch.tensor([[0, 1]])).sum().backward(), "whole table"),
    (lambda: nn.EmbeddingBag(4, 3, mode="sum", scale_grad_by_freq=True)(torch.tensor([[0]])), "for scale_grad_by_freq"),
    (lambda: nn.Embedding(4, 3, max_norm=1.0)(torch.tensor([0])), "leave max_norm out of nn.Embedding"),
    (lambda: torch.polar(r(3), r(3)), "aten.polar.* complex numbers have no rules"),
    (lambda: torch.linalg.eig(torch.eye(2)), "linalg_eig.* complex numbers have no rules"),
    (lambda: torch.linalg.cholesky(-torch.eye(2)), "not positive definite"),
    (lambda: torch.linalg.inv(torch.zeros(2, 2)), "singular|pivot"),
    (lambda: r(1).addbmm_(r(2, 5, 3), r(2, 3, 4)),
     r"addbmm_.* of shape \(5, 4\) to a tensor of shape \(1,\); compute the result out of place"),
    (lambda: torch.quantize_per_tensor(r(3), 0.1, 0, torch.qint8), "torch.fake_quantize_per_tensor_affine"),
    (lambda: entropy([0, -1]), "Class numbers must be .* got -1 to 0"),
    (lambda: entropy([[3] * 4] * 2, 2, 3, 4), "Class numbers must be .* got 3 to 3"),
    (lambda: entropy([1.0, 1.0]), r"integers of shape \(2,\), got float32 of shape"),
    (lambda: entropy([[1], [1]]), r"\(2,\), got int64 of shape \(2, 1\)"),
    (lambda: entropy([0, 1], weight=r(4)), r"weight must have one element for each of 3 classes, got shape \(4,\)"),
    (lambda: F.binary_cross_entropy(torch.tensor([1.5]), r(1)), "For logits, use binary_cross_entropy_with"),
    (lambda: torch.grid_sampler(BLOCK, BLOCK[..., :3], 0, 0, False), r"takes a grid \(1, ..., 2\) .* got \(1, 1, 16"),
    (lambda: torch.grid_sampler(BLOCK, BLOCK[..., :2].expand(2, -1, -1, -1), 0, 0, False),
     r"x of shape \(1, 1, 16, 16\), got \(2, 1, 16, 2\)"),
    (lambda: torch.cdist(BLOCK, BLOCK, -1.0), "cdist takes p of at least 0, got -1.0"),
    (lambda: torch.special.hermite_polynomial_h(BLOCK, 10**10), "up to degree 65536; got 10000000000.*paused"),
    (lambda: spread([[1, 2]], [17], [2]), r"takes 1 input lengths, .* from 0 to 16; got \[17\]"),
    (lambda: spread([[1, 2]], [16, 16], [2, 2]), r"takes 1 input lengths, .* got \[16, 16\]"),
    (lambda: spread([[1, 2]], [16], [3]), r"1 target lengths, .* from 0 to 2; got \[3\]"),
    (lambda: spread([[1, 16]], [16], [2]), r"targets from 0 to 15, got \[1, 16\]"),
    (lambda: spread([1, 2], [16], [1]), r"1 concatenated, .* got \(2,\)"),
    (lambda: spread([[1, 2]], [16], [2], 16), "blank from 0 to 15, got 16"),
    (lambda: F.grouped_mm(BLOCK[0, 0], BLOCK[0].expand(2, -1, -1), offs=torch.tensor([9, 3], dtype=torch.int32)),
     r"an end for each of 2 groups, ascending up to 16, .* got \[9, 3\]"),
    (lambda: torch.special.bessel_j1(torch.arange(4)), "special_bessel_j1.*cannot be simulated"),
    (lambda: torch.tensor([2**53 + 1]) / 2, "the integer 9007199254740993, which float64 cannot represent"),
]  # fmt: skip

#: Calls of shapes that do not fit, where the message names the shape.
OF_SHAPES = [
    lambda: F.linear(r(16, 3), r(8, 4), r(8)),
    lambda: torch.mm(r(3, 4), r(5, 2)),
    lambda: torch.mm(r(2, 3, 4), r(2, 4, 5)),
    lambda: torch.bmm(r(2, 3, 4), r(2, 5, 6)),
    lambda: torch.bmm(r(2, 3, 4), r(3, 4, 6)),
    lambda: torch.bmm(r(3, 4), r(4, 5)),
    lambda: torch.mv(r(3, 4), r(5)),
    lambda: torch.dot(r(4), r(5)),
    lambda: torch.addmm(r(5, 3, 2), r(3, 4), r(4, 2)),  # which would enlarge the product
    lambda: torch.addmm(r(3, 2), r(1, 4), r(4, 2)),
    lambda: torch.baddbmm(r(3, 3, 5), r(2, 3, 4), r(2, 4, 5)),
    lambda: torch.addbmm(r(3, 5), r(2, 3, 4), r(4, 2, 5)),  # as many products
    lambda: F.scaled_dot_product_attention(r(1, 2, 3, 4), r(1, 2, 5, 6), r(1, 2, 5, 4)),
    lambda: F.layer_norm(r(2, 4), (5,)),
    lambda: F.layer_norm(r(2, 4), (4,), r(1)),
    lambda: r(2, 3).sum(4),
    lambda: r(2, 3).mean((0, -3)),
    lambda: r(2, 3).var(2),
]

#: Products of two types.
OF_TYPES = [
    lambda: F.linear(integers(16, 4), r(8, 4), r(8)),
    lambda: F.linear(r64(16, 4), r(8, 4)),
    lambda: F.linear(r(16, 4), r(8, 4), r64(8)),
    lambda: F.linear(r(16, 4).bfloat16(), r(8, 4), r(8)),
    lambda: torch.bmm(r(2, 3, 4), r64(2, 4, 5)),
    lambda: torch.mv(r64(3, 4), r(4)),
    lambda: torch.dot(r(4), integers(4)),
    lambda: F.conv1d(r64(1, 2, 4), r(3, 2, 2)),
    lambda: F.conv_transpose1d(integers(1, 2, 4), r(2, 3, 2)),
    lambda: nn.GRU(4, 3)(r(2, 1, 4), r64(1, 1, 3)),
]


def refusal(call, policy="fp32"):
    """What is said about a call in a block."""
    with sf.torch.simulate(nn.Identity(), policy), pytest.raises(ValueError) as error:
        call()
    return str(error.value)


def test_operations_without_a_rule_and_arguments_that_do_not_fit_are_named():
    for call, message in REFUSED:
        with sf.torch.simulate(nn.Identity(), "fp32"), pytest.raises(ValueError, match=message):
            call()


def test_shapes_and_types_that_pytorch_rejects_raise_value_error():
    with torch.no_grad():
        for call in (*OF_SHAPES, *OF_TYPES):
            with pytest.raises((RuntimeError, IndexError)):
                call()
        assert all("shape" in refusal(call, "bf16-standard") for call in OF_SHAPES)
        assert all(
            "one type" in refusal(call, policy) for call in OF_TYPES for policy in ("bf16-standard", "as-written")
        )
    with pytest.raises(ValueError, match=r"got shapes \(16, 3\) and \(4, 8\)"):
        sf.torch.explain(nn.Linear(4, 8), r(16, 3), "bf16-standard")
    with sf.torch.simulate(nn.Linear(1, 1), "fp32"):
        assert torch.addr(r(3, 4), r64(3), r(4)).dtype == torch.float64  # of a column and a row: the wider type


def linear(*sizes):
    torch.manual_seed(0)
    return nn.Linear(*(sizes or (3, 2)))


def opened(*arguments):
    """Enter and leave a block."""
    with sf.torch.simulate(*arguments):
        pass


def explained(sample):
    return sf.torch.explain(nn.Sequential(linear()), sample, "fp32")


def fitted_by_an_optimizer_of_ours():
    model = linear()
    with sf.torch.simulate(model, "fp32"):
        sf.train.fit(model, sf.nn.mse_loss, [], sf.optim.SGD(sf.nn.Linear(2, 1).parameters()))


def nested():
    first, second = (sf.torch.simulate(linear(), "fp32") for _ in range(2))
    with first, first, second:
        pass


def stepped(make, of):
    model = linear()
    optimizer = make((model if of == "the model" else linear()).parameters())
    with sf.torch.simulate(model, "fp32"):
        model(r(1, 3)).sum().backward()
        optimizer.step()


def overlapping():
    model = linear(2, 2)
    model.bias.data = model.weight.data.view(-1)[1:3]
    opened(model, "fp32")


OURS, THEIRS = sf.Tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
CANNOT = r"Sequential cannot be called with these arguments \({}\): .* Pass its arguments as tensors"
SGD = partial(torch.optim.SGD, lr=0.1)

#: Uses of the front end, and what is said.
USES = [
    (lambda: sf.torch.simulate(3, "fp32"), "torch.nn.Module"),
    (lambda: sf.torch.simulate(sf.nn.MLP([1, 1]), "fp32"),
     "got MLP; a model of simfloat.nn runs under simfloat.simulate"),
    (lambda: sf.torch.simulate(linear(), "fp23"), "Did you mean"),
    (lambda: sf.simulate(linear()), r"a Linear of PyTorch: write simfloat.torch.simulate\(model, policy\)"),
    (lambda: sf.torch.simulate("bf16-standard", linear()), "takes the model first, then the policy; got "),
    (lambda: sf.torch.simulate(sf.policies["fp32"], linear()), "takes the model first, then the policy; got "),
    (lambda: opened(linear(), "fp64"), "double"),
    (lambda: opened(linear().half(), "fp32"), "torch.float16.*or the policy 'as-written'"),
    (lambda: opened(nn.Sequential(linear(), linear().to("meta")), "fp32"),
     r"'1.weight' is on meta, where tensors have no values; .* model.to_empty\(device='cpu'\)"),
    (lambda: explained(torch.ones(2, 3, device="meta")), r"A tensor of shape \(2, 3\) is on meta"),
    (lambda: opened(nn.LazyLinear(3), "fp32"),
     "'weight' has no shape yet; call the model once on a sample"),
    (overlapping, r"'weight' and 'bias' share a part of their memory.*p\.data\.clone"),
    (lambda: opened(linear(), sf.policies["fp32"].override("2.wieght", compute=sf.BF16)), "wieght"),
    (nested, "ModuleList"),
    (lambda: stepped(partial(SGD, differentiable=True), "the model"), "differentiable"),
    (lambda: stepped(SGD, "another one"), "ModuleList of .* torch.nn.ParameterList"),
    (lambda: sf.torch.simulate(torch.jit.trace(linear(2, 1), r(1, 2)), "fp32"), "A ScriptModule hides its operations"),
    (lambda: sf.torch.simulate(nn.Sequential(nn.ReLU(), torch.jit.script(linear())), "fp32"),
     "A ScriptModule, the layer '1', hides its operations"),
    (lambda: sf.torch.rule("mylib::op")(3), "The rule of mylib::op is a function of its arguments, got 3"),
    (lambda: sf.torch.rule("erfcx"), "mylib::op"),
    (lambda: F.mse_loss(OURS, THEIRS), r"takes tensors of PyTorch, got a simfloat.Tensor: .*x.data"),
    (lambda: torch.exp(OURS), r"takes tensors of PyTorch, got a simfloat.Tensor: .*x.data"),
    (lambda: sf.optim.SGD(linear().parameters()),
     "An optimizer takes model.parameters.., got a torch.Parameter among them"),
    (fitted_by_an_optimizer_of_ours, "optimizer of torch.optim, got a simfloat"),
    (lambda: explained(None), CANNOT.format("NoneType")),
    (lambda: explained(np.ones((2, 3))), CANNOT.format("ndarray")),
    (lambda: explained(()), CANNOT.format("")),
    (lambda: explained({"image": r(2, 3)}), CANNOT.format("Tensor")),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_uses_that_are_none_are_refused_with_what_to_write():
    for use, message in USES:
        with pytest.raises(ValueError, match=message):
            use()
    with sf.simulate("bf16-standard"):  # operators of a tensor of PyTorch and one of ours are left to ours
        assert (THEIRS + OURS).data.tolist() == [4.0, 6.0] and (THEIRS * OURS).format == sf.BF16
        assert (OURS - THEIRS).data.tolist() == [-2.0, -2.0]


def test_an_operation_without_a_rule_is_refused_by_name_and_path_and_explained_with_the_remedy():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j1(x)

    model = nn.Sequential(linear(), Odd())
    before = model[0].weight.detach().clone()
    table = sf.torch.explain(model, r(1, 3), sf.policies["fp32"].override("0", compute="bf16"))
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["0", "aten.addmm.default"][:2] == ("rule", "BF16")
    assert rows["1", "aten.special_bessel_j1.default"][0] == "refused"
    assert torch.equal(model[0].weight, before)
    with sf.torch.simulate(model, "fp32"), pytest.raises(ValueError, match=r"bessel_j1.*'1'.*simfloat\.torch\.rule"):
        model(r(1, 3))
