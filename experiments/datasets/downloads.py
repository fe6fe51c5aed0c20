"""Files that are downloaded once, checked by their checksums, and kept in a cache folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Download(NamedTuple):
    """A file on the network: its address, its checksum such as "sha256:440f...", and its name in the cache."""

    url: str
    checksum: str
    name: str


#: Seconds without an answer after which a server counts as unreachable.
PATIENCE = 30


def fetch(download: Download, folder: Path | None = None) -> Path:
    """Return the path of a downloaded file with the expected checksum.

    An undamaged file in `folder` (by default the user's cache folder) is not downloaded again; a damaged one is
    replaced. Raises ValueError if pooch is not installed, if the file cannot be downloaded or written, or if another
    file is received, which is not kept.
    """
    try:
        import pooch
    except ImportError:
        raise ValueError("Data are downloaded by pooch, which is not installed: pip install 'simfloat[data]'") from None
    path = (folder or Path(pooch.os_cache("simfloat"))) / download.name
    with one_reason(download, path):
        pooch.retrieve(
            download.url,
            download.checksum,
            fname=path.name,
            path=path.parent,
            downloader=pooch.HTTPDownloader(timeout=PATIENCE),
        )
    return path


@contextmanager
def one_reason(download: Download, path: Path) -> Iterator[None]:
    """Turn every error within the block into a ValueError that says what to do."""
    from requests import RequestException

    by_hand = f"Or save the file as {path} yourself."
    try:
        yield
    except RequestException as error:  # also raised as an OSError
        raise ValueError(
            f"Cannot download {download.url}: {error}. Try again with a working connection. {by_hand}"
        ) from None
    except ValueError as error:
        raise ValueError(f"The file from {download.url} is not the expected one: {error} {by_hand}") from None
    except OSError as error:
        raise ValueError(f"Cannot keep {download.url} as {path}: {error}. Make room, or repair the folder.") from None
