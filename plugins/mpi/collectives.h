// MPI's collective calls as libina's. A constructor has the arguments of the MPI function, in its
// order; pointers are kept as long as the call lasts, but for counts and displacements, which
// begin() reads last. No handle is kept: the program may free those of a nonblocking call.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ina/ina.h>

#include "plugins/mpi/abi.h"
#include "plugins/mpi/bytes.h"
#include "plugins/mpi/faults.h"
#include "plugins/mpi/types.h"

namespace ina::mpi {

/// A status of begin() beside libina's own: an element has more than 2 GiB.
constexpr int kElementTooLarge = -1000;

class Collective {
 public:
  explicit Collective(MPI_Comm comm);
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// What is wrong with the arguments. For MPI to say, where it says so.
  virtual Faults faults() const { return {}; }
  /// Why MPI has to do it, or null. That depends only on values that all ranks of the call have
  /// alike: the operation, the datatype of a reduction, the bytes. Something local (an address,
  /// memory, a datatype where the ranks' may differ) would let some ranks wait in the switch for
  /// others that wait in MPI.
  virtual const char* why_not() const { return nullptr; }
  /// Bytes of the message, for the report.
  virtual size_t bytes() const { return 0; }
  /// Starts it. A status of libina's.
  virtual int begin(ina_context* context, ina_request** request) = 0;
  /// Puts what was received where it belongs, after all. A status of MPI's.
  virtual int deliver() { return MPI_SUCCESS; }

 protected:
  bool is(int root) const { return rank_ == root; }
  size_t ranks() const { return static_cast<size_t>(size_); }

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
  void look_at_buffers(Faults& faults, size_t sent, size_t received) const;
  /// Where libina reads `elements` elements.
  const void* input(size_t elements);
  enum class InPlace { kAllowed, kNot };
  /// Where libina writes `elements` elements, when it reads `read` ones at input()'s. It takes the
  /// same place for both at most if `in_place` says so.
  void* output(size_t elements, size_t read, InPlace in_place);

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
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;
};

class Reduce : public Reducing {
 public:
  Reduce(const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
         MPI_Comm comm)
      : Reducing(send, recv, count, type, op, comm), root_(root) {}
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;

 private:
  const int root_;
};

class Reduce_scatter_block : public Reducing {
 public:
  Reduce_scatter_block(const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm)
      : Reducing(send, recv, count, type, op, comm) {}
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;
};

class Reduce_scatter : public Reducing {
 public:
  Reduce_scatter(const void* send, void* recv, Numbers counts, MPI_Datatype type, MPI_Op op,
                 MPI_Comm comm);
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;

 private:
  const Numbers counts_;
};

class Bcast : public Collective {
 public:
  Bcast(void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
  Faults faults() const override;
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
  int deliver() override;

 protected:
  /// The share is that of `known`: what this rank sends, if it has an argument of that.
  Moving(Side send, Side recv, const Side& known, MPI_Comm comm);
  /// This rank's share of all ranks'.
  char* own(char* all) const;
  /// Where libina writes the shares of `blocks` ranks. Where the program has given them another
  /// size, that is apart.
  char* received(int blocks, Use use = Use::kWrite);
  /// Where libina reads `count` elements of a buffer, which may overlap with what is received.
  char* sent(const Side& side, MPI_Count count);

  const Side send_, recv_;
  const std::optional<size_t> share_;
  std::optional<Bytes> from_, to_;

 private:
  void receive_apart(int blocks);
  int deliver_apart();

  bool apart_ = false;
  std::vector<char> received_apart_;
  std::optional<Blocks> places_;  ///< for what is received apart; none: too small
};

class Allgather : public Moving {
 public:
  Allgather(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
            MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm);
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;
};

class Gather : public Moving {
 public:
  Gather(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
         MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;

 private:
  const int root_;
};

class Scatter : public Moving {
 public:
  Scatter(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
          MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;

 private:
  const int root_;
};

class Alltoall : public Moving {
 public:
  Alltoall(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
           MPI_Count recv_count, MPI_Datatype recv_type, MPI_Comm comm);
  Faults faults() const override;
  int begin(ina_context* context, ina_request** request) override;
};

/// All ranks know all counts.
class Allgatherv : public Collective {
 public:
  Allgatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
             Numbers recv_counts, Numbers places, MPI_Datatype recv_type, MPI_Comm comm);
  Faults faults() const override;
  const char* why_not() const override;
  size_t bytes() const override { return share_; }
  int begin(ina_context* context, ina_request** request) override;
  int deliver() override;

 private:
  const char* own();
  const char* sent();

  const Side send_;
  void* const recv_;
  const Numbers counts_, places_;
  const MPI_Datatype type_;
  bool fits_ = true;
  size_t share_ = 0;
  std::optional<Bytes> from_;
  std::vector<char> padded_;  ///< what is sent, if it is less than what is received
  std::optional<Blocks> to_;
};

/// Collectives in which a rank knows only its own counts, sent and received. Nothing is decided by
/// these counts. libina's exchange with counts has the ranks tell each other.
class Exchange : public Collective {
 public:
  size_t bytes() const override { return bytes_; }
  int begin(ina_context* context, ina_request** request) override;
  int deliver() override;

 protected:
  using Collective::Collective;
  using Layout = Blocks::Layout;
  /// Fills from_ and to_. `apart`: what is sent is a copy in any case.
  virtual void lay_out(bool apart) = 0;
  /// One block, which is for `rank` or comes from there.
  Layout one(int rank, MPI_Count count) const;
  Layout none() const { return one(0, 0); }
  Layout all(const Numbers& counts, const Numbers& places) const;

  std::optional<Blocks> from_, to_;

 private:
  size_t bytes_ = 0;
  bool own_differ_ = false;  ///< what this rank sends to itself, and what it receives
};

class Gatherv : public Exchange {
 public:
  Gatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
          Numbers recv_counts, Numbers places, MPI_Datatype recv_type, int root, MPI_Comm comm);
  Faults faults() const override;

 private:
  void lay_out(bool apart) override;
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
  Faults faults() const override;

 private:
  void lay_out(bool apart) override;
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
  Faults faults() const override;

 private:
  void lay_out(bool apart) override;
  const void* const send_;
  const Numbers send_counts_, send_places_;
  const MPI_Datatype send_type_;
  void* const recv_;
  const Numbers recv_counts_, recv_places_;
  const MPI_Datatype recv_type_;
};

}  // namespace ina::mpi
