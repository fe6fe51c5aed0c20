"""Check tables of calls that raise ValueError, and repeat a test with several numbers of threads."""

import re

import simfloat as sf


def assert_refused(*cases):
    """Check that each call of the rows (call, words) raises ValueError, with words that this pattern matches."""
    for call, words in cases:
        try:
            call()
        except ValueError as error:
            assert re.search(words, str(error)), f"{words!r} is not in {error}"
        else:
            raise AssertionError(f"no ValueError with {words!r} was raised")


def with_threads(*counts):
    """Set and yield each number of threads; restore the number from before at the end."""
    before = sf.get_threads()
    try:
        for count in counts:
            sf.set_threads(count)
            yield count
    finally:
        sf.set_threads(before)
