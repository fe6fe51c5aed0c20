"""Run one training in the loops of other libraries: python -m benchmarks.workflows --help.

A small model is trained on the same batches in a loop by hand, in Hugging Face's Trainer, with Accelerate and in
Lightning: AdamW, gradients clipped to norm 1, a rate that falls linearly. The command fails unless all trainings end
with the same bits. Libraries that are not installed are skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import click
import torch

import simfloat as sf

RATE, EPOCHS, BATCH = 1e-2, 2, 8


class Classifier(torch.nn.Module):
    """A model in the form that Trainer needs: with labels, it returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return loss and logits."""
        logits = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Samples(torch.utils.data.Dataset):
    """Points in clusters, one cluster per class."""

    def __init__(self, count: int = 64) -> None:
        draws = torch.Generator().manual_seed(0)
        self.labels = torch.arange(count) % 4
        self.x = torch.randn(4, 16, generator=draws)[self.labels] + torch.randn(count, 16, generator=draws)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "labels": self.labels[index]}


def batches() -> torch.utils.data.DataLoader:
    """Return the batches of an epoch, in their order."""
    return torch.utils.data.DataLoader(Samples(), BATCH)


def optimizer_of(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Return the optimizer, and a schedule that lowers its rate to zero within the steps of the training."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    steps = EPOCHS * len(batches())
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (steps - step) / steps)


def by_hand(model: torch.nn.Module, policy: Any) -> None:
    """Train in the loop of PyTorch's tutorials."""
    optimizer, schedule = optimizer_of(model)
    loader = batches()
    with sf.torch.simulate(model, policy):
        for _ in range(EPOCHS):
            for batch in loader:
                optimizer.zero_grad()
                model(**batch)["loss"].backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()


def by_trainer(model: torch.nn.Module, policy: Any) -> None:
    """Train with Hugging Face's Trainer."""
    transformers = importlib.import_module("transformers")

    class InOrder(transformers.Trainer):  # type: ignore[name-defined, misc]
        def _get_train_sampler(self, *_: Any) -> torch.utils.data.Sampler:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    with tempfile.TemporaryDirectory() as place:
        options = transformers.TrainingArguments(
            place, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, max_grad_norm=1.0, report_to="none",
            use_cpu=True, save_strategy="no", disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        trainer = InOrder(model, options, train_dataset=Samples(), optimizers=optimizer_of(model))
        trainer.remove_callback(transformers.PrinterCallback)
        with sf.torch.simulate(model, policy):
            trainer.train()


def by_accelerate(model: torch.nn.Module, policy: Any) -> None:
    """Train with Accelerate; its `prepare` comes before the simulation."""
    accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
    prepared, optimizer, schedule, loader = accelerator.prepare(model, *optimizer_of(model), batches())
    with sf.torch.simulate(prepared, policy):
        for _ in range(EPOCHS):
            for batch in loader:
                optimizer.zero_grad()
                accelerator.backward(prepared(**batch)["loss"])
                accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
                optimizer.step()
                schedule.step()


def by_lightning(model: torch.nn.Module, policy: Any) -> None:
    """Train with Lightning."""
    lightning = importlib.import_module("lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> dict[str, Any]:
            optimizer, schedule = optimizer_of(self.model)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", gradient_clip_val=1.0, **quiet)
    module, loader = Module(), batches()
    with sf.torch.simulate(model, policy):  # not `module`: random bits depend on paths, which start at this module
        trainer.fit(module, loader)


#: Loops of other libraries: the package that each needs, and a function that trains a model under a policy.
WORKFLOWS: dict[str, tuple[str, Callable[[torch.nn.Module, Any], None]]] = {
    "Trainer": ("transformers", by_trainer),
    "Accelerate": ("accelerate", by_accelerate),
    "Lightning": ("lightning", by_lightning),
}


def trained(train: Callable[[torch.nn.Module, Any], None], policy: str) -> bytes:
    """Return the bits of the parameters after a training that starts like all others."""
    torch.manual_seed(0)
    model = Classifier()
    train(model, policy)
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


@click.command()
@click.argument("policies", nargs=-1, metavar="[POLICIES]...", type=click.Choice(list(sf.policies)))
def main(policies: tuple[str, ...]) -> None:
    """Compare trainings under POLICIES, by default fp32, bf16-standard and bf16-stochastic, with a loop by hand."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    differs = False
    for policy in policies or ("fp32", "bf16-standard", "bf16-stochastic"):
        expected = trained(by_hand, policy)
        for name, (package, train) in WORKFLOWS.items():
            if importlib.util.find_spec(package) is None:
                print(f"{policy:16} {name:10} skipped: {package} is not installed")
                continue
            is_same = trained(train, policy) == expected
            differs |= not is_same
            print(f"{policy:16} {name:10} {'the same bits' if is_same else 'OTHER BITS'}", flush=True)
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.workflows")
