"""Lists of operations: allow, deny and infer, and the presets that consist of them."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simfloat as sf
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.policy.overrides import OF_PYTORCH, roles_of
from simfloat.policy.presets import LOSSES
from tests.bits import assert_bits
from tests.policy import strategies

BASE = sf.Policy(compute=sf.FP16, weights=sf.FP32, activations="widest")
FORMATS = ("compute", "compute_gradients", "activations", "activation_gradients", "weight_gradients")

# docs/source/amp.md of PyTorch, "CUDA Ops that can autocast to float16" and "to float32", and Apex's FP16_FUNCS and
# FP32_FUNCS, written as there.
AUTOCAST_NARROW = """__matmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d GRUCell linear LSTMCell matmul mm mv prelu RNNCell""".split()
AUTOCAST_WIDE = """__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh
    cosine_embedding_loss cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm
    hinge_embedding_loss kl_div l1_loss layer_norm log log_softmax log10 log1p log2 margin_ranking_loss mse_loss
    multilabel_margin_loss multi_margin_loss nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal rsqrt
    sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum renorm tan triplet_margin_loss""".split()
APEX_NARROW = "conv2d conv_transpose2d linear addmm addmv addr matmul mm mv".split()
APEX_WIDE = """acos asin cosh erfinv exp expm1 log log10 log2 reciprocal rsqrt sinh tan pow cumprod cumsum dist norm
    prod std sum var renorm softmax log_softmax softmin softplus layer_norm group_norm local_response_norm normalize
    cosine_similarity interpolate binary_cross_entropy_with_logits smooth_l1_loss mse_loss cross_entropy""".split()
#: What is called otherwise here.
HERE = {"pow": "power", "__pow__": "power"}


def in_catalog(names):
    return {HERE.get(name, name) for name in names} & {*OPERATIONS, *OF_PYTORCH}


def formats_of(policy, operation, path="layer"):
    recipe = policy.recipe(path, operation)
    return {getattr(recipe, role) for role in FORMATS if role in roles_of(operation)}


def test_an_operation_on_the_deny_list_runs_in_fp32_and_one_on_the_allow_list_in_the_policys_own_formats():
    policy = BASE.deny("softmax", "sum", "linear").allow("matmul", "relu")
    for operation, want in (("softmax", sf.FP32), ("sum", sf.FP32), ("linear", sf.FP32), ("matmul", sf.FP16)):
        assert formats_of(policy, operation) == {want}
    assert formats_of(policy, "relu") == {sf.FP16} and formats_of(policy, "add") == {"widest"}
    assert policy.recipe("", "softmax", "exp").activations == sf.FP32, "what is inside, too"
    assert policy.recipe("", "linear").weights == sf.FP32
    assert BASE.overrides == (), "the policy itself is as it was"


def test_later_lists_win_and_infer_takes_an_operation_off_them():
    policy = BASE.deny("sum", "matmul").allow("sum", "matmul")
    assert formats_of(policy, "sum") == formats_of(policy, "matmul") == {sf.FP16}
    assert formats_of(policy.infer("sum"), "sum") == {"widest"} and formats_of(policy.infer("sum"), "matmul") == {
        sf.FP16
    }
    assert formats_of(policy.deny("sum", format="bf16"), "sum") == {sf.BF16}
    assert formats_of(sf.policies["fp32"].allow("matmul", format="fp16"), "matmul") == {sf.FP16}
    assert formats_of(sf.policies["fp32"].allow("matmul", format="fp16"), "sum") == {sf.FP32}


def test_a_denied_operation_runs_in_its_format_whatever_the_policy_says():
    unit = sf.tensor_core("hopper")
    policy = sf.Policy(
        compute=sf.E4M3, compute_gradients=sf.E5M2, weights=sf.FP32, activations=sf.BF16, gradients=sf.FP16,
        weight_gradients=sf.FP32, accumulate=unit, reduce=sf.BF16,
    )  # fmt: skip
    denied = policy.deny("linear", "sum")
    assert formats_of(denied, "linear") == formats_of(denied, "sum") == {sf.FP32}
    recipe = denied.recipe("", "linear")
    assert recipe.accumulate == recipe.accumulate_gradients == recipe.reduce == sf.sequential(sf.FP32)
    assert denied.recipe("", "matmul") == policy.recipe("", "matmul")
    assert denied.allow("linear").recipe("", "linear") == policy.recipe("", "linear"), "allow brings it back"
    exact = sf.Policy(compute=sf.FP16, accumulate=sf.exact).deny("linear").recipe("", "linear")
    assert exact.accumulate == sf.exact, "no sum is wider"


def test_lists_print_and_are_read_as_overrides():
    policy = BASE.allow("linear", "matmul").deny("exp", "sum")
    assert eval(repr(policy), vars(sf)) == sf.Policy.from_toml(policy.to_toml()) == policy
    assert 'operation = ["exp", "sum"]\nactivations = "FP32"\n' in policy.to_toml()
    assert str(policy).splitlines() == [
        "Policy(compute=FP16, weights=FP32, activations='widest')",
        ".override(operation=('linear', 'matmul'), activations=FP16)",
        ".override(operation=('exp', 'sum'), activations=FP32)",
    ]
    assert max(map(len, str(sf.policies["amp-fp16"]).splitlines())) <= 100
    assert policy == BASE.override(operation=("linear", "matmul"), activations="fp16").override(
        operation=["exp", "sum"], activations=sf.FP32
    )
    assert hash(policy) == hash(sf.Policy.from_dict(policy.to_dict()))


def test_of_a_list_no_operation_needs_to_occur_but_its_path_does():
    policy = sf.policies["fp32"].deny("tanh", "sin")
    with sf.simulate(policy):
        assert (sf.Tensor([1.0]) * 2.0).data == 2
    with (
        pytest.raises(ValueError, match="'sin' matches no operation that ran"),
        sf.simulate(policy.override(operation="sin", reduce="fp32")),
    ):
        sf.Tensor([1.0]) * 2.0
    with pytest.raises(ValueError, match="matches no layer"):
        policy.override("hed", operation=("tanh", "sin"), activations=sf.FP16).explain(sf.nn.MLP([2, 2]))


@pytest.mark.parametrize("make, message", [
    (lambda: BASE.allow(), "Name the operations"),
    (lambda: BASE.deny("softmx"), "Unknown operation 'softmx'.*Did you mean 'softmax'"),
    (lambda: BASE.allow(3), "Unknown operation 3"),
    (lambda: BASE.deny("update"), "update runs in the roles weights and optimizer_state"),
    (lambda: BASE.allow(["exp", "log"]), r"Unknown operation \['exp', 'log'\]"),
    (lambda: BASE.deny("exp", format="fp33"), "Unknown format 'fp33'"),
    (lambda: BASE.infer("exp", "linear"), "'linear' rounds its operands to `compute`; allow or deny it"),
    (lambda: BASE.override(operation=(), activations=sf.FP16), "must not be empty"),
    (lambda: BASE.override(operation=("exp", None), activations=sf.FP16), "Unknown operation None"),
    (
        lambda: BASE.override(operation=("exp", "sum"), compute_gradients=sf.FP16),
        r"compute_gradients has no effect on the operations \('exp', 'sum'\), which use activations, ",
    ),
    (
        lambda: sf.Policy.from_toml("compute='fp16'\n[[overrides]]\noperation=['exp', 1]\nreduce='fp32'"),
        "operation 1",
    ),
])  # fmt: skip
def test_an_invalid_list_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name, format", [("amp-fp16", sf.FP16), ("amp-bf16", sf.BF16)])
def test_amp_follows_the_lists_of_torch_autocast(name, format):
    policy = sf.policies[name]
    listed = {operation for override in policy.overrides for operation in override.operations}
    assert in_catalog(AUTOCAST_NARROW) | in_catalog(AUTOCAST_WIDE) <= listed
    assert all(formats_of(policy, operation) == {format} for operation in in_catalog(AUTOCAST_NARROW))
    assert all(formats_of(policy, operation) == {sf.FP32} for operation in in_catalog(AUTOCAST_WIDE))
    assert formats_of(policy, "batch_norm") == {sf.FP32}, "cuDNN computes it in FP32"
    for operation in ("add", "multiply", "divide", "relu", "tanh", "sigmoid", "gelu", "mean", "max", "sqrt", "var"):
        assert formats_of(policy, operation) == {"widest"}
    assert policy.recipe("", "var", "sum").activations == "widest", "the sum inside is not an operation of the program"
    assert policy.recipe("head.weight").weights == policy.recipe("head.weight").optimizer_state == sf.FP32


def test_every_loss_of_the_catalog_runs_in_fp32_under_mixed_precision():
    losses = {name for name in (*OPERATIONS, *OF_PYTORCH) if name.endswith("_loss") or "cross_entropy" in name}
    assert losses == {*LOSSES}
    for name, loss in itertools.product(("amp-fp16", "amp-bf16", "apex-o1", "apex-o2"), losses):
        assert formats_of(sf.policies[name], loss) == {sf.FP32}


def test_apex_follows_its_table_of_properties_and_its_lists():
    o0, o1, o2, o3 = (sf.policies[f"apex-o{level}"] for level in range(4))
    assert o0 == sf.policies["fp32"] and o3 == sf.policies["fp16-standard"]
    assert o1.recipe().weights == o2.recipe().weights == sf.FP32, "O1 keeps the parameters, O2 a master copy"
    assert all(formats_of(o1, operation) == {sf.FP16} for operation in in_catalog(APEX_NARROW))
    assert all(formats_of(o1, operation) == {sf.FP32} for operation in in_catalog(APEX_WIDE))
    assert formats_of(o1, "add") == {"widest"} and formats_of(o2, "add") == formats_of(o2, "softmax") == {sf.FP16}
    assert formats_of(o1, "batch_norm") == formats_of(o2, "batch_norm") == {sf.FP32}
    assert formats_of(o2, "mse_loss") == {sf.FP32}, "apex hands the model's outputs on in FP32"
    assert formats_of(o2, "log_softmax") == {sf.FP32}, "in PyTorch cross_entropy begins with it"


def test_a_linear_layer_under_amp_computes_in_fp16_with_its_bias_and_keeps_fp32_weights(rng):
    model, x = sf.nn.MLP([4, 3, 2], rng=0), rng.standard_normal((5, 4))
    g = rng.standard_normal((5, 2))
    with sf.simulate("amp-fp16"):
        y = model(x)
        y.backward(g)
    layer, head = model.hidden[0], model.head
    assert y.format == sf.FP16
    h = sf.matmul(x, layer.weight.data.T, inputs=sf.FP16, accumulate=sf.FP32, output=sf.FP16)
    h = np.maximum(sf.add(h, layer.bias.data, sf.FP16), 0)
    want = sf.matmul(h, head.weight.data.T, inputs=sf.FP16, accumulate=sf.FP32, output=sf.FP16)
    assert_bits(y.data, sf.add(want, head.bias.data, sf.FP16))
    assert sf.policies["amp-fp16"].recipe("head.weight").weights == sf.FP32
    given = sf.round(g, sf.FP16)  # as autograd casts it to the type of the result
    assert_bits(head.bias.grad, sf.sum(given, 0, accumulate=sf.FP32, output=sf.FP16))
    assert_bits(head.weight.grad, sf.matmul(given.T, h, inputs=sf.FP16, accumulate=sf.FP32, output=sf.FP16))


@settings(max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.policies(), st.lists(st.sampled_from(sorted(OPERATIONS.keys() - {"update"})), min_size=1, max_size=4))
def test_whatever_the_policy_a_denied_operation_is_wide_and_an_inferred_one_follows_its_operands(policy, names):
    denied = policy.deny(*names)
    for name in names:
        recipe = denied.recipe("", name)
        sums = [recipe.accumulate, recipe.accumulate_gradients] if "accumulate" in roles_of(name) else []
        sums += [recipe.reduce] if "reduce" in roles_of(name) else []
        assert formats_of(denied, name, "") == {sf.FP32}
        assert recipe.rotation is None or "rotation" not in roles_of(name)
        assert all(not each.is_matrix_unit and each.result in (None, sf.FP32) for each in sums)
    plain = [name for name in names if "compute" not in roles_of(name)]
    if plain:
        assert all(formats_of(policy.infer(*plain), name, "") == {"widest"} for name in plain)
    assert str(denied) and policy.diff(denied) and eval(repr(denied), vars(sf)) == denied
