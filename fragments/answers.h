// A worker's answers to the fallback's questions (POLL).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "aggregator/fixed_queue.h"
#include "fragments/flow.h"
#include "fragments/parking.h"

namespace ina::client {

class Answers {
 public:
  Answers(Flow& flow, Parking& parking);

  void on_poll(const wire::Message& poll);

  size_t prepare(std::span<TxPacket> packets);
  void sent(size_t count) { questions_.pop(count); }
  bool has_output() const { return questions_.size() != 0; }

 private:
  struct Question {
    Seq seq;
    WorkerSet ask = {};
    uint32_t instance = 0;
    wire::Phase phase{};
  };
  bool answer(const Question& question, TxPacket& packet);
  bool answer_have(Seq seq, const Fragment& fragment, TxPacket& packet);
  bool contribute_again(Seq seq, const Fragment& fragment, TxPacket& packet) const;
  void defer(const Question& question, Fragment& fragment, TxPacket& packet);

  Flow& flow_;
  Parking& parking_;
  aggregator::FixedQueue<Question> questions_;
};

}  // namespace ina::client
