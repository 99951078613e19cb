"""Groups that ranks name in different ways.

    groups_test.py BUILD_FOLDER
"""

import datetime
import unittest

import ranks  # noqa: F401
from ranks import SwitchTest, raised

import torch
import torch.distributed as dist


def sums(rank, size, lists, backend=None):
    """Returns the sum of 10 ** rank in each of the groups of which this rank names the members, and the
    sum of a message from each pair's first rank."""
    found = []
    for members in lists[rank]:
        group = dist.new_group(members, backend=backend, timeout=datetime.timedelta(seconds=30 + rank))
        if rank not in members:
            continue
        tensor = torch.tensor([10.0 ** rank])
        dist.all_reduce(tensor, group=group)
        found.append(tensor.item())
        message = torch.tensor([float(members[0])])
        if rank == members[0]:
            dist.send(message, members[1], group=group)
        elif rank == members[1]:
            message.zero_()
            dist.recv(message, members[0], group=group)
        found.append(message.item())
        dist.monitored_barrier(group)
    return found


def complaint(rank, size, lists):
    """Returns what the first new_group with a complaint says; later ones work."""
    texts = [raised(dist.new_group, members) for members in lists[rank]]
    group = dist.new_group(range(size))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor[0] == size
    return next((text for text in texts if text), None)


class GroupsTest(SwitchTest):
    def test_several_groups_in_one_call(self):
        """As the ranks mean it."""
        pairs = [[[0, 1]], [[0, 1]], [[2, 3]], [[2, 3]]]
        expected = [[11.0, 0.0], [11.0, 0.0], [1100.0, 2.0], [1100.0, 2.0]]
        for backend in (None, "ina"):
            self.assertEqual(self.run_ranks(4, sums, pairs, backend), expected)
        crossed = [[[0, 3], [0, 1]], [[2, 1], [0, 1]], [[1, 2], [3, 2]], [[3, 0], [2, 3]]]
        self.assertEqual([[found[0], found[2]] for found in self.run_ranks(4, sums, [
            [sorted(members) for members in lists] for lists in crossed])],
            [[1001, 11], [110, 11], [110, 1100], [1001, 1100]])

    def test_members_that_name_others(self):
        for lists in ([[[0, 1]], [[0, 1, 2]], [[0, 1, 2]]],
                      [[[0, 1]], [[1, 2]], [[0, 2]]],
                      [[[0, 1], [0, 2]], [[0, 1], [1, 2]], [[1, 2], [0, 2]]],  # in another order
                      [[[0, 1, 2]], [[0, 1]], [[0, 1, 2]]],
                      [[[1, 2]], [[0, 1]], [[1, 2]]]):
            with self.subTest(lists=lists):
                for text in self.run_ranks(3, complaint, lists):
                    self.assertRegex(str(text), r"new_group: rank \d names the ranks \[.*\], and rank \d names \[")

    def test_bystanders_may_name_anything(self):
        self.assertEqual(self.run_ranks(3, complaint, [[[0, 1]], [[0, 1]], [[0]]]), [None] * 3)


if __name__ == "__main__":
    unittest.main()
