"""Teams that are measured in turn: rounds with one turn of many operations for each contestant.

A round gives each contestant one sample, {"us", "q1_us", "q3_us", "min_us", "operations",
"core_round_trip_ns": [before, after]}; rounds.py reads these samples.
"""

import shlex
import statistics
import sys

from benchlib import progress
from benchlib.errors import BenchError
from benchlib.teams import TeamLost

MIN_OPERATIONS, MAX_OPERATIONS = 3, 10_000


class Contestant:
    """A team in one of its modes; `name` is the contestant's name in the rows. `modes`: if the
    contestant has several modes, the fastest one is found for each size."""

    def __init__(self, name, team, mode, modes=None, collective="allreduce"):
        self.name = name
        self.team = team
        self.mode = mode
        self.modes = modes or [mode]
        self.collective = collective
        self.operations = MIN_OPERATIONS


class Tournament:
    """Teams that are measured in turn. `where` begins all messages, e.g. "4 ranks"."""

    def __init__(self, where, turn_s, ping):
        self.where = where
        self.turn_s = turn_s
        self.ping = ping
        self.teams = []
        self.contestants = []
        self.lost = {}  # by team's name: the reason

    def enter(self, team, name_of_mode):
        """Starts a team. `name_of_mode(mode)`: the name of that contestant."""
        progress.show(f"{self.where}: starting {team.name}")
        self.teams.append(team)
        try:
            team.start()
            self.contestants += [Contestant(name_of_mode(mode), team, mode) for mode in team.modes]
        except (TeamLost, OSError) as error:
            self.lose(team, error)
        finally:
            progress.clear()

    def lose(self, team, error):
        """Excludes a team. A failure of our own team ends the run."""
        if team.ours:
            raise BenchError(f"{self.where}: {team.name} failed: {error}")
        progress.clear()
        print(f"{self.where}: {team.name} is out: {error}", file=sys.stderr)
        self.lost[team.name] = str(error)
        self.contestants = [c for c in self.contestants if c.team is not team]
        team.stop()

    def choose(self, collective, contestants_of):
        """Changes to another collective. `contestants_of(team, modes)`: the contestants of a team
        that has these modes."""
        chosen = []
        for team in self.teams:
            if team.name in self.lost:
                continue
            try:
                modes = team.modes_of(collective)
                chosen += contestants_of(team, modes) if modes else []
            except (TeamLost, OSError) as error:
                self.lose(team, error)
        self.contestants = chosen

    def attempt(self, contestant, action):
        if contestant.team.name in self.lost:
            return None
        try:
            return action()
        except (TeamLost, OSError) as error:
            self.lose(contestant.team, error)
            return None
        finally:
            progress.clear()

    def play(self, size, rounds):
        """Checks all contestants at this size, then measures them. Returns for each round each
        contestant's sample."""
        for contestant in list(self.contestants):
            progress.show(f"{self.where}, {size} bytes: checking {contestant.name}")
            self.attempt(contestant, lambda c=contestant: self.prepare(c, size))
        played = []
        for number in range(rounds):
            samples = {}
            start = number % max(1, len(self.contestants))
            for contestant in self.contestants[start:] + self.contestants[:start]:
                progress.show(f"{self.where}, {size} bytes: round {number + 1} of {rounds}, "
                              f"{contestant.name}")
                sample = self.attempt(contestant, lambda c=contestant: self.turn(c, size))
                if sample:
                    samples[contestant.name] = sample
            played.append(samples)
        return played

    def prepare(self, contestant, size):
        """Checks the contestant, and finds the number of operations in a turn."""
        if len(contestant.modes) > 1:
            contestant.mode = self.fastest_mode(contestant, size)
        contestant.team.check(contestant.mode, size, contestant.collective)
        contestant.operations = MIN_OPERATIONS
        for share in (0.1, 1):  # few operations give a poor estimate
            times = contestant.team.run(contestant.mode, size, contestant.operations,
                                        contestant.collective)
            fit = self.turn_s / (statistics.median(times) * 1e-6)
            contestant.operations = int(min(max(fit * share, MIN_OPERATIONS), MAX_OPERATIONS))
            if fit <= MIN_OPERATIONS:
                break  # the estimate cannot get better

    def fastest_mode(self, contestant, size):
        """Returns the fastest mode by a few operations of each mode. The best three run again,
        because one of them may have been fast by chance."""
        def times_of(modes, operations):
            return {mode: statistics.median(contestant.team.run(mode, size, operations,
                                                                contestant.collective))
                    for mode in modes}
        first = times_of(contestant.modes, MIN_OPERATIONS)
        again = times_of(sorted(first, key=first.get)[:3], 3 * MIN_OPERATIONS)
        return min(again, key=again.get)

    def turn(self, contestant, size):
        before_ns = self.ping.measure_ns()
        times = contestant.team.run(contestant.mode, size, contestant.operations,
                                    contestant.collective)
        after_ns = self.ping.measure_ns()
        first, middle, third = statistics.quantiles(times, n=4, method="inclusive")
        return {"us": middle, "q1_us": first, "q3_us": third, "min_us": min(times),
                "operations": len(times), "core_round_trip_ns": [before_ns, after_ns]}

    def describe(self, paths, **more):
        """Returns a description of the run, by team. `paths`: replacements for paths of this
        machine; `more`: further keys of each team."""
        def anywhere(text):
            for path, stand_in in paths.items():
                text = text.replace(str(path), str(stand_in))
            return text

        return {team.name: {
            "version": team.version,
            "command": anywhere(shlex.join(map(str, team.commands[0]))),
            "environment": {name: anywhere(value) for name, value in team.environment.items()},
            **more,
            "missing": self.lost.get(team.name),
        } for team in self.teams}

    def stop(self):
        for team in self.teams:
            team.stop()
