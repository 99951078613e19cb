"""Modules that the benchmarks of scripts/bench_*.py share. A benchmark imports from here and from
its own report (bench_NAME_report.py), never from another benchmark.

    command_line   options of all benchmarks, and main() as the process
    results        the JSON file of a result
    kept           the form of the results in docs/figures
    metadata       a result's description of its run: commit, machine, command
    machine        the machine: processor, memory, kernel, idle time
    errors         exceptions with which a benchmark fails
    processes      programs that a benchmark runs, and ranks of a job
    switch         a private ina-switchd, ina-memif beside it, and their status
    testbed        hosts in network namespaces (tests/net)
    live_trees     trees of switches in network namespaces
    shaped         hosts whose links have rates, which may change
    straggler_links  straggler help over such links
    perf           ina-perf on the hosts of a test bed
    parallel       independent jobs side by side
    simulations    many runs of ina-sim
    teams          competitors: the running ranks of one library
    mpi            the MPIs that are measured
    mpi_programs   tests of MPICH, ScaLAPACK and MUMPS
    suites         sums of rows of other people's tests
    tournament     teams that are measured in turn
    core_ping      the round trip between two cores
    rounds         times and ratios from the rounds of a tournament
    stats          medians, quartiles, intervals
    table          cells of printed tables
    progress       a line with the progress of a benchmark
"""
