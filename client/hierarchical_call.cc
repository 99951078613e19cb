#include "client/hierarchical_call.h"

#include <string>

#include "client/collective_call.h"

namespace ina::client {

Collective flat(themis::Collective collective) {
  switch (collective) {
    case themis::Collective::kReduceScatter:
      return Collective::kReduceScatter;
    case themis::Collective::kAllGather:
      return Collective::kAllGather;
    case themis::Collective::kAllToAll:
      return Collective::kAllToAll;
    default:
      return Collective::kAllReduce;
  }
}

Result<CheckedTypes> check(const HierarchicalCall& call, uint32_t ranks, uint32_t rank,
                           bool reproducible) {
  CollectiveCall alike;
  alike.function = call.function;
  alike.collective = flat(call.collective);
  alike.send = call.send;
  alike.recv = call.recv;
  alike.dtype_number = call.dtype_number;
  alike.op_number = call.op_number;
  if (call.collective == themis::Collective::kAllReduce) {
    // The rules are those of a rank that alone has the sum.
    alike.collective = Collective::kReduce;
    alike.root = static_cast<int>(rank);
    alike.counts.push_back(call.count);
  } else {
    alike.set_even(ranks, call.count);
  }
  if (auto fine = check(alike, ranks, rank); !fine) return tl::unexpected(fine.error());
  if (reproducible && !is_moved(flat(call.collective)) && is_float(alike.dtype) &&
      alike.op != Op::kMin && alike.op != Op::kMax)
    return fail(INA_ERR_UNSUPPORTED,
                std::string(call.function) + ": " + std::string(name(alike.op)) + " of " +
                    std::string(name(alike.dtype)) +
                    " is not made reproducible through several dimensions; use "
                    "INA_NUMERIC_NATIVE, or ina_allreduce");
  return CheckedTypes{alike.dtype, alike.op};
}

}  // namespace ina::client
