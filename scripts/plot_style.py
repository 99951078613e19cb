"""The meaning of colours, lines and markers, the same in all figures. Needs no matplotlib.

A colour is one thing: a policy, a library, a kind of help. A variant of that thing has its colour,
a hollow marker and a broken line. Markers differ from colour to colour, for print without colours.
"""

# Our own colour; the policy esa has it, too.
INA = "#1f4e9c"
STATIC = "#111111"
FCFS = "#b3400e"
FLOOR = "#8a8a8a"
OPENMPI = "#3c8d53"
GLOO = "#c78a12"
MPICH = "#7a3b8f"
NETWORK_PEERS = "#16808a"
HELP_OFF = "#7b5b3a"
HELP_LEADER = "#b0307a"
HELP_FALLBACK = "#7f8a12"
HELP_SPILL = "#3aa6d0"
# Ours; more ranks are darker.
RANKS = ("#9db7de", "#5b86c4", INA)

SOLID, BROKEN, DOTTED = "-", "--", ":"

# Meaning: colour, line, marker, whether the marker is hollow.
STYLES = {
    "static": (STATIC, SOLID, "s", False),
    "fcfs": (FCFS, SOLID, "^", False),
    "fcfs+window": (FCFS, BROKEN, "^", True),
    "esa": (INA, SOLID, "o", False),
    "array that is never full": (FLOOR, BROKEN, "x", False),
    "esa, a preemption with every packet": (INA, DOTTED, "D", True),
    "floor: the kernel alone": (FLOOR, SOLID, "x", False),
    "measured": (INA, SOLID, "o", False),
    "estimated: one after another on one core": (INA, BROKEN, "o", True),
    "INA, plain buffers": (INA, SOLID, "o", False),
    "INA, registered buffers": (INA, BROKEN, "o", True),
    "OpenMPI, shared memory": (OPENMPI, SOLID, "D", False),
    "OpenMPI as it comes": (OPENMPI, DOTTED, "d", False),
    "OpenMPI, TCP": (OPENMPI, BROKEN, "D", True),
    "Gloo, TCP": (GLOO, SOLID, "v", False),
    "MPICH, shared memory": (MPICH, SOLID, "P", False),
    "best of OpenMPI TCP and Gloo / INA plain": (NETWORK_PEERS, SOLID, "s", False),
    "best of OpenMPI TCP and Gloo / INA registered": (NETWORK_PEERS, BROKEN, "s", True),
    "OpenMPI shared memory / INA plain": (OPENMPI, SOLID, "D", False),
    "OpenMPI shared memory / INA registered": (OPENMPI, BROKEN, "D", True),
    "2 ranks": (RANKS[0], SOLID, "o", False),
    "4 ranks": (RANKS[1], SOLID, "s", False),
    "8 ranks": (RANKS[2], SOLID, "^", False),
    "off": (HELP_OFF, SOLID, "s", False),
    "run-ahead": (HELP_OFF, BROKEN, "s", True),
    "leader": (HELP_LEADER, SOLID, "^", False),
    "fallback": (HELP_FALLBACK, SOLID, "D", False),
    "spill": (HELP_SPILL, SOLID, "v", False),
}
COLOURS = {style[0] for style in STYLES.values()}
