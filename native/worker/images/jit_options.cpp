// SPDX-License-Identifier: Apache-2.0
#include "worker/images/jit_options.h"

#include <algorithm>
#include <cstring>

#include "protocol/wire.h"

namespace millpond::worker {

static_assert(2 * size_t{kMaxJitLogBytes} + 4096 <= wire::kMaxReplyBytes, "both logs have to fit into a reply");

bool JitOptions::read(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(JitOptionRecord) || bytes.size() > kMaxJitOptions * sizeof(JitOptionRecord)) return false;
  std::vector<JitOptionRecord> records(bytes.size() / sizeof(JitOptionRecord));
  if (!records.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
  for (const JitOptionRecord& record : records) {
    const auto id = static_cast<CUjit_option>(record.id);
    void* value = reinterpret_cast<void*>(record.value);
    switch (kindOf(id)) {
      case JitOptionKind::kRefused:
      case JitOptionKind::kUnknown: return false;
      case JitOptionKind::kInfoLog:
      case JitOptionKind::kErrorLog: {
        std::vector<char>& log = id == CU_JIT_INFO_LOG_BUFFER ? info_ : error_;
        if (record.value > kMaxJitLogBytes || !log.empty()) return false;
        if (record.value == 0) continue;
        log.resize(record.value);
        value = log.data();
        break;
      }
      default: break;
    }
    ids_.push_back(id);
    values_.push_back(value);
  }
  // The driver must not get a size larger than the buffer. It also refuses a log without a buffer.
  for (size_t i = 0; i < ids_.size();) {
    const JitOptionKind kind = kindOf(ids_[i]);
    const bool isSize = kind == JitOptionKind::kInfoBytes || kind == JitOptionKind::kErrorBytes;
    const size_t room = (kind == JitOptionKind::kInfoBytes ? info_ : error_).size();
    if (isSize && room == 0) {
      ids_.erase(ids_.begin() + static_cast<ptrdiff_t>(i));
      values_.erase(values_.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    if (isSize) values_[i] = reinterpret_cast<void*>(room);
    ++i;
  }
  return true;
}

uint32_t JitOptions::number(CUjit_option option) const {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (ids_[i] == option) return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values_[i]));
  return 0;
}

float JitOptions::wallTimeMs() const {
  const uint32_t bits = number(CU_JIT_WALL_TIME);
  float time;
  std::memcpy(&time, &bits, sizeof time);
  return time;
}

std::span<const std::byte> JitOptions::text(const std::vector<char>& log) {
  const size_t length = log.empty() ? 0 : ::strnlen(log.data(), log.size());
  return std::as_bytes(std::span(log.data(), length));
}

}  // namespace millpond::worker
