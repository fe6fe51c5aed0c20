"""Training steps of models of other libraries, with random weights: python -m benchmarks.models --help.

Small models of transformers, timm, torchvision and diffusers run forward, backward and a step of AdamW under a policy,
with one thread. If a library is not installed, its models are skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import torch

import simfloat as sf
from benchmarks.measure import seconds, threads

#: The sizes of a model of transformers, by their names in its configuration.
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
WORDS = {"vocab_size": 128, "pad_token_id": 0}
HALF = {"num_key_value_heads": 2, **SIZES, **WORDS}

#: Language models: the class, the class of its configuration, and its options.
LANGUAGE = {
    "BertForMaskedLM": ("BertConfig", {**SIZES, **WORDS}),
    "RobertaForMaskedLM": ("RobertaConfig", {**SIZES, **WORDS}),
    "DistilBertForMaskedLM": ("DistilBertConfig", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, **WORDS}),
    "AlbertForMaskedLM": ("AlbertConfig", {**SIZES, **WORDS, "embedding_size": 32}),
    "ElectraForMaskedLM": ("ElectraConfig", {**SIZES, **WORDS, "embedding_size": 32}),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", {**SIZES, **WORDS}),
    "OPTForCausalLM": (
        "OPTConfig", {**SIZES, **WORDS, "ffn_dim": 128, "word_embed_proj_dim": 64, "max_position_embeddings": 64}
    ),
    "LlamaForCausalLM": ("LlamaConfig", HALF),
    "MistralForCausalLM": ("MistralConfig", HALF),
    "Qwen2ForCausalLM": ("Qwen2Config", HALF),
    "Qwen3ForCausalLM": ("Qwen3Config", {**HALF, "head_dim": 16}),
    "GemmaForCausalLM": ("GemmaConfig", {**HALF, "head_dim": 16}),
    "PhiForCausalLM": ("PhiConfig", HALF),
    "MixtralForCausalLM": ("MixtralConfig", {**HALF, "num_local_experts": 4}),
    "MambaForCausalLM": ("MambaConfig", {**SIZES, **WORDS, "state_size": 8}),
    "T5ForConditionalGeneration": (
        "T5Config",
        {
            "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0,
            **WORDS,
        },
    ),
    "BartForConditionalGeneration": (
        "BartConfig",
        {
            "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 128,
            "max_position_embeddings": 64,
        },
    ),
}  # fmt: skip

#: Models of transformers for images of 32 x 32, with ten classes.
PICTURES = {
    "ViTForImageClassification": ("ViTConfig", {**SIZES, "image_size": 32, "patch_size": 8, "num_labels": 10}),
    "DeiTForImageClassification": ("DeiTConfig", {**SIZES, "image_size": 32, "patch_size": 8, "num_labels": 10}),
    "ConvNextForImageClassification": (
        "ConvNextConfig", {"hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 1, 1], "num_labels": 10}
    ),
    "ResNetForImageClassification": (
        "ResNetConfig",
        {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 1, 1], "num_labels": 10},
    ),
}  # fmt: skip

#: Models by name for images of 64 x 64, with ten classes.
NAMED = {
    "timm": ("resnet18", "vit_tiny_patch16_224", "mixer_s32_224", "convnext_atto", "mobilenetv3_small_050"),
    "torchvision": ("resnet18", "mobilenet_v2", "squeezenet1_1"),
}

#: A function that computes the loss of a model.
Loss = Callable[[], Any]


class Case(NamedTuple):
    """A model of a library, and a function that creates it with its loss."""

    library: str
    name: str
    make: Callable[[], tuple[torch.nn.Module, Loss]]


def cases() -> Iterator[Case]:
    """Yield all models."""
    for name, (config, options) in LANGUAGE.items():
        yield Case(
            "transformers", name, lambda name=name, config=config, options=options: _words(name, config, options)
        )
    for name, (config, options) in PICTURES.items():
        yield Case(
            "transformers", name, lambda name=name, config=config, options=options: _images(name, config, options)
        )
    for library, names in NAMED.items():
        for name in names:
            yield Case(library, name, lambda library=library, name=name: _named(library, name))
    yield Case("diffusers", "UNet2DModel", _denoiser)


def _of_transformers(name: str, config: str, options: dict[str, Any]) -> torch.nn.Module:
    library = importlib.import_module("transformers")
    model: torch.nn.Module = getattr(library, name)(getattr(library, config)(**options))
    return model.train()


def _words(name: str, config: str, options: dict[str, Any]) -> tuple[torch.nn.Module, Loss]:
    model, tokens = _of_transformers(name, config, options), torch.randint(3, 128, (4, 32))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def _images(name: str, config: str, options: dict[str, Any]) -> tuple[torch.nn.Module, Loss]:
    model, images = _of_transformers(name, config, options), torch.randn(4, 3, 32, 32)
    return model, lambda: model(pixel_values=images, labels=torch.arange(4)).loss


def _named(library: str, name: str) -> tuple[torch.nn.Module, Loss]:
    if library == "timm":
        options = {"img_size": 64} if name.startswith(("vit", "mixer")) else {}
        model = importlib.import_module("timm").create_model(name, num_classes=10, **options)
    else:
        model = getattr(importlib.import_module("torchvision.models"), name)(num_classes=10)
    images = torch.randn(4, 3, 64, 64)
    return model.train(), lambda: torch.nn.functional.cross_entropy(model(images), torch.arange(4))


def _denoiser() -> tuple[torch.nn.Module, Loss]:
    model = importlib.import_module("diffusers").UNet2DModel(
        sample_size=16, block_out_channels=(32, 32), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    images, noise = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16)
    return model.train(), lambda: torch.nn.functional.mse_loss(model(images, torch.tensor([3, 7])).sample, noise)


def measured(case: Case, policy: str) -> str:
    """Return a row of the table: parameters, processor time of a step and ratio to PyTorch; or why there is none."""
    if importlib.util.find_spec(case.library) is None:
        return "skipped: not installed"
    torch.manual_seed(0)
    try:
        model, loss = case.make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        plain = _seconds(optimizer, loss)
        with sf.torch.simulate(model, policy):
            simulated = _seconds(optimizer, loss)
    except (ImportError, RuntimeError) as error:
        return f"skipped: {str(error).splitlines()[0][:90]}"
    except ValueError as error:
        return f"refused: {str(error).splitlines()[0][:90]}"
    count = sum(p.numel() for p in model.parameters())
    return f"{count:11,d}  {1e3 * simulated:8.0f} ms  {simulated / plain:5.1f}"


def _seconds(optimizer: torch.optim.Optimizer, loss: Loss) -> float:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return seconds(step, least_total=0.0, least_runs=3, clock=time.process_time)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAMES]...", type=click.Choice(sorted({case.name for case in cases()})))
@click.option(
    "--policy", metavar="NAME", type=click.Choice(list(sf.policies)), default="bf16-standard",
    help="The policy of the steps.",
)  # fmt: skip
def main(names: tuple[str, ...], policy: str) -> None:
    """Time steps of all models of other libraries, or of the models NAMES, and compare them with PyTorch."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'library':13} {'model':31} {'parameters':>11}  {'a step':>11}  times torch")
    with threads(1):
        for case in cases():
            if not names or case.name in names:
                print(f"{case.library:13} {case.name:31} {measured(case, policy)}", flush=True)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.models")
