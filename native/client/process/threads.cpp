// SPDX-License-Identifier: Apache-2.0
#include "client/process/threads.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/wire.h"

namespace millpond::client {
namespace {

std::array<std::atomic<uint32_t>, wire::kContextLimit>& generations() {
  static auto& all = *new std::array<std::atomic<uint32_t>, wire::kContextLimit>();
  return all;
}

struct OwnStream {
  uint64_t wire = 0;
  uint32_t generation = 0;
};

struct OwnStreams {
  ThreadStreams::End end = nullptr;
  std::vector<OwnStream> streams;  ///< by number of the context
};

thread_local OwnStreams* own = nullptr;

/// Runs on an ending thread that had streams of its own. Its later calls may create others.
void endStreams(void* of) {
  const std::unique_ptr<OwnStreams> ended(static_cast<OwnStreams*>(of));
  own = nullptr;
  for (size_t context = 0; context < ended->streams.size(); ++context) {
    const OwnStream& stream = ended->streams[context];
    if (stream.wire != 0 && stream.generation == generations()[context].load(std::memory_order_relaxed))
      ended->end(static_cast<uint16_t>(context), stream.wire);
  }
}

/// None if the system has no key left: then the streams stay until the process ends.
std::optional<pthread_key_t> endOfThread() {
  static const std::optional<pthread_key_t> key = []() -> std::optional<pthread_key_t> {
    pthread_key_t made{};
    if (::pthread_key_create(&made, &endStreams) != 0) return std::nullopt;
    return made;
  }();
  return key;
}

}  // namespace

uint64_t ThreadStreams::get(uint16_t context) noexcept {
  if (!own || context >= own->streams.size()) return 0;
  const OwnStream& stream = own->streams[context];
  return stream.generation == generations()[context].load(std::memory_order_relaxed) ? stream.wire : 0;
}

void ThreadStreams::set(uint16_t context, uint64_t wire, End end) noexcept {
  if (context >= wire::kContextLimit) return;
  if (!own) {
    own = std::make_unique<OwnStreams>().release();
    if (const auto key = endOfThread()) ::pthread_setspecific(*key, own);
  }
  own->end = end;
  if (context >= own->streams.size()) own->streams.resize(context + size_t{1});
  own->streams[context] = {wire, generations()[context].load(std::memory_order_relaxed)};
}

void ThreadStreams::forget(uint16_t context) noexcept {
  if (context < wire::kContextLimit) generations()[context].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace millpond::client
