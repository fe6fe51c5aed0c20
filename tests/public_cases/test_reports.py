"""Public reports of trainings in 16 and 8 bits: each symptom at toy size, its cause by simfloat, and a fix."""

import math

import numpy as np
import pytest

import simfloat as sf

torch = pytest.importorskip("torch")
F = torch.nn.functional


def count_of(recorder, event, **where):
    return recorder.counts(**where)[event]


def run_under(policy, function, recorder=None, model=None):
    with sf.torch.simulate(model or torch.nn.Identity(), policy, seed=0, observer=recorder):
        return function()


def test_a_scale_is_halved_at_every_step_if_the_forward_pass_overflows():
    """The scale of a GAN fell to 1e-303. https://github.com/NVIDIA/apex/issues/715"""
    scales = {}
    for policy in ("fp16-standard", "amp-fp16"):
        weight, recorder = sf.nn.Parameter(np.array([12.0])), sf.Recorder()
        optimizer, scaler = sf.optim.SGD([weight], lr=1e-6), sf.optim.DynamicLossScale(init_scale=16.0)
        with sf.simulate(policy, observer=recorder):
            for _ in range(8):
                optimizer.zero_grad()
                scaler.scale(weight.exp().sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        scales[policy] = scaler.get_scale()
        assert (count_of(recorder, "overflow", phase="forward") > 0) == (policy == "fp16-standard"), "exp(12) > 65504"
    assert scales == {"fp16-standard": 2.0**-4, "amp-fp16": 16.0}


def test_an_average_of_weights_in_bf16_keeps_its_first_value():
    """The average was never updated; the fix stores it in float32. https://github.com/d8ahazard/sd_dreambooth_extension/pull/1415"""

    def average_of_weights(format, rounding=sf.nearest_even, observer=None):
        average, options = np.ones(256), {"rounding": rounding, "stream": sf.BitStream(0)}
        options = options if rounding.is_stochastic else {}
        for _ in range(50):
            old = sf.multiply(1 - 2.0**-10, average, sf.FP32)
            average = sf.add(old, 2.0**-10 * 2, format, observer=observer, **options)
        return average

    recorder = sf.Recorder()
    assert (average_of_weights(sf.BF16, observer=recorder) == 1).all()
    exact = 2 - (1 - 2.0**-10) ** 50
    assert abs(average_of_weights(sf.FP32) - exact).max() < 1e-5
    assert abs(average_of_weights(sf.BF16, sf.stochastic()).mean() - exact) < 4 * 2.0**-7 * (50 / 8 / 256) ** 0.5


def test_angles_of_a_rotary_embedding_are_half_a_radian_off_in_fp16():
    """Position 1857 was rotated by 1045 instead of 1044.27. https://github.com/EleutherAI/gpt-neox/issues/1003"""
    frequency, position = 10000 ** (-2 / 32), torch.tensor(1857.0)
    angle, wrong = 1857 * frequency, sf.multiply(1857, sf.round(frequency, sf.FP16), sf.FP16)
    assert wrong == 1045 and float(torch.tensor(frequency).half() * position.half()) == 1045
    assert sf.ulp(angle, sf.FP16) == 1 and abs(math.cos(wrong) - math.cos(angle)) > 0.7
    wide = sf.cos(sf.multiply(1857, sf.round(frequency, sf.FP32), sf.FP32), sf.FP16)
    assert abs(wide - math.cos(angle)) < 2.0**-11


def test_ids_of_long_prompts_and_timesteps_collide_in_bf16():
    """Ids up to 512 became equal. https://github.com/Nerogar/OneTrainer/issues/1177
    So did time steps up to 1000. https://github.com/modelscope/DiffSynth-Studio/issues/562
    """
    ids = np.arange(512.0)
    assert len(set(sf.round(ids, sf.BF16))) == 257 + 128 and sf.BF16.precision == 8
    assert (sf.round(ids, sf.BF16) == torch.arange(512).bfloat16().float().numpy()).all()
    assert (sf.round(ids, sf.FP16) == ids).all(), "2^11 integers are exact"
    steps = np.array([999.3986, 988.4937, 987.1741])
    assert sf.round(steps, sf.BF16).tolist() == [1000, 988, 988] and sf.ulp(990.0, sf.BF16) == 4
    assert sf.round(steps / 1000, sf.BF16).tolist() != (sf.round(steps, sf.BF16) / 1000).tolist()


def test_a_level_of_noise_is_multiplied_before_it_is_rounded():
    """sigma was rounded, and then multiplied by 1000. https://github.com/Tencent-Hunyuan/UniRL/pull/438"""
    sigma = np.array([0.97826087, 0.68181819])
    assert sf.multiply(sf.round(sigma, sf.BF16), 1000, sf.BF16).tolist() == [976, 684]
    assert np.abs(sf.multiply(sigma, 1000, sf.FP32) - [978.26087, 681.81819]).max() < 1e-4


def test_clipping_in_fp16_makes_a_finite_gradient_zero():
    """The square of 300 was infinite. https://github.com/tracel-ai/burn/issues/5699
    The square of a norm of 5000 was infinite. https://github.com/facebookresearch/fairscale/pull/263
    """

    def clip(gradient, format, recorder=None):
        square = sf.multiply(gradient, gradient, format, observer=recorder)
        norm = sf.sqrt(sf.sum(square, accumulate=sf.FP32, output=format), format)
        return sf.multiply(gradient, sf.divide(1.0, norm, format), sf.FP16)

    for gradient in (np.array([300.0]), np.array([4000.0, 3000.0])):
        recorder = sf.Recorder()
        with np.errstate(over="ignore"):
            assert not clip(gradient, sf.FP16, recorder).any()
        assert count_of(recorder, "overflow", operation="multiply") == gradient.size
        assert abs(np.linalg.norm(clip(gradient, sf.FP32)) - 1) < 1e-3
    weight = sf.nn.Parameter(np.zeros(2))
    weight.grad = np.array([4000.0, 3000.0])
    with sf.simulate("fp16-master"):
        sf.optim.clip_grad_norm_([weight], 1.0)
    assert np.allclose(weight.grad, [0.8, 0.6], rtol=1e-3), "as autocast does, in FP32"


def test_clipping_before_the_scale_is_removed_makes_updates_tiny():
    """Training came to a halt. https://github.com/victorchall/EveryDream2trainer/pull/175
    https://github.com/milesial/Pytorch-UNet/issues/468
    """
    moved, norms = [], []
    for unscale_first in (False, True):
        model = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.ones_(model.weight)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.5), torch.amp.GradScaler("cpu", init_scale=2.0**14)
        with sf.torch.simulate(model, "fp16-master"):
            scaler.scale(model(torch.full((1, 4), 0.5)).sum()).backward()
            if unscale_first:
                scaler.unscale_(optimizer)
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
            scaler.step(optimizer)
        moved.append(1 - model.weight[0, 0].item())
    assert norms == [2.0**14, 1.0] and moved[1] == pytest.approx(0.25, rel=1e-5)
    assert moved[0] == pytest.approx(moved[1] / 2**14, rel=1e-2)


def test_small_gradients_vanish_from_a_sum_over_batches_in_bf16():
    """Batches accumulated their gradients in bfloat16. https://github.com/deepspeedai/DeepSpeed/issues/1800"""

    def sum_of_gradients(policy):
        weight, recorder = sf.nn.Parameter(np.zeros(1)), sf.Recorder()
        with sf.simulate(policy, observer=recorder):
            for factor in [1.0] + 20 * [2.0**-9]:
                (weight * factor).sum().backward()
        return weight.grad.item(), count_of(recorder, "unchanged", phase="backward", operation="add")

    assert sum_of_gradients("bf16-standard") == (1.0, 20)
    wide = sf.policies["bf16-standard"].override("*", weight_gradients=sf.FP32)
    assert sum_of_gradients(wide) == (1 + 20 * 2.0**-9, 0)


def test_the_last_product_of_a_feed_forward_layer_overflows_fp16():
    """The result of T5's `wo` was 66246.39, beyond 65504. https://github.com/huggingface/transformers/issues/5651"""
    model = torch.nn.Module()
    model.wo = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.constant_(model.wo.weight, 66246.39 / 4 / 64)
    x = torch.full((1, 4), 64.0)
    for policy, is_finite in (
        ("fp16-master", False),
        (sf.policies["fp16-master"].override("wo", activations=sf.FP32), True),
        ("amp-bf16", True),
    ):
        recorder = sf.Recorder()
        result = run_under(policy, lambda: model.wo(x), recorder, model)
        assert bool(result.isfinite()) == is_finite
        assert count_of(recorder, "overflow", path="wo", operation="linear") == (not is_finite)
    assert "wo" in str(recorder.advise()) or is_finite


def test_a_bound_of_one_minus_a_millionth_is_one_in_half_precision():
    """log1p(-p) was infinite, and a masked gradient NaN. https://github.com/fastino-ai/GLiNER2/pull/155"""

    def gradient(least, recorder=None):
        logit = torch.full((2,), 20.0, dtype=torch.bfloat16, requires_grad=True)
        mask = torch.tensor([0.0, 1.0])

        def loss():
            survival = torch.log1p(-torch.sigmoid(logit).clamp(max=1 - least))
            (1 - torch.exp(survival) * mask).sum().backward()

        run_under("as-written", loss, recorder)
        return logit.grad

    recorder = sf.Recorder()
    assert sf.round(1 - 1e-6, sf.BF16) == sf.round(1 - 1e-6, sf.FP16) == 1
    assert gradient(1e-6, recorder).isnan().any() and recorder.first_nan.phase == "backward"
    assert gradient(2.0**-8).isfinite().all()


def test_the_logarithm_of_one_minus_a_saturated_sigmoid_is_infinite():
    """Large logits gave NaN. https://github.com/huggingface/candle/issues/2561"""
    logit, target = torch.tensor([9.0]), torch.tensor([0.0])

    def by_hand():
        return -(1 - torch.sigmoid(logit)).log()

    recorder = sf.Recorder()
    assert sf.sigmoid(9.0, sf.FP16) == 1
    assert run_under("fp16-standard", by_hand, recorder).isinf() and not count_of(recorder, "overflow")
    assert run_under("fp16-standard", lambda: F.binary_cross_entropy_with_logits(logit, target)) == 9
    assert abs(run_under("amp-fp16", by_hand) - 9) < 1e-2


def test_a_loss_in_bf16_has_steps_of_a_thirtysecond():
    """All losses were multiples of 1/32. https://github.com/google-deepmind/optax/issues/1020
    https://github.com/Modalities/modalities/pull/464
    """
    logits, labels = torch.from_numpy(np.random.default_rng(0).random((6, 100))).float(), torch.arange(6)

    def losses():
        return F.cross_entropy(logits, labels, reduction="none").double()

    exact = F.cross_entropy(logits.double(), labels, reduction="none")
    narrow, wide = run_under("bf16-standard", losses), run_under("amp-bf16", losses)
    assert (narrow * 32 == (narrow * 32).round()).all() and sf.ulp(4.6, sf.BF16) == 1 / 32
    assert (wide - exact).abs().max() < 1e-5 < (narrow - exact).abs().max()


def test_a_warm_up_of_a_thousand_steps_loses_its_first_updates_in_bf16():
    """A model collapsed. https://github.com/kyegomez/SingLoRA/issues/6"""

    def share_of_lost_updates(policy):
        weight, recorder = sf.nn.Parameter(np.ones(4)), sf.Recorder()
        optimizer = sf.optim.SGD([weight], lr=0.1)
        schedule = sf.optim.LinearLR(optimizer, start_factor=1e-3, total_iters=1000)
        with sf.simulate(policy, seed=0, observer=recorder):
            for _ in range(10):
                optimizer.zero_grad()
                (weight * 0.5).sum().backward()
                optimizer.step()
                schedule.step()
        return recorder.lost_updates()

    assert [share_of_lost_updates(policy) for policy in ("bf16-standard", "bf16-fp32-weights")] == [1, 0]
    assert share_of_lost_updates("bf16-stochastic") < 1


def test_a_mean_of_more_than_65504_numbers_divides_by_infinity():
    """The loss was always 0. https://github.com/chelsea0x3b/dfdx/issues/748
    NLLLoss was NaN. https://github.com/pytorch/pytorch/issues/29429
    """
    ones = np.ones(70000)
    total = sf.sum(ones, accumulate=sf.FP32)
    with np.errstate(over="ignore", invalid="ignore"):
        count = sf.round(70000.0, sf.FP16)
        assert np.isinf(count) and sf.divide(total, count, sf.FP16) == 0
        assert np.isnan(sf.divide(sf.round(total, sf.FP16), count, sf.FP16))
    assert sf.divide(total, 70000.0, sf.FP16) == 1
    assert run_under("as-written", torch.ones(70000).half().mean) == 1


def test_a_counter_of_steps_in_bf16_ends_at_256():
    """Adam's corrections of its moments stopped there. https://github.com/pytorch/ao/pull/4915"""
    count = sf.partial_sums(np.ones(1000), np.ones(1000), accumulate=sf.BF16)
    assert count[-1] == 256 and count[:256].tolist() == list(range(1, 257))
    assert 2 < 1 / math.sqrt(1 - 0.999 ** count[-1]) < 2.2, "so much smaller is each update from then on"
    weight = torch.nn.Parameter(torch.ones(1))
    model = torch.nn.Identity()
    model.weight = weight
    optimizer = torch.optim.Adam([weight])
    with sf.torch.simulate(model, "bf16-standard"):
        weight.sum().backward()
        optimizer.step()
        optimizer.state[weight]["step"] += 255
        optimizer.step()
    assert optimizer.state[weight]["step"] == 257 and optimizer.state[weight]["step"].dtype == torch.float32


def test_a_norm_of_large_numbers_is_zero_in_fp16_without_any_nan():
    """A kernel computed squares in float16. https://github.com/microsoft/onnxruntime/issues/29034
    Squares of 256 and more overflow. https://github.com/neuroneural/brainchop-cli/pull/56
    """
    norm, x, recorder = sf.nn.RMSNorm(4), np.array([[300.0, -400.0, 500.0, 100.0]]), sf.Recorder()
    with sf.simulate("fp16-standard", observer=recorder):
        assert not norm(sf.Tensor(x)).data.any()
    assert count_of(recorder, "overflow", phase="forward") == 3 and not count_of(recorder, "nan")
    wide = sf.policies["fp16-standard"].override("*", activations=sf.FP32)
    with sf.simulate(wide):
        result = norm(sf.Tensor(x)).data
    assert np.allclose(result, x / np.sqrt((x**2).mean()), rtol=1e-3)


def test_the_eps_of_a_norm_is_zero_in_fp16_and_a_larger_one_is_verified():
    """Constant rows gave NaN. https://github.com/deepspeedai/DeepSpeed/issues/581"""
    norm = sf.nn.LayerNorm(4, eps=1e-12)
    batch = (np.ones((2, 4)), np.zeros((2, 4)))
    fault = sf.diagnose(norm, sf.nn.mse_loss, [batch], "fp16-master", steps=1).first
    assert fault.why == "a division by 0; add (forward) underflowed"
    assert fault.verified and fault.also == "in the program: LayerNorm(..., eps=1e-07)" and norm.eps == 1e-12
    with sf.simulate("fp16-master"):
        assert not sf.nn.LayerNorm(4, eps=1e-7)(sf.Tensor(batch[0])).data.any()


def test_the_eps_of_a_norm_that_a_program_computes_in_fp16_is_named():
    """For the gradient of a zero row 1e-5 was too small, and 1e-4 was enough. https://github.com/pytorch/pytorch/issues/32137"""

    class RMSNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.variance_epsilon = torch.nn.Parameter(torch.ones(2)), 1e-8

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    model, recorder = RMSNorm().half(), sf.Recorder()
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]]).half()
    assert run_under("as-written", lambda: model(x), recorder, model)[0].isnan().all()
    assert "a larger eps" in recorder.advise()[0].why
    fault = sf.diagnose(model, F.mse_loss, [(x, x)], "as-written", steps=1).first
    assert fault.verified and fault.override.startswith("in the program: RMSNorm(..., eps=1e-0")


def test_the_logarithm_of_a_sum_of_65536_exponentials_is_infinite_in_fp16():
    """The sum overflows before its logarithm is taken. https://github.com/google-research/last/pull/43"""
    terms = np.ones(65536)
    with np.errstate(over="ignore"):
        assert np.isinf(sf.log(sf.sum(terms, accumulate=sf.FP32, output=sf.FP16), sf.FP16))
    assert sf.log(sf.sum(terms, accumulate=sf.FP32), sf.FP16) == sf.round(math.log(65536), sf.FP16)


def test_gradients_of_a_frequent_word_stop_at_32_in_fp16():
    """The sum of thousands of terms of 0.01 ended at 32. https://github.com/apache/mxnet/issues/17703
    https://github.com/tenstorrent/tt-metal/pull/53386
    """

    def gradient(accumulate):
        words = sf.nn.Embedding(2, 1, rng=0)
        policy = sf.Policy(compute=sf.FP16, accumulate=accumulate, weights=sf.FP32)
        with sf.simulate(policy):
            (words(np.zeros(6000, np.int64)) * 0.01).sum().backward()
        return words.weight.grad[0].item()

    assert gradient(sf.FP16) == 32
    assert abs(gradient(sf.FP32) - 60) < 0.05


@pytest.mark.parametrize("history", [1, 16])
def test_a_short_history_of_amaxes_saturates_large_values_that_return(history):
    """The report asks how long the history should be. https://github.com/NVIDIA/TransformerEngine/issues/1169"""
    layer, recorder = sf.nn.Linear(1, 1, bias=False, rng=0), sf.Recorder()
    layer.weight.data = np.array([[1.0]])
    policy = sf.Policy(compute=sf.scaled(sf.E4M3, sf.delayed(history=history)), activations=sf.FP32, weights=sf.FP32)
    results = []
    with sf.simulate(policy, observer=recorder), sf.no_grad():
        results = [layer(np.array([[size]])).data.item() for size in (100.0, 1.0, 1.0, 100.0)]
    saturated = count_of(recorder, "overflow", operation="cast_input")
    assert (results[-1], saturated) == ((1.0, 1) if history == 1 else (100.0, 0))


def test_a_second_moment_in_bf16_never_decays():
    """Small updates of moments are rounded away. https://github.com/NVIDIA-NeMo/Automodel/pull/2248"""

    def moment(optimizer_state):
        weight = sf.nn.Parameter(np.ones(64))
        optimizer = sf.optim.Adam([weight], lr=1e-3)
        with sf.simulate(sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=optimizer_state), seed=0):
            for gradient in [1.0] + 20 * [0.0]:
                optimizer.zero_grad()
                (weight * gradient).sum().backward()
                optimizer.step()
        return float(np.mean(optimizer.state[0]["exp_avg_sq"]))

    first = 0.001
    assert moment(sf.BF16) == sf.round(first, sf.BF16)
    assert abs(moment(sf.FP32) / (first * 0.999**20) - 1) < 1e-3
    assert moment(sf.cast(sf.BF16, sf.stochastic())) < sf.round(first, sf.BF16)
