"""The problems: replacements for the models and data of the paper, and their measures."""

from __future__ import annotations

from experiments.bfloat16_models.clicks import clicks
from experiments.bfloat16_models.images import images
from experiments.bfloat16_models.speech import speech
from experiments.bfloat16_models.texts import language, topics
from experiments.task import Task
from experiments.training import Problems

PROBLEMS: Problems = {"images": images, "clicks": clicks, "topics": topics, "language": language, "speech": speech}

TASKS = {
    "images": Task("CNN, digits", "accuracy", "accuracy (%)"),
    "clicks": Task("DLRM, flights", "auc", "AUC (%)"),
    "topics": Task("BERT, topics", "accuracy", "accuracy (%)"),
    "language": Task("GPT, characters", "perplexity", "perplexity"),
    "speech": Task("RNN, speakers", "accuracy", "accuracy (%)"),
}

#: The problems that represent the three models of the paper's Table 1 and Figure 3.
BOTTLENECK = ("images", "clicks", "topics")
