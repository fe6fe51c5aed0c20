"""A program of three processes with DistributedDataParallel; it prints the results of each as JSON."""

import json
import os
import sys
from importlib import import_module

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import simfloat as sf
from simfloat.formats import Format
from simfloat.policy import Policy

REPLICAS = 3
POLICY = Policy(compute=sf.FP32, all_reduce=Format(8, 4)).override("module.2.weight", all_reduce=Format(8, 2))


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def batch_of(rank):
    return torch.linspace(-1, 1, 18).reshape(3, 6)[rank].reshape(2, 3).sin()


def loss_of(model, rank):
    return model(batch_of(rank)).square().mean()


def train(rank, folder):
    store = distributed.FileStore(os.path.join(folder, "store"), REPLICAS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=REPLICAS)
    model, recorder = DistributedDataParallel(model_of()), sf.Recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with sf.torch.simulate(model, POLICY, observer=recorder) as run:
        loss_of(model, rank).backward()
        first = [p.grad.tolist() for p in model.parameters()]
        counted = recorder.counts("module.0.weight.all_reduce")["total"]
        optimizer.step()
        optimizer.zero_grad()
        loss_of(model, rank).backward()
        optimizer.step()
        by_hand = torch.full((7,), 1.0 + rank / 8) / 3  # a number for all, as of a metric
        distributed.all_reduce(by_hand)
        refused = ""
        try:
            distributed.all_reduce(by_hand, distributed.ReduceOp.MAX)
        except ValueError as error:
            refused = str(error)
    static = DistributedDataParallel(model_of(), static_graph=True)
    with sf.torch.simulate(static, POLICY):
        loss_of(static, rank).backward()
    found = {
        "static": [p.grad.tolist() for p in static.parameters()],
        "first": first, "counted": counted, "by_hand": by_hand.tolist(), "refused": refused,
        "last": [p.tolist() for p in model.parameters()],
        "by PyTorch": [row[0] for row in run.table().rows if row[1] in ("PyTorch", "refused")],
    }  # fmt: skip
    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
        json.dump(found, file)
    distributed.destroy_process_group()


if __name__ == "__main__":
    # What all processes need is loaded once: DistributedDataParallel imports 800 modules of PyTorch's compiler.
    import_module("torch._dynamo")
    model, children = model_of(), []
    with sf.torch.simulate(model, "fp32"), torch.no_grad():
        loss_of(model, 0)
    for rank in range(1, REPLICAS):
        child = os.fork()
        if child == 0:
            train(rank, sys.argv[1])
            os._exit(0)
        children.append(child)
    train(0, sys.argv[1])
    for child in children:
        os.waitpid(child, 0)
