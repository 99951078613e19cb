// MPI's collective calls as libina's. A constructor has the arguments of the MPI function, in its
// order; pointers are kept as long as the call lasts, but for counts and displacements, which
// begin() reads last.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ina/ina.h>

#include "plugins/mpi/abi.h"
#include "plugins/mpi/bytes.h"
#include "plugins/mpi/types.h"

namespace ina::mpi {

/// A status of begin() beside libina's own: the arguments make no sense.
constexpr int kWrongArguments = -1000;

class Collective {
 public:
  explicit Collective(MPI_Comm comm);
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// Why MPI has to do it, or null. That depends only on values that all ranks of the call have
  /// alike: the operation, the datatype of a reduction, the bytes. Something local (an address,
  /// memory, a datatype where the ranks' may differ) would let some ranks wait in the switch for
  /// others that wait in MPI.
  virtual const char* why_not() const { return nullptr; }
  /// Of the message, for the report.
  virtual size_t bytes() const { return 0; }
  /// Starts it. A status of libina's.
  virtual int begin(ina_context* context, ina_request** request) = 0;
  /// Puts what was received where it belongs, after all. A status of MPI's.
  virtual int deliver() { return MPI_SUCCESS; }

 protected:
  bool is(int root) const { return rank_ == root; }
  size_t ranks() const { return static_cast<size_t>(size_); }

  const MPI_Comm comm_;
  int rank_ = 0, size_ = 0;
};

class Barrier : public Collective {
 public:
  using Collective::Collective;
  int begin(ina_context* context, ina_request** request) override;
};

/// Collectives with an operation on elements. Those that are reduced as truth values are copied, as
/// a byte each.
class Reducing : public Collective {
 public:
  const char* why_not() const override;
  size_t bytes() const override;
  int deliver() override;

 protected:
  Reducing(const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
           MPI_Comm comm);
  bool in_place() const { return send_ == MPI_IN_PLACE; }
  /// Where libina reads `elements` elements.
  const void* input(size_t elements);
  /// Where libina writes as many. `apart`: not where it reads them.
  void* output(size_t elements, bool apart = false);

  const void* const send_;
  void* const recv_;
  const size_t count_;
  const std::optional<Reduction> reduction_;  ///< none where MPI has to do it

 private:
  /// The elements are wider than libina's.
  bool converted() const { return reduction_->element_bytes != ina_dtype_size(reduction_->dtype); }

  std::vector<char> truths_, apart_;
};

class Allreduce : public Reducing {
 public:
  Allreduce(const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
            MPI_Comm comm)
      : Reducing(send, recv, count, type, op, comm) {}
  int begin(ina_context* context, ina_request** request) override;
};

class Reduce : public Reducing {
 public:
  Reduce(const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
         MPI_Comm comm)
      : Reducing(send, recv, count, type, op, comm), root_(root) {}
  int begin(ina_context* context, ina_request** request) override;

 private:
  const int root_;
};

class Reduce_scatter_block : public Reducing {
 public:
  Reduce_scatter_block(const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm)
      : Reducing(send, recv, count, type, op, comm) {}
  int begin(ina_context* context, ina_request** request) override;
};

class Reduce_scatter : public Reducing {
 public:
  Reduce_scatter(const void* send, void* recv, Numbers counts, MPI_Datatype type, MPI_Op op,
                 MPI_Comm comm);
  int begin(ina_context* context, ina_request** request) override;

 private:
  const Numbers counts_;
};

class Bcast : public Collective {
 public:
  Bcast(void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
  const char* why_not() const override;
  size_t bytes() const override { return bytes_.value_or(0); }
  int begin(ina_context* context, ina_request** request) override;
  int deliver() override;

 private:
  void* const buffer_;
  const MPI_Count count_;
  const MPI_Datatype type_;
  const int root_;
  const std::optional<size_t> bytes_;
  std::optional<Bytes> data_;
};

/// Elements of one side of a call.
struct Side {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype type;
  bool in_place() const { return buffer == MPI_IN_PLACE; }
};

/// Collectives in which each rank has a share of the same number of bytes.
class Moving : public Collective {
 public:
  const char* why_not() const override;
  size_t bytes() const override { return share_.value_or(0); }
  int deliver() override { return to_ ? to_->deliver() : MPI_SUCCESS; }

 protected:
  /// The share is that of `known`, which this rank has an argument of.
  Moving(Side send, Side recv, const Side& known, MPI_Comm comm);
  /// This rank's share of all ranks'.
  char* own(Bytes& all) const;

  const Side send_, recv_;
  const std::optional<size_t> share_;
  std::optional<Bytes> from_, to_;
};

class Allgather : public Moving {
 public:
  Allgather(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
            MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm);
  int begin(ina_context* context, ina_request** request) override;
};

class Gather : public Moving {
 public:
  Gather(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
         MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);
  int begin(ina_context* context, ina_request** request) override;

 private:
  const int root_;
};

class Scatter : public Moving {
 public:
  Scatter(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
          MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);
  int begin(ina_context* context, ina_request** request) override;

 private:
  const int root_;
};

class Alltoall : public Moving {
 public:
  Alltoall(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
           MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm);
  int begin(ina_context* context, ina_request** request) override;

 private:
  std::vector<char> apart_;  ///< libina exchanges nothing in place
};

/// All ranks know all counts.
class Allgatherv : public Collective {
 public:
  Allgatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
             Numbers recv_counts, Numbers places, MPI_Datatype recv_type, MPI_Comm comm);
  const char* why_not() const override;
  size_t bytes() const override { return share_; }
  int begin(ina_context* context, ina_request** request) override;
  int deliver() override { return to_->deliver(); }

 private:
  const Side send_;
  void* const recv_;
  const Numbers counts_, places_;
  const MPI_Datatype type_;
  bool fits_ = true;
  size_t share_ = 0;
  std::optional<Bytes> from_;
  std::optional<Blocks> to_;
};

/// Collectives in which a rank knows only its own counts, sent and received. Nothing is decided by
/// these counts. libina's exchange with counts has the ranks tell each other.
class Exchange : public Collective {
 public:
  size_t bytes() const override { return bytes_; }
  int begin(ina_context* context, ina_request** request) override;
  int deliver() override { return to_->deliver(); }

 protected:
  using Collective::Collective;
  using Layout = Blocks::Layout;
  /// Fills from_ and to_.
  virtual void lay_out() = 0;
  /// One block, which is for `rank` or comes from there.
  Layout one(int rank, MPI_Count count) const;
  Layout none() const { return one(0, 0); }
  Layout all(const Numbers& counts, const Numbers& places) const;

  std::optional<Blocks> from_, to_;

 private:
  size_t bytes_ = 0;
};

class Gatherv : public Exchange {
 public:
  Gatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
          Numbers recv_counts, Numbers places, MPI_Datatype recv_type, int root, MPI_Comm comm);

 private:
  void lay_out() override;
  const Side send_;
  void* const recv_;
  const Numbers counts_, places_;
  const MPI_Datatype type_;
  const int root_;
};

class Scatterv : public Exchange {
 public:
  Scatterv(const void* send, Numbers send_counts, Numbers places, MPI_Datatype send_type,
           void* recv, MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);

 private:
  void lay_out() override;
  const void* const send_;
  const Numbers counts_, places_;
  const MPI_Datatype type_;
  const Side recv_;
  const int root_;
};

class Alltoallv : public Exchange {
 public:
  Alltoallv(const void* send, Numbers send_counts, Numbers send_places, MPI_Datatype send_type,
            void* recv, Numbers recv_counts, Numbers recv_places, MPI_Datatype recv_type,
            MPI_Comm comm);

 private:
  void lay_out() override;
  const void* const send_;
  const Numbers send_counts_, send_places_;
  const MPI_Datatype send_type_;
  void* const recv_;
  const Numbers recv_counts_, recv_places_;
  const MPI_Datatype recv_type_;
};

}  // namespace ina::mpi
