"""Real data from installed packages, or downloaded once.

Files are read directly: importing the packages in every worker would take longer than the training. A missing package
or a failed download raises one ValueError that says what to do.
"""

from experiments.datasets.images import cifar10, digits, fashion_mnist, mnist, textures
from experiments.datasets.speech import Utterances, japanese_vowels
from experiments.datasets.tables import Flights, diabetes, flights
from experiments.datasets.text import king_james_bible, pronunciations, python_topics, tiny_shakespeare

__all__ = [
    "Flights",
    "Utterances",
    "cifar10",
    "diabetes",
    "digits",
    "fashion_mnist",
    "flights",
    "japanese_vowels",
    "king_james_bible",
    "mnist",
    "pronunciations",
    "python_topics",
    "textures",
    "tiny_shakespeare",
]
