"""The pages on PyTorch models: their examples run, and have the results in the text."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE, SEMANTICS = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("pytorch", "pytorch_semantics"))
EXAMPLES = [code for page in (PAGE, SEMANTICS) for code in re.findall(r"```python\n(.*?)```", page, re.S)]


def printed_by(number, capsys):
    namespace = {}
    exec(EXAMPLES[number], namespace)
    return capsys.readouterr().out.splitlines(), namespace


def test_the_first_examples_count_what_is_lost_have_pytorchs_own_metric_and_continue_with_equal_bits(capsys):
    lines, namespace = printed_by(0, capsys)
    assert namespace["recorder"].counts(phase="update")["total"] > 0 and len(lines) == 6
    lines, namespace = printed_by(1, capsys)
    error = (namespace["model"](namespace["x"]) - namespace["y"]).abs().mean().item()
    assert float(lines[0]) == error and namespace["optimizer"].defaults["fused"]
    assert printed_by(2, capsys)[0] == ["True"], "a training that was saved in the middle"
    lines, namespace = printed_by(6, capsys)
    assert namespace["history"].steps == 12 and "steps 12" in [" ".join(line.split()) for line in lines]


def test_updates_cancel_but_for_the_two_ways_that_keep_them(capsys):
    lines, _ = printed_by(3, capsys)
    losses = {line.split()[0]: float(re.search(r"loss (\S+),", line)[1]) for line in lines}
    shares = {line.split()[0]: line.split()[-1].rstrip("%") for line in lines}
    stated = re.search(r"It prints (\d+) % for `bf16-standard`, and (\d+) % for", PAGE)
    names = "bf16-standard", "bf16-stochastic", "bf16-kahan"
    assert [shares[name] for name in names] == [stated[1], stated[2], stated[2]]
    assert losses["bf16-standard"] > 1.15 * losses["fp32"]
    assert all(losses[policy] < 1.1 * losses["fp32"] for policy in names[1:])


def test_a_small_gpt_learns_on_hoppers_arithmetic_and_the_first_layers_gradients_underflow_most(capsys):
    lines, namespace = printed_by(4, capsys)
    assert float(lines[-1].split()[1]) < float(lines[0].split()[1]) - 0.5
    assert 'tensor_core("hopper"' in repr(namespace["run"].policy)
    lines, _ = printed_by(5, capsys)
    shares = [float(line.split()[1].rstrip("%")) for line in lines if line.endswith("subnormal")]
    assert shares[0] > shares[-1]


def test_a_program_for_a_blackwell_gpu_runs_and_the_remedy_of_one_in_fp16_is_a_change_of_the_program(capsys):
    lines, namespace = printed_by(8, capsys)
    assert lines == ["torch.bfloat16 torch.Size([128, 128])"] and namespace["y"].isfinite().all()
    lines, namespace = printed_by(9, capsys)
    assert lines == ["in the program: AdamW(..., eps=1e-07)"] and namespace["diagnosis"].first.verified
    assert len(EXAMPLES) == 10


def test_attention_as_written_has_the_bits_of_pytorchs_math_backend_and_by_an_override_those_of_its_kernel(capsys):
    assert printed_by(7, capsys)[0] == ["True", "True"]
