"""Small models of the literature: torch's values in double precision, the formats of all presets, and learning."""

from dataclasses import replace

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


def torch_models():
    """The same models with torch's layers, under the same names."""
    import torch
    from torch import nn

    def blocks(norm_first):
        options = dict(dim_feedforward=32, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first)
        return nn.ModuleList(nn.TransformerEncoderLayer(8, 2, **options) for _ in range(2))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position, self.blocks = nn.Embedding(9, 8), nn.Embedding(6, 8), blocks(True)
            self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 9, bias=False)
            self.head.weight = self.token.weight

        def forward(self, tokens):
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
            mask = torch.ones(tokens.shape[1], tokens.shape[1]).tril() == 0
            for block in self.blocks:
                x = block(x, src_mask=mask)
            return self.head(self.norm(x))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(9, 8, padding_idx=0), nn.Embedding(6, 8)
            self.segment, self.norm, self.blocks = nn.Embedding(2, 8), nn.LayerNorm(8), blocks(False)
            self.pooler, self.classifier = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, tokens, segments):
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1])) + self.segment(segments)
            x = self.norm(x)
            for block in self.blocks:
                x = block(x, src_key_padding_mask=tokens == 0)
            return self.classifier(self.pooler(x[:, 0]).tanh())

    return Decoder, Encoder


def test_a_gpt_equals_torchs():
    pytest.importorskip("torch", reason="needs torch as an oracle")
    compare(GPT(9, 6, 8, layers=2, heads=2), torch_models()[0](), TOKENS)


def test_a_bert_equals_torchs():
    pytest.importorskip("torch", reason="needs torch as an oracle")
    compare(BERTClassifier(9, 6, 8, layers=2, heads=2, classes=3), torch_models()[1](), PADDED, PADDED % 2)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_a_sequence_classifier_equals_torchs(kind):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token = torch.nn.Embedding(9, 4)
            self.recurrent = getattr(torch.nn, kind)(4, 5, 2, batch_first=True, bidirectional=True)
            self.head = torch.nn.Linear(10, 3)

        def forward(self, tokens):
            _, state = self.recurrent(self.token(tokens))
            last = state[0] if isinstance(state, tuple) else state
            return self.head(torch.cat([last[-2], last[-1]], -1))

    compare(SequenceClassifier(9, 4, 5, 3, kind, layers=2, bidirectional=True), Classifier(), TOKENS)


def test_models_that_tell_something_at_every_step_equal_torchs():
    pytest.importorskip("torch", reason="needs torch as an oracle")
    from torch import nn

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.recurrent = nn.Embedding(9, 4), nn.LSTM(4, 5, batch_first=True)
            self.head = nn.Linear(5, 9)

        def forward(self, tokens):
            return self.head(self.recurrent(self.token(tokens))[0])

    class Recognizer(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, frames):
            return self.head(self.recurrent(frames)[0]).log_softmax(-1)

    compare(LSTMLanguageModel(9, 4, 5), Language(), TOKENS)
    compare(SpeechRecognizer(4, 5, 3), Recognizer(), FRAMES)


def test_a_sequence_to_sequence_model_equals_torchs():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    from torch import nn

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(9, 4), nn.Embedding(7, 4)
            self.encoder, self.decoder = (nn.LSTM(4, 5, batch_first=True) for _ in range(2))
            self.joined, self.head = nn.Linear(10, 5), nn.Linear(5, 7)

        def forward(self, source, before):
            read, state = self.encoder(self.source(source))
            written, _ = self.decoder(self.target(before), state)
            shares = torch.einsum("nth,nlh->ntl", written, read).softmax(-1)
            attended = torch.einsum("ntl,nlh->nth", shares, read)
            return self.head(self.joined(torch.cat([written, attended], -1)).tanh())

    compare(SequenceToSequence(9, 7, 4, 5), Attending(), TOKENS, TOKENS[:, :4] % 7)


def test_a_speech_classifier_equals_torchs_on_the_mean_of_states_before_the_end():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.head = torch.nn.GRU(4, 5, batch_first=True), torch.nn.Linear(5, 3)

        def forward(self, frames):
            states = self.recurrent(frames)[0]
            return self.head(torch.stack([states[0].mean(0), states[1, :3].mean(0), states[2, 0]]))

    compare(SpeechClassifier(4, 5, 3), Classifier(), FRAMES)


def test_a_dlrm_equals_torchs():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    from torch import nn

    class MLP(nn.Module):
        def __init__(self, sizes):
            super().__init__()
            *inner, last = zip(sizes[:-1], sizes[1:], strict=True)
            self.hidden, self.head = nn.ModuleList(nn.Linear(*pair) for pair in inner), nn.Linear(*last)

        def forward(self, x):
            for layer in self.hidden:
                x = layer(x).relu()
            return self.head(x)

    class Recommender(nn.Module):
        def __init__(self):
            super().__init__()
            self.bottom = MLP([4, 5, 3])
            self.tables = nn.ModuleList(nn.EmbeddingBag(count, 3, mode="sum") for count in (6, 4, 9))
            self.top = MLP([9, 6, 1])

        def forward(self, dense, *bags):
            x = self.bottom(dense).relu()
            features = torch.stack([x, *(table(bag) for table, bag in zip(self.tables, bags, strict=True))], 1)
            rows, columns = torch.tril_indices(4, 4, -1)
            products = (features @ features.transpose(1, 2))[:, rows, columns]
            return self.top(torch.cat([x, products], 1)).reshape(-1)

    def run(model, given):
        return model(*given) if isinstance(model, torch.nn.Module) else model(given[0], given[1:])

    compare(DLRM(4, [6, 4, 9], 3, [5], [6]), Recommender(), DENSE, *BAGS, run=run)


@pytest.mark.parametrize("preset", ["bf16-standard", "fp16-master", "amp-bf16", "fp8-hybrid", "mxfp8"])
@pytest.mark.parametrize("name", ["gpt", "bert", "dlrm", "GRU"])
def test_inside_of_fused_composites_too_every_tensor_has_the_format_of_its_role(name, preset, monkeypatch):
    keep_numbers(monkeypatch)
    make, loss_of = MODELS[name]
    with sf.simulate(replace(sf.policies[preset], fused=True)):
        backward_in_roles(loss_of(make()))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("preset", ["bf16-standard", "amp-bf16"])
def test_models_learn_a_small_batch(name, preset):
    make, loss_of = MODELS[name]
    model = make()
    optimizer = sf.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    with sf.simulate(preset):
        for _ in range(25):
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
