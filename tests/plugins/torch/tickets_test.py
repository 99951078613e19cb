"""A job that an administrator made: its ticket lets the ranks in.

    tickets_test.py BUILD_FOLDER
"""

import json
import subprocess
import unittest

import ranks
from ranks import Failed, SwitchTest

import plugin_switch
import torch
import torch.distributed as dist

# Administrators give jobs to tenants. Without the ticket nobody here may join a job of this one.
CONFIG = plugin_switch.CONFIG + """\
tenants:
  - {{name: vision, jobs_max: 4, workers_max: 16}}
"""


def work(rank, size, messages):
    """Returns a sum of all ranks, one of each group of two, and what the ring has brought."""
    tensor = torch.full((10,), float(rank))
    dist.all_reduce(tensor)
    pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    of_pair = torch.full((3,), float(rank))
    dist.all_reduce(of_pair, group=pairs[rank // 2])
    received = torch.zeros(1)
    if messages:
        sending = dist.isend(torch.full((1,), float(rank)), (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        sending.wait()
    return tensor[0].item(), of_pair[0].item(), received[0].item()


class TicketsTest(SwitchTest):
    config = CONFIG

    def inactl(self, *arguments):
        return subprocess.run([ranks.BUILD / "programs/inactl/inactl", *arguments, "--socket", self.switch.socket],
                              capture_output=True, text=True, timeout=600, check=True).stdout

    def create(self, name, workers):
        made = self.inactl("create", name, "--workers", str(workers), "--tenant", "vision", "--json")
        return json.loads(made)["ticket"]

    def run_with(self, size, messages, **environment):
        """Returns the results of ranks of which rank 0 alone has the variables."""
        return self.start(size, work, messages, environments={0: environment}).results()

    def in_order(self, size, messages):
        return [(sum(range(size)), 2.0 * rank + (1 if rank % 2 == 0 else -1), (rank - 1) % size if messages else 0)
                for rank in range(size)]

    def test_rank_0_gives_job_and_ticket_to_the_others(self):
        ticket = self.create("train", 4)
        # Nothing but the ticket lets a worker into the job, and no other job is made any more.
        self.inactl("drain")
        self.addCleanup(self.inactl, "undrain")
        self.assertEqual(self.run_with(4, False, INA_JOB="train", INA_TICKET=ticket), self.in_order(4, False))

    def test_file_of_the_ticket(self):
        path = self.folder / "ticket"
        path.write_text(self.create("of-a-file", 2) + "\n")
        self.inactl("drain")
        self.addCleanup(self.inactl, "undrain")
        self.assertEqual(self.run_with(2, False, INA_JOB="of-a-file", INA_TICKET_FILE=str(path)), self.in_order(2, False))

    def test_messages(self):
        """Their jobs are made without the ticket, which opens none but its own."""
        ticket = self.create("messages", 2)
        self.assertEqual(self.run_with(2, True, INA_JOB="messages", INA_TICKET=ticket), self.in_order(2, True))

    def test_without_the_ticket(self):
        self.create("closed", 2)
        self.inactl("drain")
        self.addCleanup(self.inactl, "undrain")
        for result in self.run_with(2, False, INA_JOB="closed"):
            self.assertIsInstance(result, Failed)
            self.assertIn("INA_ERR_REFUSED", result.text)
            self.assertIn("drain", result.text)

    def test_ticket_of_another_job(self):
        ticket = self.create("other", 2)
        for result in self.run_with(2, False, INA_JOB="wrong", INA_TICKET=ticket):
            self.assertIsInstance(result, Failed)
            self.assertIn("the ticket is for another job than 'wrong' (INA_JOB)", result.text)


if __name__ == "__main__":
    unittest.main()
