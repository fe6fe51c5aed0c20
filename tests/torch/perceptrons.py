"""A perceptron of two layers in PyTorch, and the same one in simfloat."""

import torch
from torch import nn

import simfloat as sf


class Theirs(nn.Module):
    def __init__(self, inputs, hidden, outputs, activation="relu"):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
        self.activation = activation

    def forward(self, x):
        return self.second(getattr(self.first(x), self.activation)())


class Ours(sf.nn.Module):
    def __init__(self, model):
        super().__init__()
        layers = model.first, model.second
        self.first, self.second = (sf.nn.Linear(layer.in_features, layer.out_features) for layer in layers)
        self.load_state_dict({key: value.numpy().copy() for key, value in model.state_dict().items()})
        self.activation = model.activation

    def forward(self, x):
        return self.second(getattr(self.first(x), self.activation)())
