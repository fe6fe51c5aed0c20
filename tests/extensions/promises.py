"""Run in a copy of the sources with extensions: report as JSON which of them keep their promises."""

import json
import sys
import traceback

from tests.extensions.kernels import KERNELS
from tests.extensions.tables import TABLES
from tests.extensions.trainings import TRAININGS


def kept(extension):
    """Return the error as text; an empty text if there was none."""
    try:
        extension.promise()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    extensions = {"tables": (*TABLES, *TRAININGS), "kernels": KERNELS}[sys.argv[1]]
    print(json.dumps({extension.adds: kept(extension) for extension in extensions}))
