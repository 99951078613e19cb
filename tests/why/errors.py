"""What the ranks' errors say."""

import re

# "rank 1 (pid 7 on node1)", "ranks 0, 2"; of a group "rank 1 (rank 2 of the job, pid 7 on node1)".
RANK = r"\d+(?: \([^()]*\))?"
RANKS = rf"ranks? ({RANK}(?:, {RANK})*)"
# The sentences that name ranks at fault (control/diagnosis/why.cc, switchd/reports/dropped_frames.cc,
# switchd/jobs/departures.cc, client/context.cc).
NAMES = [re.compile(pattern) for pattern in (
    rf"(?:is that|are those) of {RANKS}, which (?:has|have) contributed",
    rf"the process(?:es)? of {RANKS} (?:is|are) stopped",
    rf"called ina_split, and {RANKS} (?:has|have) not",
    rf"frames of {RANKS} on port",
    rf"no frame of {RANKS} has come in",
    rf"{RANKS} of job '[^']*' died or left",
    rf"{RANKS} has called ina_finalize without calling")]
WAITS_FOR = re.compile(rf"waits for {RANKS}(, and ranks? [\d, ]*(?:has|have) contributed: "
                       r"(?:it waits itself|they wait themselves) in )?")
SIDES = re.compile(r"ranks? (\d+(?:, \d+)*) started (.*?)(?=, ranks? \d+(?:, \d+)* started |$)")
OUTCOME = re.compile(r"^\S+ (INA_\w+) (.*)\n", re.MULTILINE)


def error_of(said):
    """Returns the status and the text of the error in a rank's output, which ends with it."""
    errors = [found for found in OUTCOME.findall(said) if found[0] != "INA_OK"]
    return errors[-1] if errors else None


def numbers_of(listed):
    """Returns the ranks of a list. A rank of a group is that of the job."""
    return {int(of_job or own) for own, of_job in
            re.findall(r"(\d+)(?: \((?:rank (\d+) of the job)?[^()]*\))?", listed)}


def ranks_named(fault, text):
    """Returns the ranks that an error says are at fault."""
    if fault.other_call:
        sides = [(numbers_of(listed), call) for listed, call in SIDES.findall(text)]
        return set().union(*(ranks for ranks, call in sides if call.startswith(fault.other_call)))
    named = set()
    for listed, waits_itself in WAITS_FOR.findall(text):
        if not waits_itself:
            named |= numbers_of(listed)
    for sentence in NAMES:
        for found in sentence.finditer(text):
            named |= numbers_of(found.group(1))
    return named
