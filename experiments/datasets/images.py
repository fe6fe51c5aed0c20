"""Images: digits and textures from packages, clothes from a package of Debian, MNIST and CIFAR-10 by download."""

from __future__ import annotations

import gzip
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.downloads import Download, fetch
from experiments.datasets.installed import check_part, installed_file

#: Images as bytes, and their classes.
Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]

TEXTURES = ("brick", "grass", "gravel")


def _mnist(name: str, sha256: str) -> Download:
    return Download(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}", f"sha256:{sha256}", name)


#: By part of the data: images, then labels.
MNIST = {
    "train": (
        _mnist("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        _mnist("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ),
    "test": (
        _mnist("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        _mnist("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
}

#: The folder of Debian's package dataset-fashion-mnist.
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def _fashion(name: str, md5: str) -> Download:
    url = f"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/{name}"
    return Download(url, f"md5:{md5}", f"fashion-{name}")


#: The same for Fashion-MNIST, which publishes MD5 sums.
FASHION_MNIST = {
    "train": (
        _fashion("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        _fashion("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
    ),
    "test": (
        _fashion("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        _fashion("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}

#: The archive of plain bytes: unlike the archive for Python, opening it runs no code.
CIFAR10 = Download(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    "cifar-10-binary.tar.gz",
)
BATCHES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}


@cache
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return 1797 handwritten digits as 64 grey values from 0 to 1, with labels (Alpaydin and Kaynak 1998)."""
    rows = np.loadtxt(installed_file("scikit-learn", "datasets", "data", "digits.csv.gz"), delimiter=",")
    return rows[:, :-1] / 16, rows[:, -1].astype(np.int64)


@cache
def textures() -> dict[str, NDArray[np.float64]]:
    """Return photographs of brick, grass and gravel from scikit-image, each 512 x 512 grey values from 0 to 1."""
    from PIL import Image

    paths = {name: installed_file("scikit-image", "data", f"{name}.png") for name in TEXTURES}
    return {name: np.asarray(Image.open(path), np.float64) / 255 for name, path in paths.items()}


def mnist(part: str = "train", folder: Path | None = None) -> Labelled:
    """Return 60 000 handwritten digits, or 10 000 for ``"test"``, as bytes (N, 28, 28), with labels (LeCun 1998).

    They are downloaded once (11 MB) to `folder`, by default the user's cache folder.
    """
    images, labels = (fetch(download, folder) for download in MNIST[check_part(part)])
    return read_idx(images, labels)


def fashion_mnist(part: str = "train", folder: Path | None = None) -> Labelled:
    """Return 60 000 photographs of clothes, or 10 000 for ``"test"``, as bytes (N, 28, 28), with labels (Xiao 2017).

    They are read from the files of Debian's package dataset-fashion-mnist. Without it, they are downloaded once (31
    MB) to `folder`, by default the user's cache folder.
    """
    downloads = FASHION_MNIST[check_part(part)]
    installed = [DEBIAN / download.name.removeprefix("fashion-") for download in downloads]
    if folder is None and all(path.exists() for path in installed):
        return read_idx(*installed)
    return read_idx(*(fetch(download, folder) for download in downloads))


def read_idx(images: Path, labels: Path) -> Labelled:
    """Read images and labels from the two files of MNIST: images follow 4 numbers of 4 bytes, labels follow 2."""
    pictures, classes = (gzip.decompress(path.read_bytes()) for path in (images, labels))
    return (
        np.frombuffer(pictures, np.uint8, offset=16).reshape(-1, 28, 28),
        np.frombuffer(classes, np.uint8, offset=8).astype(np.int64),
    )


def cifar10(part: str = "train", folder: Path | None = None) -> Labelled:
    """Return 50 000 photographs, or 10 000 for ``"test"``, as bytes (N, 3, 32, 32), with labels (Krizhevsky 2009).

    They are downloaded once (162 MB) to `folder`, by default the user's cache folder.
    """
    names = BATCHES[check_part(part)]
    with tarfile.open(fetch(CIFAR10, folder)) as archive:
        files = [archive.extractfile(f"cifar-10-batches-bin/{name}") for name in names]
        rows = np.frombuffer(b"".join(file.read() for file in files if file), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)
