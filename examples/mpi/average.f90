! Each rank has a gradient; all get their mean. A program of MPI, which knows nothing of libina:
!
!     mpifort average.f90 -o average
!     mpirun -n 4 env LD_PRELOAD=libina_mpi_openmpi.so ./average      (MPICH: libina_mpi_mpich.so)
program average
  use mpi
  implicit none
  integer, parameter :: elements = 100000
  real :: gradient(elements)
  integer :: rank, ranks, ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)

  gradient = real(rank)
  call MPI_Allreduce(MPI_IN_PLACE, gradient, elements, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
  gradient = gradient / real(ranks)

  print '(a,i0,a,i0,a,i0,a,f0.1)', 'rank ', rank, ' of ', ranks, ': ', elements, ' elements, each ', gradient(1)
  call MPI_Finalize(ierror)
end program average
