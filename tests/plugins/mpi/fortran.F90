! A Fortran program that knows nothing of libina: with mpif.h, or with -DINA_USE `use mpi`, or with
! -DINA_F08 `use mpi_f08`. Checks results, in place, at
! MPI_BOTTOM and nonblocking, and prints "all right" on rank 0.
#if defined(INA_F08)
#define COMMUNICATOR type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define DATATYPE type(MPI_Datatype)
#else
#define COMMUNICATOR integer
#define REQUEST integer
#define DATATYPE integer
#endif
program collectives
#if defined(INA_F08)
  use mpi_f08
#elif defined(INA_USE)
  use mpi
#endif
  implicit none
#if !defined(INA_F08) && !defined(INA_USE)
  include 'mpif.h'
#endif
  integer, parameter :: n = 5000
  integer :: rank, ranks, error, i, provided
  integer, allocatable :: counts(:), places(:), whole(:), back(:)
  integer :: own(n), sums(n)
  integer(kind=MPI_ADDRESS_KIND) :: place
  real :: single(n)
  double precision :: double(n), added(n)
  double precision, allocatable :: blocks(:)
  complex :: unusual(3)
  COMMUNICATOR :: half
  REQUEST :: requests(3)
  DATATYPE :: absolute
  call MPI_Init_thread(MPI_THREAD_SINGLE, provided, error)
  call check(error == MPI_SUCCESS .and. provided == MPI_THREAD_SINGLE, 'init')
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  allocate (counts(ranks), places(ranks), whole(n * ranks), back(n * ranks), blocks(n * ranks))
  do i = 1, n
    own(i) = rank * 10000 + i
    double(i) = rank + i
    single(i) = rank + mod(i, 100)
  end do

  call MPI_Allreduce(double, added, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call check(error == MPI_SUCCESS .and. &
             all_equal(added, [(dble(i) * ranks + ranks * (ranks - 1) / 2, i = 1, n)]), 'allreduce')
  call MPI_Allreduce(MPI_IN_PLACE, double, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call check(all_equal(double, added), 'allreduce in place')
  call MPI_Allreduce(MPI_IN_PLACE, single, n, MPI_REAL, MPI_MAX, MPI_COMM_WORLD, error)
  call check(all([(single(i) == mod(i, 100) + ranks - 1, i = 1, n)]), 'allreduce of reals')
  if (rank == 0) then
    sums = own
    call MPI_Reduce(MPI_IN_PLACE, sums, n, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
    call check(all([(sums(i) == i * ranks + 10000 * ranks * (ranks - 1) / 2, i = 1, n)]), 'reduce')
  else
    call MPI_Reduce(own, sums, n, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  end if

  sums = own
  call MPI_Bcast(sums, n, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
  call check(all([(sums(i) == (ranks - 1) * 10000 + i, i = 1, n)]), 'bcast')
  ! An address of the type's own, from MPI_BOTTOM on.
  call MPI_Get_address(own, place, error)
  call MPI_Type_create_hindexed(1, [n], [place], MPI_INTEGER, absolute, error)
  call MPI_Type_commit(absolute, error)
  sums = own
  call MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_WORLD, error)
  call look(own)
  call check(all([(own(i) == i, i = 1, n)]), 'bcast from the bottom')
  own = sums
  call MPI_Type_free(absolute, error)

  call MPI_Allgather(own, n, MPI_INTEGER, whole, n, MPI_INTEGER, MPI_COMM_WORLD, error)
  call check(gathered(whole), 'allgather')
  whole = 0
  whole(rank * n + 1:rank * n + n) = own
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, n, MPI_INTEGER, MPI_COMM_WORLD, error)
  call check(gathered(whole), 'allgather in place')
  counts = n
  places = [((i - 1) * n, i = 1, ranks)]
  whole = 0
  call MPI_Allgatherv(own, n, MPI_INTEGER, whole, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
  call check(gathered(whole), 'allgatherv')
  whole = 0
  call MPI_Gatherv(own, n, MPI_INTEGER, whole, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  if (rank == 0) call check(gathered(whole), 'gatherv')
  sums = 0
  call MPI_Scatterv(whole, counts, places, MPI_INTEGER, sums, n, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  call check(all_same(sums, own), 'scatterv')
  call MPI_Gather(own, n, MPI_INTEGER, whole, n, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  if (rank == 0) call check(gathered(whole), 'gather')
  if (rank == 0) then
    call MPI_Scatter(whole, n, MPI_INTEGER, MPI_IN_PLACE, n, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  else
    sums = 0
    call MPI_Scatter(whole, n, MPI_INTEGER, sums, n, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call check(all_same(sums, own), 'scatter')
  end if

  whole = [((rank * 100 + (i - 1) / n), i = 1, n * ranks)]
  call MPI_Alltoall(whole, n, MPI_INTEGER, back, n, MPI_INTEGER, MPI_COMM_WORLD, error)
  call check(all_same(back, [(((i - 1) / n * 100 + rank), i = 1, n * ranks)]), 'alltoall')
  call MPI_Alltoallv(MPI_IN_PLACE, counts, places, MPI_INTEGER, whole, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
  call check(all_same(whole, back), 'alltoallv in place')

  blocks = [(dble(mod(i, 17) + rank), i = 1, n * ranks)]
  call MPI_Reduce_scatter_block(blocks, double, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call check(all([(double(i) == mod(rank * n + i, 17) * ranks + ranks * (ranks - 1) / 2, i = 1, n)]), 'reduce_scatter_block')
  call MPI_Reduce_scatter(MPI_IN_PLACE, blocks, counts, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call check(all_equal(blocks(1:n), double), 'reduce_scatter')

  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, error)
  call MPI_Barrier(half, error)
  i = rank
#if defined(INA_F08)
  call MPI_Allreduce(MPI_IN_PLACE, i, 1, MPI_INTEGER, MPI_MIN, half)  ! without its last argument
#else
  call MPI_Allreduce(MPI_IN_PLACE, i, 1, MPI_INTEGER, MPI_MIN, half, error)
#endif
  call check(i == mod(rank, 2), 'allreduce on a half')
  call MPI_Comm_free(half, error)

  own = rank
  sums = 0
  call MPI_Iallreduce(own, sums, n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, requests(1), error)
  call MPI_Iallgather(rank, 1, MPI_INTEGER, counts, 1, MPI_INTEGER, MPI_COMM_WORLD, requests(2), error)
  call MPI_Ibarrier(MPI_COMM_WORLD, requests(3), error)
  call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, error)
  call look(sums)
  call check(all([(sums(i) == ranks - 1, i = 1, n)]), 'iallreduce')
  call check(all([(counts(i) == i - 1, i = 1, ranks)]), 'iallgather')

  unusual = (1., 2.)
  call MPI_Allreduce(MPI_IN_PLACE, unusual, 3, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
  call check(unusual(3) == cmplx(ranks, 2 * ranks), 'allreduce of complex numbers')
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 0) print '(a)', 'all right'
  call MPI_Finalize(error)

contains

  subroutine check(fine, what)
    logical, intent(in) :: fine
    character(*), intent(in) :: what
    integer :: ignored
    if (fine) return
    print *, 'rank', rank, ': wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine

  ! The compiler does not know that MPI has written to it.
  subroutine look(numbers)
    integer, intent(inout) :: numbers(:)
    if (numbers(1) == -huge(0)) print *, numbers
  end subroutine

  logical function gathered(numbers)
    integer, intent(in) :: numbers(:)
    integer :: at
    gathered = all_same(numbers, [((at - 1) / n * 10000 + mod(at - 1, n) + 1, at = 1, n * ranks)])
  end function

  logical function all_same(left, right)
    integer, intent(in) :: left(:), right(:)
    all_same = count(left /= right) == 0
  end function

  logical function all_equal(left, right)
    double precision, intent(in) :: left(:), right(:)
    all_equal = count(left /= right) == 0
  end function
end program
