"""Policies as text are read back as the same policy, and invalid text raises an error."""

import json
import string
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simfloat as sf
from simfloat.policy.roles import ROLES
from simfloat.policy.text import parse
from tests.policy import strategies

FEW = settings(
    max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
MANY = settings(FEW, max_examples=30)


@FEW
@given(strategies.policies())
def test_every_policy_is_what_its_texts_say(policy):
    data = policy.to_dict()
    for again in (
        sf.Policy.from_dict(data),
        sf.Policy.from_dict(json.loads(json.dumps(data))),
        sf.Policy.from_toml(policy.to_toml()),
        eval(repr(policy), vars(sf)),
    ):
        assert again == policy and hash(again) == hash(policy)
        assert (again.name, again.source) == (policy.name, policy.source)


def test_an_override_that_goes_back_to_the_default_is_written():
    policy = sf.policies["bf16-stochastic"].override("head", update="nearest", weights=sf.FP32)
    assert sf.Policy.from_dict(policy.to_dict()).recipe("head").update == "nearest"
    policy = sf.Policy(compute=sf.BF16, activations=sf.FP32).override("head", activations=None)
    assert policy.to_dict()["overrides"] == [{"path": "head", "activations": "default"}]
    assert sf.Policy.from_toml(policy.to_toml()).recipe("head").activations == sf.BF16
    alone = sf.policies["fp32"].override("head", accumulate=sf.FP32)
    assert sf.Policy.from_dict(alone.to_dict()) == alone


def test_a_name_may_hold_any_character():
    for name in ("😀", "\x7f\x00\x85\u2028\ufeff", 'a "b" \\c\n\t', ""):
        policy = sf.Policy(compute=sf.BF16, name=name).override(name, compute=sf.FP16)
        again = sf.Policy.from_toml(policy.to_toml())
        assert again == policy and again.name == name and again.overrides[0].path == name


def test_a_file_may_begin_with_a_byte_order_mark():
    assert sf.Policy.from_toml("\ufeffcompute = 'bf16'") == sf.Policy(compute=sf.BF16)


def test_an_accumulator_nested_too_deeply_for_a_text_is_not_written():
    accumulator = unit = sf.fused(4, 24)
    for _ in range(250):
        accumulator = sf.blocked(2, accumulator, unit)
    with pytest.raises(ValueError, match="accumulate is a Blocked that cannot be written as text"):
        sf.Policy(compute=sf.BF16, accumulate=accumulator).to_dict()


@pytest.mark.parametrize("text, message", [
    ("[" * 5000, "Cannot read"),
    ("-" * 5000 + "1", "Cannot read"),
    ("blocked(2, " * 150 + "fused(4, 24)" + ", fused(4, 24))" * 150, "compute: A format is"),
    ("f(" * 9000, "Cannot read"),
    ("1" * 5000, "Cannot read"),
    ("1" * 30_000, "30000 characters, more than 20000"),
    ("blocked(10000000000000000000, FP16, FP32)", "Cannot read '10000000000000000000'"),
    ("stochastic(-10000000000000000000)", "1 to 32 random bits, got bits=-10000000000000000000"),
    ("Format(1000000000, 2)", "compute: .* got 1000000000"),
    ("e1000000000m2", "compute: Unknown format"),
    ("fused(4 20)", r"Cannot read 'fused\(4 20\)': invalid syntax[^<]*$"),
    ("FP16.saturating()", "Cannot read 'FP16.saturating"),
    ("stochastic(**{})", "Cannot read"),
    ("sequential(*FP16)", "Cannot read"),
    ("nearest_even.saturating(1)", "Cannot read"),
    ("Format(5, 10.5)", "Cannot read '10.5'"),
    ("b'x'", "Cannot read"),
    ("\0", "Cannot read|null bytes"),
    ("", "Cannot read"),
], ids=lambda value: value[:20])  # fmt: skip
def test_texts_that_are_no_value_are_refused_at_once(text, message):
    start = time.perf_counter()
    with pytest.raises(ValueError, match=message):
        sf.Policy.from_dict({"compute": text})
    assert time.perf_counter() - start < 5


def refused_or_read(read, text):
    """Nothing but a ValueError comes of any text; what is read is a policy that can be written."""
    try:
        policy = read(text)
    except ValueError:
        return
    assert sf.Policy.from_dict(policy.to_dict()) == policy


WORDS = [*ROLES, "name", "source", "overrides", "path", "operation", "=", "\n", "[[", "]]", "'", '"', "bf16", "(", ")"]


@MANY
@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
def test_no_text_is_met_with_anything_but_a_value_error(text):
    refused_or_read(sf.Policy.from_toml, text)
    refused_or_read(lambda value: sf.Policy.from_dict({"compute": "bf16", "accumulate": value}), text)


PIECES = [
    "(", ")", ",", "=", ".saturating()", "-", "0", "99", "1e9", "None", "True", "'hopper'", "FP16", "exact", "\ud800",
]  # fmt: skip
PIECES += [
    "sequential(",
    "blocked(2, ",
    "tensor_core(",
    "stochastic(",
    "Format(",
    "p3109(",
    "fused(",
    "rounding=",
    "cast(",
]


@MANY
@given(strategies.policies(), st.data())
def test_no_change_to_the_text_of_a_policy_is_met_with_anything_but_a_value_error(policy, data):
    text = policy.to_toml()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(start + 5, len(text))))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(string.printable, max_size=2)) + text[stop:]
    refused_or_read(sf.Policy.from_toml, text)


@MANY
@given(st.lists(st.sampled_from(PIECES) | st.sampled_from([*sf.CATALOG]), max_size=8).map("".join))
def test_no_call_in_a_text_is_met_with_anything_but_a_value_error(text):
    for role in ("compute", "accumulate", "rounding"):
        refused_or_read(lambda value, role=role: sf.Policy.from_dict({"compute": "bf16", role: value}), text)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from([*ROLES, "name", "source", "overrides", "path", "operation"]) | st.integers()


@MANY
@given(strategies.policies(), st.dictionaries(keys, anything, max_size=2), st.dictionaries(keys, anything, max_size=2))
def test_no_dictionary_is_met_with_anything_but_a_value_error(policy, wrong, inside):
    data = policy.to_dict()
    refused_or_read(sf.Policy.from_dict, data | wrong)
    refused_or_read(sf.Policy.from_dict, data | {"overrides": [*data.get("overrides", []), {"path": "a"} | inside]})
    refused_or_read(sf.Policy.from_dict, wrong)


def test_scaled_casts_are_read_in_the_words_of_the_calls_that_make_them():
    assert parse("scaled(e4m3, block((128, 128), FP32))") == sf.scaled(sf.E4M3, sf.block((128, 128), sf.FP32))
    assert parse("cast(E2M1, stochastic(), scale=block(16, E4M3))") == sf.cast(
        sf.E2M1, sf.stochastic(), scale=sf.block(16, sf.E4M3)
    )
    assert parse("scaled(E5M2, delayed(16, margin=-1))") == sf.scaled(sf.E5M2, sf.delayed(16, margin=-1))
    assert parse("block(32, E8M0, rule='floor')") == sf.block(32, sf.E8M0, rule="floor")
    with pytest.raises(ValueError, match="compute: scale must be a scaling such as simfloat.per_tensor"):
        sf.Policy.from_dict({"compute": "scaled(E4M3, FP32)"})


def test_a_text_is_a_call_or_a_name_and_nothing_else():
    assert parse(" sequential(fp16, products=bf16) ") == sf.sequential(sf.FP16, products=sf.BF16)
    with pytest.raises(ValueError, match=r"Cannot read \"open\('x'\)\"; allowed are"):
        parse("open('x')")
    with pytest.raises(ValueError, match="Cannot read 'sequential"):
        parse("sequential(1 +")
    with pytest.raises(ValueError, match="unexpected keyword"):
        parse("sequential(FP16, product=BF16)")


def test_an_override_that_goes_back_to_a_default_is_read_back():
    for role in ("written", "fused", "update", "accumulate"):
        try:
            policy = sf.policies["as-written"].override("head", **{role: None})
        except ValueError:  # a role that has no default to go back to
            continue
        assert sf.Policy.from_toml(policy.to_toml()) == policy
    assert 'written = "default"' in sf.policies["as-written"].override("head", written=None).to_toml()
