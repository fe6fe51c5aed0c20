"""Tables of calls that are refused, and numbers of threads one after the other."""

import re

import simfloat as sf


def assert_refused(*cases):
    """Require a ValueError with these words of the call in every row (call, words)."""
    for call, words in cases:
        try:
            call()
        except ValueError as error:
            assert re.search(words, str(error)), f"{words!r} is not in {error}"
        else:
            raise AssertionError(f"nothing is refused with {words!r}")


def with_threads(*counts):
    """Yield these numbers of threads while the package has so many; afterwards it has its own again."""
    before = sf.get_threads()
    try:
        for count in counts:
            sf.set_threads(count)
            yield count
    finally:
        sf.set_threads(before)
