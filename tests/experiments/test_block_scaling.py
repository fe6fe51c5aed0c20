"""Rules for block scales, and the data of the GPT."""

from experiments.block_scaling.policies import VARIANTS
from experiments.block_scaling.problems import CONTEXT, gpt, letters
from experiments.block_scaling.rules import FORMATS, RULES, measure_rules
from experiments.problem import turned


def test_scales_that_are_rounded_down_saturate_and_those_rounded_up_do_not():
    rows = measure_rules({"data": "normal", "seed": 1, "tiny": True})
    assert [(row["format"], row["rule"]) for row in rows] == [(name, rule) for name in FORMATS for rule in RULES]
    blocks = {(row["format"], row["rule"]): row["blocks"] for row in rows}
    assert all(blocks[name, rule] == 0 for name in FORMATS for rule in ("ceil", "rceil"))
    assert blocks["E2M1", "floor"] > 0 and blocks["E4M3", "floor"] > blocks["E4M3", "even"] > 0
    assert all(0 < row["error"] < 0.3 for row in rows)


def test_the_text_is_predicted_letter_by_letter_and_a_tenth_that_the_seed_chooses_is_held_out():
    problem = gpt(seed=0, tiny=True)
    text, count = letters()
    text = turned(text, 0)
    assert problem.x.shape == problem.y.shape == (9 * (len(text) - CONTEXT) // 10, CONTEXT)
    assert (problem.x[5, 1:] == problem.y[5, :-1]).all() and text.max() == count - 1
    x, y = problem.test
    last = len(problem.x) + CONTEXT
    assert (x[0] == text[last : last + CONTEXT]).all() and (y[0] == text[last + 1 : last + CONTEXT + 1]).all()


def test_policies_that_are_compared_differ_in_their_operands():
    assert len({variant.policy for variant in VARIANTS}) == len(VARIANTS)
