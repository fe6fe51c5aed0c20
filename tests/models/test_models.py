"""Small models of the literature: torch's values in double precision, the formats of all presets, and learning."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import simfloat as sf
from experiments.models import (
    DLRM,
    GPT,
    BERTClassifier,
    LSTMLanguageModel,
    SequenceClassifier,
    SequenceToSequence,
    SpeechClassifier,
    SpeechRecognizer,
)
from tests.nn.against_torch import compare
from tests.roles import backward_in_roles, keep_numbers

torch = pytest.importorskip("torch", reason="needs torch as an oracle")
nn = torch.nn

RNG = np.random.default_rng(17)
TOKENS = RNG.integers(1, 9, (3, 5))
PADDED = np.where(np.arange(5) < [[5], [3], [1]], TOKENS, 0)
DENSE = RNG.standard_normal((3, 4))
BAGS = [RNG.integers(0, count, (3, n)) for count, n in ((6, 2), (4, 1), (9, 3))]
FRAMES = RNG.standard_normal((3, 5, 4)) * (np.arange(5) < [[5], [3], [1]])[..., np.newaxis]
CLASSES = np.array([0, 2, 1])


def next_tokens(model):
    logits = model(TOKENS[:, :-1])
    return sf.nn.cross_entropy(logits.reshape(-1, 9), TOKENS[:, 1:].reshape(-1))


#: A model, and its loss on a small batch.
MODELS = {
    "gpt": (lambda: GPT(9, 6, 8, layers=2, heads=2, dropout=0.1), next_tokens),
    "bert": (
        lambda: BERTClassifier(9, 6, 8, layers=2, heads=2, classes=3, dropout=0.1),
        lambda model: sf.nn.cross_entropy(model(PADDED, PADDED % 2), CLASSES),
    ),
    "dlrm": (
        lambda: DLRM(4, [6, 4, 9], 3, [5], [6]),
        lambda model: sf.nn.binary_cross_entropy_with_logits(model(DENSE, BAGS), np.array([0.0, 1.0, 1.0])),
    ),
    **{
        kind: (
            lambda kind=kind: SequenceClassifier(9, 4, 5, 3, kind, layers=2, bidirectional=True),
            lambda model: sf.nn.cross_entropy(model(TOKENS), CLASSES),
        )
        for kind in ("RNN", "LSTM", "GRU")
    },
    "speech": (lambda: SpeechClassifier(4, 5, 3, "RNN"), lambda model: sf.nn.cross_entropy(model(FRAMES), CLASSES)),
}


def of_torch(forward, **layers):
    """A model of torch's layers, by their names, and of what it does with them."""

    class Model(torch.nn.Module):
        def forward(self, *inputs):
            return forward(self, *inputs)

    model = Model()
    for name, layer in layers.items():
        setattr(model, name, layer)
    return model


def blocks(norm_first):
    options = dict(dim_feedforward=32, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first)
    return nn.ModuleList(nn.TransformerEncoderLayer(8, 2, **options) for _ in range(2))


def perceptron(*sizes):
    *inner, last = (nn.Linear(*pair) for pair in pairwise(sizes))

    def forward(m, x):
        for layer in m.hidden:
            x = layer(x).relu()
        return m.head(x)

    return of_torch(forward, hidden=nn.ModuleList(inner), head=last)


def decode(m, tokens):
    x = m.token(tokens) + m.position(torch.arange(tokens.shape[1]))
    for block in m.blocks:
        x = block(x, src_mask=torch.ones(tokens.shape[1], tokens.shape[1]).tril() == 0)
    return m.head(m.norm(x))


def a_gpt():
    model = of_torch(
        decode, token=nn.Embedding(9, 8), position=nn.Embedding(6, 8), blocks=blocks(True), norm=nn.LayerNorm(8),
        head=nn.Linear(8, 9, bias=False),
    )  # fmt: skip
    model.head.weight = model.token.weight
    return model


def encode(m, tokens, segments):
    x = m.norm(m.token(tokens) + m.position(torch.arange(tokens.shape[1])) + m.segment(segments))
    for block in m.blocks:
        x = block(x, src_key_padding_mask=tokens == 0)
    return m.classifier(m.pooler(x[:, 0]).tanh())


def both_ends(m, tokens):
    state = m.recurrent(m.token(tokens))[1]
    last = state[0] if isinstance(state, tuple) else state
    return m.head(torch.cat([last[-2], last[-1]], -1))


def attend(m, source, before):
    read, state = m.encoder(m.source(source))
    written, _ = m.decoder(m.target(before), state)
    shares = torch.einsum("nth,nlh->ntl", written, read).softmax(-1)
    return m.head(m.joined(torch.cat([written, torch.einsum("ntl,nlh->nth", shares, read)], -1)).tanh())


def means_before_the_end(m, frames):
    states = m.recurrent(frames)[0]
    return m.head(torch.stack([states[0].mean(0), states[1, :3].mean(0), states[2, 0]]))


def recommend(m, dense, *bags):
    x = m.bottom(dense).relu()
    features = torch.stack([x, *(table(bag) for table, bag in zip(m.tables, bags, strict=True))], 1)
    rows, columns = torch.tril_indices(4, 4, -1)
    return m.top(torch.cat([x, (features @ features.transpose(1, 2))[:, rows, columns]], 1)).reshape(-1)


def recurrent(kind, inputs=4, **options):
    return getattr(nn, kind)(inputs, 5, batch_first=True, **options)


#: A model, the same one of torch's layers, and its inputs.
TWINS = {
    "a GPT": lambda: (GPT(9, 6, 8, layers=2, heads=2), a_gpt(), TOKENS),
    "a BERT": lambda: (
        BERTClassifier(9, 6, 8, layers=2, heads=2, classes=3),
        of_torch(
            encode, token=nn.Embedding(9, 8, padding_idx=0), position=nn.Embedding(6, 8), segment=nn.Embedding(2, 8),
            norm=nn.LayerNorm(8), blocks=blocks(False), pooler=nn.Linear(8, 8), classifier=nn.Linear(8, 3),
        ),
        PADDED, PADDED % 2,
    ),
    **{
        f"a sequence classifier by {kind}": lambda kind=kind: (
            SequenceClassifier(9, 4, 5, 3, kind, layers=2, bidirectional=True),
            of_torch(
                both_ends, token=nn.Embedding(9, 4), head=nn.Linear(10, 3),
                recurrent=recurrent(kind, num_layers=2, bidirectional=True),
            ),
            TOKENS,
        )
        for kind in ("RNN", "LSTM", "GRU")
    },
    "a language model": lambda: (
        LSTMLanguageModel(9, 4, 5),
        of_torch(
            lambda m, tokens: m.head(m.recurrent(m.token(tokens))[0]), token=nn.Embedding(9, 4),
            recurrent=recurrent("LSTM"), head=nn.Linear(5, 9),
        ),
        TOKENS,
    ),
    "a recognizer of speech": lambda: (
        SpeechRecognizer(4, 5, 3),
        of_torch(
            lambda m, frames: m.head(m.recurrent(frames)[0]).log_softmax(-1), recurrent=recurrent("GRU"),
            head=nn.Linear(5, 3),
        ),
        FRAMES,
    ),
    "a sequence to a sequence": lambda: (
        SequenceToSequence(9, 7, 4, 5),
        of_torch(
            attend, source=nn.Embedding(9, 4), target=nn.Embedding(7, 4), encoder=recurrent("LSTM"),
            decoder=recurrent("LSTM"), joined=nn.Linear(10, 5), head=nn.Linear(5, 7),
        ),
        TOKENS, TOKENS[:, :4] % 7,
    ),
    "a classifier of speech, by the mean of states before the end": lambda: (
        SpeechClassifier(4, 5, 3),
        of_torch(means_before_the_end, recurrent=recurrent("GRU"), head=nn.Linear(5, 3)),
        FRAMES,
    ),
    "a DLRM": lambda: (
        DLRM(4, [6, 4, 9], 3, [5], [6]),
        of_torch(
            recommend, bottom=perceptron(4, 5, 3), top=perceptron(9, 6, 1),
            tables=nn.ModuleList(nn.EmbeddingBag(count, 3, mode="sum") for count in (6, 4, 9)),
        ),
        DENSE, *BAGS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_a_model_equals_torchs(name):
    ours, theirs, *inputs = TWINS[name]()

    def run(model, given):
        return model(given[0], given[1:]) if isinstance(model, DLRM) else model(*given)

    compare(ours, theirs, *inputs, run=run)


#: Each preset with two models or more, and each model with two presets or more.
FUSED = [
    ("bf16-standard", "gpt"), ("fp16-master", "bert"), ("amp-bf16", "dlrm"), ("fp8-hybrid", "GRU"), ("mxfp8", "gpt"),
    ("bf16-standard", "dlrm"), ("fp16-master", "GRU"), ("amp-bf16", "bert"), ("fp8-hybrid", "bert"), ("mxfp8", "GRU"),
]  # fmt: skip


@pytest.mark.parametrize("preset, name", FUSED)
def test_inside_of_fused_composites_too_every_tensor_has_the_format_of_its_role(name, preset, monkeypatch):
    keep_numbers(monkeypatch)
    make, loss_of = MODELS[name]
    with sf.simulate(replace(sf.policies[preset], fused=True)):
        backward_in_roles(loss_of(make()))


@pytest.mark.parametrize("number, name", list(enumerate(MODELS)))
def test_models_learn_a_small_batch(number, name):
    make, loss_of = MODELS[name]
    model = make()
    optimizer = sf.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    with sf.simulate(("bf16-standard", "amp-bf16")[number % 2]):
        for _ in range(15):
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-3:]) < 0.6 * losses[0]


def test_tied_weights_are_one_parameter_of_the_embedding_and_of_the_head():
    model = GPT(9, 6, 8, layers=1, heads=2)
    assert "head.weight" not in dict(model.named_parameters()) and model.head.weight is model.token.weight
    with sf.simulate("bf16-standard", observer=(recorder := sf.Recorder())):
        next_tokens(model).backward()
    assert recorder.counts("token.weight", "backward")["total"] == 72
    assert recorder.counts("head", "forward")["total"] > 0


def test_a_decoder_does_not_see_later_positions():
    model = GPT(9, 6, 8, layers=2, heads=2)
    other = TOKENS.copy()
    other[:, 3:] = 1
    with sf.simulate("bf16-standard"):
        assert (model(TOKENS).data[:, :3] == model(other).data[:, :3]).all()
        assert (model(TOKENS).data[:, 3:] != model(other).data[:, 3:]).any()


def test_padding_changes_nothing():
    model = BERTClassifier(9, 6, 8, layers=2, heads=2, classes=3)
    with sf.simulate("bf16-standard"):
        long = model(np.array([[3, 4, 0, 0, 0]]))
        short = model(np.array([[3, 4]]))
    assert (long.data == short.data).all()


def test_a_training_with_dropout_continues_with_the_same_masks(tmp_path):
    batches = [(TOKENS[:, :-1], TOKENS[:, 1:])] * 6

    def trained(folder, steps):
        model = GPT(9, 6, 8, layers=1, heads=2, dropout=0.2)
        optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        with sf.simulate("bf16-stochastic", seed=4):
            options = dict(checkpoint=folder, every=2, resume=folder)
            sf.train.fit(model, sf.nn.cross_entropy, batches[:steps], optimizer, **options)
        return model

    whole = trained(tmp_path / "whole", 6)
    trained(tmp_path / "parts", 4)
    for one, other in zip(whole.parameters(), trained(tmp_path / "parts", 6).parameters(), strict=True):
        assert (one.data == other.data).all()
