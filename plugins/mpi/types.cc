#include "plugins/mpi/types.h"

#include <array>

namespace ina::mpi {

namespace {

enum class Kind { kSigned, kUnsigned, kFloat };

struct Element {
  Kind kind;
  ina_dtype dtype;
};

template <class T>
Element whole(Kind kind) {
  return {kind, sizeof(T) == 1 ? INA_INT8 : sizeof(T) == 4 ? INA_INT32 : INA_INT64};
}

std::optional<Element> element_of(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return std::nullopt;
  if (type == MPI_FLOAT) return Element{Kind::kFloat, INA_FLOAT32};
  if (type == MPI_DOUBLE) return Element{Kind::kFloat, INA_FLOAT64};
  if (type == MPI_INT || type == MPI_INT32_T) return whole<int>(Kind::kSigned);
  if (type == MPI_LONG) return whole<long>(Kind::kSigned);
  if (type == MPI_LONG_LONG_INT || type == MPI_INT64_T) return whole<long long>(Kind::kSigned);
  if (type == MPI_SIGNED_CHAR || type == MPI_INT8_T) return whole<signed char>(Kind::kSigned);
  if (type == MPI_UNSIGNED || type == MPI_UINT32_T) return whole<unsigned>(Kind::kUnsigned);
  if (type == MPI_UNSIGNED_LONG) return whole<unsigned long>(Kind::kUnsigned);
  if (type == MPI_UNSIGNED_LONG_LONG || type == MPI_UINT64_T)
    return whole<unsigned long long>(Kind::kUnsigned);
  if (type == MPI_AINT) return whole<MPI_Aint>(Kind::kSigned);
  if (type == MPI_OFFSET) return whole<MPI_Offset>(Kind::kSigned);
  if (type == MPI_COUNT) return whole<MPI_Count>(Kind::kSigned);
  // Fortran's, whose sizes Debian's MPIs have made with the usual ones of gfortran.
  if (type == MPI_REAL || type == MPI_REAL4) return Element{Kind::kFloat, INA_FLOAT32};
  if (type == MPI_DOUBLE_PRECISION || type == MPI_REAL8) return Element{Kind::kFloat, INA_FLOAT64};
  if (type == MPI_INTEGER || type == MPI_INTEGER4) return Element{Kind::kSigned, INA_INT32};
  if (type == MPI_INTEGER8) return Element{Kind::kSigned, INA_INT64};
  if (type == MPI_INTEGER1) return Element{Kind::kSigned, INA_INT8};
  if (type == MPI_UNSIGNED_CHAR || type == MPI_UINT8_T || type == MPI_BYTE)
    return Element{Kind::kUnsigned, INA_UINT8};
  return std::nullopt;
}

std::optional<ina_op> operation_of(MPI_Op op) {
  if (op == MPI_SUM) return INA_SUM;
  if (op == MPI_PROD) return INA_PROD;
  if (op == MPI_MIN) return INA_MIN;
  if (op == MPI_MAX) return INA_MAX;
  if (op == MPI_BAND) return INA_BAND;
  if (op == MPI_BOR) return INA_BOR;
  if (op == MPI_BXOR) return INA_BXOR;
  return std::nullopt;
}

/// True if MPI's logical operations take the type: all zeros are false, all else is true.
bool has_truth(MPI_Datatype type) {
  for (const MPI_Datatype known : {MPI_C_BOOL,        MPI_CXX_BOOL,      MPI_SIGNED_CHAR,
                                   MPI_SHORT,         MPI_INT,           MPI_LONG,
                                   MPI_LONG_LONG_INT, MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT,
                                   MPI_UNSIGNED,      MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG,
                                   MPI_INT8_T,        MPI_INT16_T,       MPI_INT32_T,
                                   MPI_INT64_T,       MPI_UINT8_T,       MPI_UINT16_T,
                                   MPI_UINT32_T,      MPI_UINT64_T})
    if (type == known && type != MPI_DATATYPE_NULL) return true;
  return false;
}

/// libina's operation on truth values, which are a bit each in INA_BOOL.
std::optional<ina_op> logical_operation_of(MPI_Op op) {
  if (op == MPI_LAND) return INA_BAND;
  if (op == MPI_LOR) return INA_BOR;
  if (op == MPI_LXOR) return INA_BXOR;
  return std::nullopt;
}

bool is_bitwise(ina_op op) {
  return op == INA_BAND || op == INA_BOR || op == INA_BXOR;
}

}  // namespace

std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op) {
  if (const auto logical = logical_operation_of(op)) {
    if (!has_truth(type)) return std::nullopt;
    int size = 0;
    PMPI_Type_size(type, &size);
    return Reduction{INA_BOOL, *logical, static_cast<size_t>(size)};
  }
  const auto element = element_of(type);
  const auto operation = operation_of(op);
  if (!element || !operation) return std::nullopt;
  const bool one_byte = ina_dtype_size(element->dtype) == 1;
  const bool order = *operation == INA_MIN || *operation == INA_MAX;
  // MPI refuses these itself.
  if (is_bitwise(*operation) && element->kind == Kind::kFloat) return std::nullopt;
  if (type == MPI_BYTE && !is_bitwise(*operation)) return std::nullopt;
  // libina's sums and products of bytes saturate.
  if (one_byte && !order && !is_bitwise(*operation)) return std::nullopt;
  // libina has the bits of sums of wider numbers without sign, but not their order.
  if (!one_byte && order && element->kind == Kind::kUnsigned) return std::nullopt;
  return Reduction{element->dtype, *operation, ina_dtype_size(element->dtype)};
}

}  // namespace ina::mpi
