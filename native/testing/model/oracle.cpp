// SPDX-License-Identifier: Apache-2.0
#include "testing/model/oracle.h"

#include <algorithm>

namespace millpond::model {
namespace {

using Words = std::vector<uint32_t>;

class Evaluation {
 public:
  explicit Evaluation(const Program& program) : graphs_(program.graphs) {
    for (size_t slot = 0; slot < slotCount(program); ++slot) {
      Words& words = outcome_.slots.emplace_back(bufferOf(program, static_cast<int>(slot)).words);
      for (uint32_t i = 0; i < words.size(); ++i) words[i] = initialWord(static_cast<int>(slot), i);
    }
    for (size_t i = 0; i < program.ops.size(); ++i) {
      if (program.ops[i].kind == OpKind::hostCheck) {
        outcome_.checks[i] = slot(program.ops[i].from);
      } else {
        run(program.ops[i]);
      }
    }
  }
  Outcome& outcome() { return outcome_; }

 private:
  Words& slot(int number) { return outcome_.slots[static_cast<size_t>(number)]; }

  void run(const Op& op) {
    switch (op.kind) {
      case OpKind::launch:
        for (uint32_t n = 0; n < op.count; ++n)
          for (size_t i = 0; i < std::min(slot(op.to).size(), slot(op.from).size()); ++i)
            slot(op.to)[i] = slot(op.to)[i] * 3 + slot(op.from)[i] + op.value;
        break;
      case OpKind::copy:
        for (size_t i = 0; i < std::min(slot(op.to).size(), slot(op.from).size()); ++i)
          if (isTouched(op, i)) slot(op.to)[i] = slot(op.from)[i];
        break;
      case OpKind::fill:
        for (size_t i = 0; i < slot(op.to).size(); ++i)
          if (isTouched(op, i)) slot(op.to)[i] = op.value;
        break;
      case OpKind::hostFunction:
      case OpKind::hostUpdate:
        if (op.to < 0) break;
        for (uint32_t& word : slot(op.to)) word = updated(word, op.value);
        break;
      case OpKind::graph: graphs_[op.object] = op.body; break;
      case OpKind::updateGraph: graphs_[op.object] = graphs_[op.count]; break;
      case OpKind::launchGraph:
        for (const Op& each : graphs_[op.object]) run(each);
        break;
      default: break;
    }
  }
  static bool isTouched(const Op& op, size_t word) {
    return !skipsLast(op.variant) || word % kRowWords != kRowWords - 1;
  }

  Outcome outcome_;
  std::vector<std::vector<Op>> graphs_;
};

}  // namespace

Outcome evaluate(const Program& program) { return std::move(Evaluation(program).outcome()); }

}  // namespace millpond::model
