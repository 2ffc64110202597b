// SPDX-License-Identifier: Apache-2.0
// Answers that depend on a command's bytes alone, asked for once.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace millpond::client {

/// Keeps commands of up to `maxCommand` bytes and replies of up to `maxReply`.
template <size_t maxCommand, size_t maxReply>
class BasicAnswerCache {
 public:
  static constexpr size_t kMaxCommand = maxCommand;
  static constexpr size_t kMaxReply = maxReply;
  /// Far more than a program with repeating queries needs; a program whose queries never repeat must not grow.
  static constexpr size_t kMaxAnswers = 16384;

  struct Key {
    uint16_t op = 0;
    uint16_t context = 0;
    std::array<std::byte, kMaxCommand> body{};
    bool operator==(const Key&) const = default;
  };

  static Key key(uint16_t op, uint16_t context, std::span<const std::byte> body) {
    Key k{op, context, {}};
    if (!body.empty()) std::memcpy(k.body.data(), body.data(), body.size());
    return k;
  }
  bool find(const Key& key, std::span<std::byte> reply) const {
    std::shared_lock lock(mutex_);
    const auto found = answers_.find(key);
    if (found == answers_.end()) return false;
    std::memcpy(reply.data(), found->second.data(), reply.size());
    return true;
  }
  /// To be read before the query is sent: an answer that was overtaken by `forget` is not stored.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  /// `scope`: the function or kernel of the query, 0 for none.
  void remember(const Key& key, uint64_t scope, std::span<const std::byte> reply, uint64_t asked) {
    std::lock_guard lock(mutex_);
    if (asked != generation_.load(std::memory_order_relaxed)) return;
    if (answers_.size() >= kMaxAnswers) {
      answers_.clear();
      byScope_.clear();
    }
    auto& answer = answers_[key];
    std::memcpy(answer.data(), reply.data(), reply.size());
    if (scope) byScope_[scope].push_back(key);
  }
  void forget(uint64_t scope) {
    std::lock_guard lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
    const auto found = byScope_.find(scope);
    if (found == byScope_.end()) return;
    for (const Key& k : found->second) answers_.erase(k);
    byScope_.erase(found);
  }
  /// Drops the answers in a context that has ended.
  void forgetContext(uint16_t context) {
    std::lock_guard lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
    std::erase_if(answers_, [context](const auto& each) { return each.first.context == context; });
  }

 private:
  struct Hash {
    size_t operator()(const Key& k) const {
      uint64_t h = (uint64_t{k.op} << 16 | k.context) * 0x9E3779B97F4A7C15ULL;
      for (size_t i = 0; i < kMaxCommand; i += 8) {
        uint64_t word;
        std::memcpy(&word, k.body.data() + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdULL;
        h ^= h >> 32;
      }
      return h;
    }
  };
  std::atomic<uint64_t> generation_{0};
  mutable std::shared_mutex mutex_;
  std::unordered_map<Key, std::array<std::byte, kMaxReply>, Hash> answers_;
  std::unordered_map<uint64_t, std::vector<Key>> byScope_;
};

using AnswerCache = BasicAnswerCache<48, 24>;

}  // namespace millpond::client
