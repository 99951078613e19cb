"""The MPIs that are measured, and how their jobs start."""

# plm isolated: one machine; without it mpirun refuses to start where there is no ssh.
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated"],
          "mpich": ["mpirun.mpich"]}
# mpirun refuses to run as root without these.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SPINS = "mpich"  # with more ranks than processors it waits for time slices
