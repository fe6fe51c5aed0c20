"""Models of the literature in small, written with the layers of simfloat."""

from experiments.models.bert import BERTClassifier
from experiments.models.dlrm import DLRM
from experiments.models.gpt import GPT
from experiments.models.sequence import SequenceClassifier
from experiments.models.speech import SpeechClassifier

__all__ = ["BERTClassifier", "DLRM", "GPT", "SequenceClassifier", "SpeechClassifier"]
