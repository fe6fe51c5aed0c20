"""Writes to views, and to tensors with views: forward, and backward through autograd's CopySlices."""

import pytest
import torch

from tests.torch.compared import Function, check_format, compare_with_plain

X = torch.linspace(-1, 2, 12).reshape(3, 4)


def a_part(h):
    h[:, :2].mul_(2.0)
    return h


def the_whole_of_a_view(h):
    view = h[:, :2]
    h.mul_(3.0)
    return h.sum(1) + view.sum(1)


def one_part_by_another(h):
    h[0].add_(h[1].relu())
    return h * h


def an_item(h):
    h[:, 1] = h[:, 0] * 3
    return h * h


def a_copy(h):
    made = torch.zeros_like(h).copy_(h * 2)
    made[0].copy_(made[1])
    return made * made


def a_mask(h):
    h[:, 0].masked_fill_(h[:, 0] > 1, 0.5)
    return h * h


def views_of_views(h):
    h.t()[1:3][0].div_(h[0, 0] + 3).clamp_(min=-0.5)
    return h.exp()


def a_view_read_after_a_write_to_its_base(h):
    view, other = h[:, :2], h[:, 2:]
    h.mul_(3.0)
    return view * other + view.t()[:, :1].sum()


def a_part_in_place_and_by_its_name(h):
    h[:, 1] *= 2
    h[0] += h[1]
    return h * h


def a_view_read_after_it_was_written_to(h):
    view = h[:, :2]
    view.mul_(2.0)
    return view * 3 + h[:, 2:] * view.add_(1.0)


def data_by_what_wants_a_gradient(h):
    data = torch.linspace(1, 2, 12, dtype=h.dtype).reshape(3, 4)
    data.mul_(h).div_(h + 3)
    return data


def a_part_of_data(h):
    data = torch.full((3, 8), 2, dtype=h.dtype)
    data[:, 4:].mul_(h)
    return data * data


CASES = (
    a_part, the_whole_of_a_view, a_view_read_after_a_write_to_its_base, one_part_by_another,
    an_item, a_copy, a_mask, views_of_views, a_part_in_place_and_by_its_name, a_view_read_after_it_was_written_to,
    data_by_what_wants_a_gradient, a_part_of_data,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_results_and_gradients_are_those_of_plain_pytorch_in_the_policys_format(case):
    make = Function.of(lambda x: case(x * 1.0))
    compare_with_plain(make, X)
    check_format(make, X)
