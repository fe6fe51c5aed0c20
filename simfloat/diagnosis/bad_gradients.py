"""Gradients that are gone or wrong, beside the reference's at the same weights: underflow, saturation, swamped sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from simfloat.arithmetic.catalog import kind_of
from simfloat.diagnosis.fault import INFINITY, NAN, Fault
from simfloat.diagnosis.harm import WRONG, Harm
from simfloat.diagnosis.mending import Mending, named, percent, scaled_instead, together
from simfloat.diagnosis.trial import Course
from simfloat.formats import FP32
from simfloat.policy import Policy
from simfloat.policy.roles import CONTRACTION, REDUCTION
from simfloat.telemetry.entries import Key, are_wide
from simfloat.telemetry.remedy import CASTS, Remedy, remedy

#: How harmful a policy is, and the remedies of each role.
Measure = Callable[..., float]
Remedies = Mapping[str, tuple[Remedy, ...]]

#: By role, where results or operands are rounded to it, with what mends them there.
Groups = dict[str, list[tuple[Key, Remedy]]]

#: Shares of results above which it is asked whether underflow, few digits and saturation do harm.
UNDERFLOWED, SUBNORMAL, SATURATED = 0.05, 0.25, 0.01

#: The share of saturated results above which saturation is told, though nothing that was tried takes half of its harm.
OBVIOUS = 0.25

#: The shares of a gradient above which it is gone, or wrong; a remedy takes at least half of that away.
GONE = 0.1

#: The kinds of faults that make a gradient wrong.
OF_GRADIENTS = (NAN, INFINITY, "underflow", "saturation", "swamped sums", "zero gradients")

#: Scales of the loss that are tried beside overrides.
SCALES = (2.0**8, 2.0**12, 2.0**16, 2.0**20)

#: The roles of results and operands, by phase.
GOING_BACK = ("activation_gradients", "weight_gradients", "compute_gradients")
GOING_FORWARD = ("activations", "compute", "compute_weights")

#: The roles of sums, and what they sum.
SUMS = {"accumulate": CONTRACTION, "accumulate_gradients": CONTRACTION, "reduce": REDUCTION}


def find_underflow(mending: Mending, course: Course, harm: Harm, *, is_rare: bool = False) -> None:
    """Note results that underflow, if gradients are gone and wider formats bring them back, and subnormal results, if
    gradients are wrong; `is_rare`: a single one of many at its place, on which all may depend."""
    entries = dict(course.watch.entries())
    for kind, limit, measure, words in (
        ("underflow", UNDERFLOWED, harm.gone, "underflow ({}): up to {} of a gradient is gone"),
        ("subnormal", SUBNORMAL, harm.wrong, "have fewer digits, near underflow ({}): a gradient is {}"),
    ):
        if is_rare:
            limit = 0.0
            if harm.agrees(mending.policy):
                continue
        keys = [key for key in _often(mending, course, kind, limit) if not are_wide(entries[key])]
        keys = [key for key in keys if kind == "underflow" or is_rare or key.operation not in CASTS]
        groups = _by_role(keys, list(entries))
        before = measure(mending.policy) if groups else 0.0
        if before <= GONE:
            continue
        # What underflows behind a result that is zero is seen once that one is mended: then all of its kind are.
        there = {role: together([each for _, each in group]) for role, group in groups.items()}
        everywhere = {role: (Remedy("*", "", role, FP32),) for role in _alike(groups)}
        # Sums of what underflows may underflow themselves, step by step, which shows in no result.
        with_sums = everywhere | (_narrow_sums(mending.policy) if groups else {})
        remedies = next((x for x in (there, everywhere, with_sums) if _needed(mending, x, measure, before)), {})
        needed = _needed(mending, remedies, measure, before)
        if needed:
            found = _keys_of(needed, groups)
            share = max(course.watch.share(kind, key) for key in found)
            much = f"{before:.0%}" if kind == "underflow" else _in_words(before)
            why, also = f"{percent(share)} {words.format(named(found), much)}", _scale(mending, measure, before)
            step = min(course.watch.first_step(kind, key) for key in found)
            fault = Fault("underflow", step, found[0].phase, found[0].path, found[0].operation, why, also=also)
            _attempt_all(mending, fault, [each for role in needed for each in remedies[role]], measure, before)
            return


def find_saturation(mending: Mending, course: Course, harm: Harm) -> None:
    """Note results and operands that stop at the largest number, where gradients are wrong by it."""
    keys = _often(mending, course, "overflow", SATURATED)
    before = harm.wrong(mending.policy) if keys else 0.0
    if before <= WRONG:
        return
    groups = _by_role(keys, [key for key, _ in course.watch.entries()])
    scaled, plain = (
        {role: together([choose(each, mending.policy) for _, each in group]) for role, group in groups.items()}
        for choose in (scaled_instead, _unscaled)
    )
    # What saturates behind numbers that stopped, or on their way back, is seen once these are mended: then all are.
    everywhere = {role: (scaled_instead(Remedy("*", "", role, FP32), mending.policy),) for role in CASTS.values()}
    tried = ((remedies, _needed(mending, remedies, harm.wrong, before)) for remedies in (scaled, everywhere, plain))
    obvious = [key for key in keys if course.watch.share("overflow", key) > OBVIOUS]
    remedies, needed = next((each for each in tried if each[1]), (scaled, list(groups) if obvious else []))
    if needed:
        found = _keys_of(needed, groups)
        share = max(course.watch.share("overflow", key) for key in found)
        why = f"{percent(share)} stop at the largest number ({named(found)}): a gradient is {_in_words(before)}"
        step = min(course.watch.first_step("overflow", key) for key in found)
        fault = Fault("saturation", step, found[0].phase, found[0].path, found[0].operation, why)
        _attempt_all(mending, fault, [each for role in needed for each in remedies[role]], harm.wrong, before)


def find_swamped_sums(mending: Mending, course: Course, harm: Harm) -> None:
    """Note sums in narrow accumulators, where gradients are wrong and sums in FP32 make them right."""
    groups = _narrow_sums(mending.policy)
    before = harm.wrong(mending.policy) if groups else 0.0
    if before <= WRONG:
        return
    needed = _needed(mending, groups, harm.wrong, before)
    if not needed:
        return
    role = needed[0]
    keys = [
        key for key, _ in course.watch.entries()
        if kind_of(key.operation) == SUMS[role] and (key.phase == "backward" or role != "accumulate_gradients")
    ]  # fmt: skip
    alone = _alone(mending, [key for key in keys if key.path], role, harm, before) if len(needed) == 1 else None
    chosen = [each for role in needed for each in groups[role]]
    where = alone or (keys[0] if keys else Key("", "sum", "forward"))
    why = f"sums in few digits lose what they are to add: a gradient is {_in_words(before)}"
    fault = Fault("swamped sums", 0, where.phase, where.path, where.operation, why)
    remedies = chosen if alone is None else [Remedy(alone.path, "", role, FP32)]
    _attempt_all(mending, fault, remedies, harm.wrong, before)


def find_zero_gradients(mending: Mending, harm: Harm) -> None:
    """Note gradients that are zero where those of the reference are not, though nothing that underflows explains it."""
    before = harm.gone(mending.policy)
    if before <= GONE:
        return
    roles = (*GOING_BACK, *GOING_FORWARD)
    remedies = {role: (Remedy("*", "", role, FP32),) for role in roles} | _narrow_sums(mending.policy)
    needed = _needed(mending, remedies, harm.gone, before)
    if needed:
        path = harm.worst_path(mending.policy)
        why = f"{before:.0%} of a gradient is exactly 0, and not under the reference"
        fault = Fault("zero gradients", 0, "backward", path, "", why)
        _attempt_all(mending, fault, [each for role in needed for each in remedies[role]], harm.gone, before)


def _in_words(wrong: float) -> str:
    """How wrong a gradient is."""
    return f"wrong by {wrong:.0%}" if wrong < float("inf") else "not finite"


def _often(mending: Mending, course: Course, kind: str, limit: float) -> list[Key]:
    """Where so many results have an event going forward or back, and more than twice as many as under the reference."""
    watch, exact = course.watch, mending.exact.watch
    shares = {key: watch.share(kind, key) for key, _ in watch.entries() if key.phase != "update"}
    return [key for key, share in shares.items() if share > limit and share > 2 * exact.share(kind, key)]


def _alike(roles: Iterable[str]) -> list[str]:
    """All roles of the phases that these are of."""
    phases = (GOING_BACK, GOING_FORWARD)
    return [role for phase in phases if any(role in phase for role in roles) for role in phase]


def _by_role(keys: Sequence[Key], seen: Sequence[Key]) -> Groups:
    """These keys by the roles that mend them."""
    groups: Groups = {}
    for key in keys:
        found = remedy(key, seen, is_fp32=False)
        if found is not None:
            groups.setdefault(found.role, []).append((key, found))
    return groups


def _keys_of(roles: Iterable[str], groups: Groups) -> list[Key]:
    """What was counted of these roles; of the first role of all where nothing was."""
    found = [key for role in roles for key, _ in groups.get(role, ())]
    return found or [key for key, _ in next(iter(groups.values()))]


def _needed(mending: Mending, remedies: Remedies, measure: Measure, before: float) -> list[str]:
    """The roles without whose remedies the harm is not halved, where those of all roles together halve it."""

    def halves(roles: Sequence[str]) -> bool:
        policy = mending.remedied(mending.policy, [each for role in roles for each in remedies[role]])
        try:
            return policy is not None and measure(policy) < before / 2
        except ValueError:  # as of a format that a matrix unit does not take
            return False

    roles = list(remedies)
    if not roles or not halves(roles):
        return []
    for role in reversed(list(remedies)):
        others = [other for other in roles if other != role]
        if others and halves(others):
            roles = others
    return roles


def _attempt_all(mending: Mending, fault: Fault, remedies: Sequence[Remedy], measure: Measure, before: float) -> None:
    """Note a fault with its remedies, verified if training again gives finite numbers, and the harm is halved."""

    def is_mended(again: Course, policy: Policy) -> bool:
        return again.watch.first is None and measure(policy) < before / 2

    mending.attempt(fault, [remedies], is_mended)


def _scale(mending: Mending, measure: Measure, before: float) -> str:
    """The scale of the loss, in words, that does most against the harm, if one halves it."""
    best = min(SCALES, key=lambda scale: measure(mending.policy, scale))
    return f"a loss scale of {best:.0f}" if measure(mending.policy, best) < before / 2 else ""


def _alone(mending: Mending, keys: Sequence[Key], role: str, harm: Harm, before: float) -> Key | None:
    """The layer whose sums alone do the harm, if there is one."""
    for key in {key.path: key for key in keys}.values():
        policy = mending.remedied(mending.policy, [Remedy(key.path, "", role, FP32)])
        if policy is not None and harm.wrong(policy) < before / 2:
            return key
    return None


def _narrow_sums(policy: Policy) -> dict[str, tuple[Remedy, ...]]:
    """The remedies of the roles of sums that are made in less than FP32's precision."""
    return {role: (Remedy("*", "", role, FP32),) for role in SUMS if _is_narrow(policy, role)}


def _is_narrow(policy: Policy, role: str) -> bool:
    """Whether sums of the role are made in less than FP32's precision anywhere."""
    recipe = policy.recipe()
    values = [getattr(recipe, role), *(dict(each.roles).get(role) for each in policy.overrides)]
    results = [value.result for value in values if value is not None]
    return any(result is not None and result.precision < FP32.precision for result in results)


def _unscaled(given: Remedy, policy: Policy) -> Remedy:
    """The remedy as it is."""
    return given
