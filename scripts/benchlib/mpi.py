"""The measured MPIs, and the commands that start their jobs."""

# plm isolated: a single machine. Without it mpirun does not start if there is no ssh.
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated"],
          "mpich": ["mpirun.mpich"]}
# mpirun refuses to run as root without these.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SPINS = "mpich"  # with more ranks than processors it spins for whole time slices
