"""RNN, LSTM and GRU: torch's in double precision, and one number at a time in narrow formats."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.nn.against_torch import compare
from tests.nn.narrow import Narrow

RNG = np.random.default_rng(12)
X = RNG.standard_normal((4, 3, 5))
KINDS = {"RNN": sf.nn.RNN, "LSTM": sf.nn.LSTM, "GRU": sf.nn.GRU}


CASES = [
    *[
        (kind, 2, options)
        for kind in KINDS
        for options in (
            {}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}, {"num_layers": 3},
        )
    ],
    *[
        ("LSTM", 4, {"proj_size": 3, **options})
        for options in (
            {}, {"num_layers": 2, "bidirectional": True, "bias": False}, {"num_layers": 2, "batch_first": True},
        )
    ],
    ("RNN", 2, {"nonlinearity": "relu"}),
]  # fmt: skip


@pytest.mark.parametrize("kind, size, options", CASES, ids=str)
def test_recurrent_layers_equal_torchs(kind, size, options):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    ours, theirs = KINDS[kind](5, size, **options), getattr(torch.nn, kind)(5, size, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    compare(ours, theirs, X)
    compare(ours, theirs, X[:, 0])
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    batch = X.shape[0] if options.get("batch_first") else X.shape[1]
    h, c = (RNG.standard_normal((rows, batch, n)) for n in (options.get("proj_size", size), size))

    def run(layer, arguments):
        x, *states = arguments
        return layer(x, states[0] if len(states) == 1 else tuple(states))

    compare(ours, theirs, X, *((h, c) if kind == "LSTM" else (h,)), run=run)


def test_the_projection_of_an_lstm_is_one_more_contraction():
    projected, plain = sf.nn.LSTM(5, 4, proj_size=3, rng=1), sf.nn.LSTM(5, 4, rng=2)
    shared = {name: array for name, array in projected.state_dict().items() if name in ("weight_ih_l0", "bias_ih_l0")}
    plain.load_state_dict(shared | {"bias_hh_l0": projected.bias_hh_l0.data}, strict=False)
    with sf.simulate("bf16-standard"):
        outputs, (h, c) = projected(X[:1])
        whole, (_, wanted) = plain(X[:1])
    product = sf.matmul(
        whole.data[0], projected.weight_hr_l0.data.T, inputs=sf.BF16, accumulate=sf.FP32, output=sf.BF16
    )
    assert_bits(outputs.data[0], product)
    assert_bits(h.data[0], product)
    assert_bits(c.data, wanted.data)
    assert "proj_size=3" in repr(projected)


def scalar_lstm_step(x, h, c, state, n):
    """One example through one LSTM cell."""
    size = len(h)
    given = n.affine(x, state["weight_ih_l0"], state["bias_ih_l0"])
    hidden = n.affine(h, state["weight_hh_l0"], state["bias_hh_l0"])
    gates = [n.add(a, b) for a, b in zip(given, hidden, strict=True)]
    i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
    cell = [n.add(n.multiply(n.sigmoid(f[j]), c[j]), n.multiply(n.sigmoid(i[j]), n.tanh(g[j]))) for j in range(size)]
    return [n.multiply(n.sigmoid(o[j]), n.tanh(cell[j])) for j in range(size)], cell


def scalar_gru_step(x, h, state, n):
    """One example through one GRU cell."""
    size = len(h)
    given = n.affine(x, state["weight_ih_l0"], state["bias_ih_l0"])
    hidden = n.affine(h, state["weight_hh_l0"], state["bias_hh_l0"])
    out = []
    for j in range(size):
        r = n.sigmoid(n.add(given[j], hidden[j]))
        z = n.sigmoid(n.add(given[size + j], hidden[size + j]))
        new = n.tanh(n.add(given[2 * size + j], n.multiply(r, hidden[2 * size + j])))
        out.append(n.add(n.multiply(n.subtract(h[j], new), z), new))
    return out


@pytest.mark.parametrize("format", [sf.BF16, sf.FP16], ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_steps_equal_a_scalar_computation_bit_for_bit(kind, format):
    layer, n = KINDS[kind](3, 2, rng=5), Narrow(format)
    x = sf.round(RNG.standard_normal((3, 2, 3)), format)
    with sf.simulate(sf.Policy(compute=format)):
        out, last = layer(x)
    state = {name: sf.round(value, format).tolist() for name, value in layer.state_dict().items()}
    for example in range(2):
        h, c = [0.0, 0.0], [0.0, 0.0]
        for t in range(3):
            if kind == "LSTM":
                h, c = scalar_lstm_step(x[t, example].tolist(), h, c, state, n)
            else:
                h = scalar_gru_step(x[t, example].tolist(), h, state, n)
            assert_bits(out.data[t, example], h)
        final = last[0] if kind == "LSTM" else last
        assert_bits(final.data[0, example], h)
        if kind == "LSTM":
            assert_bits(last[1].data[0, example], c)


def test_shares_of_the_steps_in_a_gradient_are_added_from_the_last_to_the_first():
    layer, n = sf.nn.RNN(1, 1, bias=False, rng=2), Narrow(sf.BF16)
    x, g = sf.round(RNG.standard_normal((2, 6)), sf.BF16).tolist()
    with sf.simulate("bf16-standard"):
        out, _ = layer(np.reshape(x, (6, 1, 1)))
        out.backward(np.reshape(g, (6, 1, 1)))
    w, u = (float(sf.round(p.data.item(), sf.BF16)) for p in layer.parameters())
    h = [0.0]
    for value in x:
        h.append(n.tanh(n.add(n.dot([value], [w]), n.dot([h[-1]], [u]))))
    shares, gates, behind = [], [], None
    for t in reversed(range(6)):
        total = g[t] if behind is None else n.add(g[t], behind)
        gates.insert(0, n.multiply(total, n.subtract(1.0, n.multiply(h[t + 1], h[t + 1]))))
        shares.append(n.dot([gates[0]], [h[t]]))
        behind = n.dot([gates[0]], [u])
    whole = shares[0]
    for share in shares[1:]:
        whole = n.add(whole, share)
    assert_bits(layer.weight_hh_l0.grad, [[whole]])
    assert_bits(layer.weight_ih_l0.grad, [[n.dot(gates, x)]]), "all steps are one contraction"


def test_dropout_acts_between_layers_while_training():
    layer = sf.nn.GRU(5, 4, num_layers=2, dropout=0.5, rng=0)
    with sf.simulate("fp32", seed=1) as simulation:
        first, second = layer(X)[0].data, layer(X)[0].data
        layer.eval()
        quiet = layer(X)[0].data
        assert_bits(layer(X)[0].data, quiet)
    assert (first != second).any() and (first != quiet).any()
    assert [(entry["path"], entry["operation"], entry["calls"]) for entry in simulation.state["streams"]] == [
        ("", "dropout", 2)
    ]


def test_states_of_zeros_take_the_format_of_the_gates():
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, activations="widest").allow("linear")
    with sf.simulate(policy):
        out, (h, c) = sf.nn.LSTM(5, 2)(X)
    assert out.format == h.format == c.format == sf.BF16


def test_a_batch_may_be_empty():
    with sf.simulate("fp32"):
        out, h = sf.nn.GRU(5, 2)(X[:, :0])
    assert out.shape == (4, 0, 2) and h.shape == (1, 0, 2)


@pytest.mark.parametrize("call, message", [
    (lambda: sf.nn.LSTM(0, 2), "input_size must be a positive integer, got 0"),
    (lambda: sf.nn.GRU(2, 2, num_layers=1.5), "num_layers must be a positive integer, got 1.5"),
    (lambda: sf.nn.RNN(2, 2, nonlinearity="sin"), "nonlinearity must be 'tanh' or 'relu', got 'sin'"),
    (lambda: sf.nn.RNN(2, 2, dropout=2), "dropout is a probability, a number from 0 to 1, got 2"),
    (lambda: sf.nn.RNN(2, 2)(X), r"RNN takes \(L, N, 2\) or \(L, 2\) with at least one step, got \(4, 3, 5\)"),
    (lambda: sf.nn.RNN(5, 2, batch_first=True)(X[0, 0]), r"\(N, L, 5\) or \(L, 5\) with at least one.*got \(5,\)"),
    (lambda: sf.nn.GRU(5, 2)(X[:0]), r"at least one step.*got \(0, 3, 5\)"),
    (lambda: sf.nn.LSTM(5, 2)(X, np.zeros((1, 3, 2))), r"LSTM takes a pair \(h, c\) of initial states, got ndarray"),
    (
        lambda: sf.nn.GRU(5, 2, 2)(X, np.zeros((1, 3, 2))),
        r"An initial state of this GRU is \(2, 3, 2\), got \(1, 3, 2\)",
    ),
    (
        lambda: sf.nn.LSTM(5, 4, proj_size=2)(X, (np.zeros((1, 3, 4)), np.zeros((1, 3, 4)))),
        r"An initial state of this LSTM is \(1, 3, 2\), got \(1, 3, 4\)",
    ),
    (lambda: sf.nn.LSTM(5, 4, proj_size=4), "proj_size must be an integer from 0, .* below hidden_size, 4; got 4"),
    (lambda: sf.nn.GRU(5, 4, proj_size=2), "proj_size must be .* got 2. It is for LSTM only"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call()


def test_layers_print_as_the_calls_that_make_them():
    assert repr(sf.nn.LSTM(3, 2, num_layers=2, batch_first=True)).startswith(
        "LSTM(3, 2, num_layers=2, batch_first=True)"
    )
