"""Random values of every kind that a policy can contain, for hypothesis."""

from hypothesis import reject
from hypothesis import strategies as st

import simfloat as sf
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.formats.format import SPECIALS, TININESS
from simfloat.policy.overrides import CLASSES, roles_of
from simfloat.policy.roles import ROLES, UPDATES, followers_of
from tests.bits import DETERMINISTIC


@st.composite
def valid(draw, make, *arguments, **options):
    """A value of a call whose arguments are drawn, again where they are refused."""
    for _ in range(10):
        try:
            return make(*map(draw, arguments), **{key: draw(option) for key, option in options.items()})
        except ValueError:
            continue
    reject()


@st.composite
def blocked(draw, depth=3):
    """A sum of sums, some of which are sums of sums."""
    inner, outer = (draw(blocked(depth - 1) if depth and draw(st.booleans()) else plain) for _ in range(2))
    return draw(valid(sf.blocked, st.integers(1, 2**40), st.just(inner), st.just(outer)))


names = st.none() | st.sampled_from(["half", "default", "widest", "bf16", "exact", "nearest", "a 'b' \"c\"", "😀"])
custom = valid(
    sf.Format,
    st.integers(1, 8),
    st.integers(0, 10),
    bias=st.none() | st.integers(-3, 140),
    special=st.sampled_from([*SPECIALS]),
    subnormals=st.booleans(),
    tininess=st.sampled_from(TININESS),
    signed=st.booleans(),
    name=names,
)
p3109 = valid(sf.p3109, st.integers(3, 12), st.integers(1, 8), signed=st.booleans(), extended=st.booleans())
formats = st.sampled_from([*sf.CATALOG.values()]) | custom | p3109

modes = st.sampled_from(DETERMINISTIC) | st.builds(sf.stochastic, st.integers(1, 32), st.sampled_from("ABC"))
roundings = modes | modes.map(lambda mode: mode.saturating())

units = st.sampled_from(
    [
        sf.tensor_core("hopper", sf.BF16),
        sf.tensor_core("hopper"),
        sf.tensor_core("ada", output=sf.FP16),
        sf.tensor_core("hopper", (sf.E4M3, sf.E5M2), sf.FP16),
        sf.tensor_core("blackwell", sf.E2M1, scales=(16, sf.E4M3)),
        sf.tensor_core("ampere", sf.FP64),
        sf.matrix_core("cdna2", sf.BF16, variant="1k"),
        sf.matrix_core("cdna3", (sf.E4M3FNUZ, sf.E5M2FNUZ)),
    ]
)
plain = (
    valid(sf.sequential, formats, rounding=roundings, products=st.none() | formats)
    | valid(sf.pairwise, formats, rounding=roundings)
    | valid(sf.kahan, formats, rounding=roundings)
    | valid(sf.fused, st.integers(1, 64), st.integers(1, 40), zero_exponent=st.none() | st.integers(-140, 0))
    | units
)
accumulators = plain | blocked() | st.just(sf.exact)

scalings = st.just(sf.per_tensor()) | st.builds(sf.delayed, st.integers(1, 2000), st.integers(-64, 64))
sizes = st.integers(1, 2**40) | st.tuples(st.integers(1, 200), st.integers(1, 200))
scalings |= valid(
    sf.block, sizes, st.sampled_from([sf.E8M0, sf.E4M3, sf.FP32]), rule=st.none() | st.sampled_from(["floor", "even"])
)

VALUES = {
    "operand format": formats | valid(sf.cast, formats, roundings, scale=st.none() | scalings),
    "result format": formats,
    "storage format": formats,
    "storage format or cast": formats | valid(sf.cast, formats, roundings, scale=st.none() | scalings),
    "accumulator": accumulators,
    "rounding": roundings,
    "update": st.sampled_from(UPDATES),
    "rotation": st.sampled_from([sf.hadamard(), sf.hadamard(64)]),
    "flag": st.booleans(),
}


def values(role):
    """Values of a role, None among them where it has a role to follow."""
    given = VALUES[ROLES[role].kind.name]
    if words := ROLES[role].kind.words:
        given |= st.sampled_from(words)
    return given | st.none() if ROLES[role].follows else given


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
paths = st.sampled_from(["head", "*.weight", "hidden.[01]", "*", ""]) | texts


@st.composite
def policies(draw):
    """A policy: some roles, labels, and overrides with roles that their operation uses."""
    chosen = draw(st.lists(st.sampled_from([*ROLES]), unique=True, max_size=5))
    given = {role: draw(values(role)) for role in {"compute": None, **dict.fromkeys(chosen)}}
    policy = sf.Policy(name=draw(st.none() | texts), source=draw(st.none() | texts), **given)
    for _ in range(draw(st.integers(0, 3))):
        names = draw(st.lists(st.sampled_from([*CLASSES, *OPERATIONS]), max_size=3))
        operation = (tuple(names) if len(names) > 1 or draw(st.booleans()) else names[0]) if names else None
        path = draw(paths if operation is None else st.none() | paths)
        used = {role for name in names for role in roles_of(name)} if names else {*ROLES}
        useful = [role for role in ROLES if not followers_of(role, ROLES).isdisjoint(used)]
        roles = draw(st.lists(st.sampled_from(useful), unique=True, min_size=1, max_size=4))
        policy = policy.override(path, operation=operation, **{role: draw(values(role)) for role in roles})
    return policy
