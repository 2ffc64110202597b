// SPDX-License-Identifier: Apache-2.0
// What streams await of the program, and commands that must not run before: functions of the client that have not returned,
// and words that the program has not written. Both arrive by later commands, so the issuing thread must not wait in the
// driver for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "worker/core/session_core.h"

namespace millpond::worker {

class FunctionOrder {
 public:
  using Command = std::function<CUresult()>;

  explicit FunctionOrder(SessionCore& session) : session_(session) {}

  /// Functions that were issued and may not be done, and streams that may wait for a word.
  uint64_t expected() const { return expected_ + words_.size(); }
  void expect(uint64_t functions) { expected_ += functions; }
  void done() {
    if (expected_ > 0) --expected_;
  }
  /// The stream's last work may wait for a word that the program writes later.
  void expectWord(const Stream& stream) {
    Mark place;
    // After a sticky failure nothing can be recorded and nothing runs any more.
    if (session_.marks().mark(stream, place) != CUDA_SUCCESS) return;
    // The latest wait of a stream ends last.
    const auto [word, isNew] = words_.try_emplace({stream.context, stream.wire}, place);
    if (isNew) return;
    session_.marks().giveBack(word->second);
    word->second = place;
  }
  /// A graph of the program has, or may get, a node that waits for a word: from now on any graph launch may wait.
  void expectWordsOfGraphs() { areWordsInGraphs_ = true; }
  void graphLaunched(const Stream& stream) {
    if (areWordsInGraphs_) expectWord(stream);
  }
  void forgetContext(uint16_t number) {
    for (auto& [stream, word] : words_) word.forgetContext(number);
  }
  /// A context has failed: only those of its functions that are already running will return.
  void expectAtMost(uint64_t functions) { expected_ = std::min(expected_, functions); }

  /// Commands that wait for the functions.
  size_t waiting() const { return after_.size(); }
  /// Runs an operation that may wait for the device: immediately, or when no function of the client is expected any
  /// more.
  CUresult run(Command command) {
    if (expected() == 0) return command();
    return runLater(session_.current(), std::move(command));
  }
  /// Runs it when no function is expected, and then replies to the request. Returns kDeferred.
  CUresult runLater(const Request& request, Command command) {
    after_.emplace_back(request, std::move(command));
    return kDeferred;
  }
  /// The context of the next waiting command; 0: none.
  uint16_t nextContext() const { return after_.empty() ? uint16_t{0} : after_.front().first.context; }
  /// Runs the operations that are due. Returns whether there was one.
  bool progress() {
    bool some = progressWords();
    while (expected() == 0 && !after_.empty() && !session_.hasEnded()) {
      const auto [request, command] = std::move(after_.front());
      after_.pop_front();
      some = true;
      if (request.context) session_.contexts().use(request.context);
      session_.resume(request);
      if (const CUresult result = command(); result != kDeferred) session_.answer(request, result);
    }
    return some;
  }

 private:
  bool progressWords() {
    bool some = false;
    for (auto word = words_.begin(); word != words_.end();) {
      if (!session_.marks().isOver(word->second)) {
        ++word;
        continue;
      }
      session_.marks().giveBack(word->second);
      word = words_.erase(word);
      some = true;
    }
    return some;
  }

  SessionCore& session_;
  uint64_t expected_ = 0;
  bool areWordsInGraphs_ = false;
  std::map<std::pair<uint16_t, uint64_t>, Mark> words_;  ///< by context and stream: behind its last wait
  std::deque<std::pair<Request, Command>> after_;
};

}  // namespace millpond::worker
