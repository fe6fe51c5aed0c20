"""Trees of additions are equal if and only if the orders are equal, and print as sums."""

from itertools import pairwise

import pytest

from simfloat.analysis.reveal.probe import Builder, Tree, subtree
from simfloat.analysis.reveal.readings import Chain, Chunks, Pairs, Runs, readings_of


def tree_of(reading, terms):
    builder = Builder(terms)
    return builder.tree(reading.add(builder, range(terms)))


def test_a_sum_of_two_is_the_same_either_way():
    first, second = Builder(3), Builder(3)
    one = first.tree(first.add([first.add([0, 1]), 2]))
    other = second.tree(second.add([2, second.add([1, 0])]))
    assert one == other == Tree(3, ((0, 1), (3, 2)))


TEXTS = [
    (Chain(), 3, "0 + 1 + 2"),
    (Chain(), 20, "0 + 1 + ... + 19"),
    (Pairs(), 7, "0 + 1 + (2 + 3) + (4 + 5 + 6)"),
    (Chunks(4), 10, "[[[0 1 2 3] 4 5 6 7] 8 9]"),
    (Runs(3, Chain(), Chain()), 8, "0 + 1 + 2 + (3 + 4 + 5) + (6 + 7)"),
    (Runs(4, Chunks(2), Pairs()), 8, "[(0 + 1) 2 3] + [(4 + 5) 6 7]"),
]


@pytest.mark.parametrize(("reading", "terms", "text"), TEXTS, ids=str)
def test_a_tree_shows_its_sum(reading, terms, text):
    assert str(tree_of(reading, terms)) == text


@pytest.mark.parametrize("reading", [reading for reading, _, _ in TEXTS], ids=str)
def test_a_tree_is_read_as_the_order_that_it_was_made_in(reading):
    assert reading in list(readings_of(tree_of(reading, 40)))


def test_a_long_sum_is_shown_short_and_read():
    tree = tree_of(Chain(), 700)
    assert str(tree) == "0 + 1 + ... + 699"
    assert next(readings_of(tree)) == Chain()
    zigzag = Builder(700)
    node = 0
    for leaf in range(1, 700):
        node = zigzag.add([leaf, node] if leaf % 2 else [node, leaf])
    assert zigzag.tree(node) == tree


def test_parents_and_leaves_agree():
    tree = tree_of(Runs(5, Chunks(2), Pairs()), 23)
    leaves, parents = tree.leaves(), tree.parents()
    assert leaves[tree.root] == list(range(23))
    assert all(set(leaves[child]) < set(leaves[parent]) for child, parent in parents.items())
    assert len(parents) == tree.root


def test_a_subtree_numbers_its_leaves_again():
    tree = tree_of(Runs(4, Chain(), Chain()), 12)
    runs = [place for place, leaves in enumerate(tree.leaves()) if len(leaves) == 4]
    assert subtree(tree, range(4), runs[0]) == tree_of(Chain(), 4)
    assert subtree(tree, runs, tree.root) == tree_of(Chain(), 3)
    assert all(a < b for a, b in pairwise(runs))
