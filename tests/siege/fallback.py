"""Attacks on ina-psd, the fallback server of all jobs, by jobs of one's own."""

import peer
from attack import Holder


class HoldInJobs(Holder):
    """Takes all connections, for workers of jobs that never have all their workers: such connections
    are not taken away for others."""

    WORKERS = 64

    def begin(self):
        while self.take_all_of_one_job():
            pass

    def step(self):
        """Others may have let some go."""
        super().step()
        self.take_all_of_one_job()

    def take_all_of_one_job(self):
        """False: there are no more connections."""
        name = self.name()
        for rank in range(self.WORKERS - 1):
            with self.trying("workers"):
                one, _ = peer.join(self.path, name, rank, self.WORKERS)
                self.held.append(one)
                continue
            return False
        return True


ATTACKS = {"hold_in_jobs": HoldInJobs}
