"""Small models of the literature, written with the layers of simfloat."""

from experiments.models.bert import BERTClassifier
from experiments.models.dlrm import DLRM
from experiments.models.gpt import GPT
from experiments.models.sequence import LSTMLanguageModel, SequenceClassifier
from experiments.models.speech import SpeechClassifier, SpeechRecognizer
from experiments.models.translation import SequenceToSequence

__all__ = [
    "BERTClassifier",
    "DLRM",
    "GPT",
    "LSTMLanguageModel",
    "SequenceClassifier",
    "SequenceToSequence",
    "SpeechClassifier",
    "SpeechRecognizer",
]
