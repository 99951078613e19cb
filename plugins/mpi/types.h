// MPI's predefined types and operations as libina's.
#pragma once

#include <cstddef>
#include <optional>

#include <ina/ina.h>

#include "plugins/mpi/abi.h"

namespace ina::mpi {

struct Reduction {
  ina_dtype dtype;
  ina_op op;
  /// MPI's. More than `dtype` has where libina reduces truth values (INA_BOOL).
  size_t element_bytes;
};

/// None where libina has none with MPI's result. That depends on the two handles alone, which are
/// the same on all ranks.
std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op);

}  // namespace ina::mpi
