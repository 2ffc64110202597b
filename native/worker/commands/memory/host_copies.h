// SPDX-License-Identifier: Apache-2.0
// Host-to-host copies, in stream order. In the driver, such a call waits for the stream (measured:
// docs/decisions/0036), and so perhaps for a function of the client, whose return only the issuing thread receives.
// Here the stream waits for a word instead, which this thread sets after copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/commands/memory/host_buffers.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class HostCopies : private SessionPart {
 public:
  HostCopies(SessionCore& session, HostBuffers& buffers, AddressGate& addresses)
      : SessionPart(session), buffers_(buffers), addresses_(addresses) {}

  /// Whether a copy in that stream can be executed now.
  bool isDue(const Stream& stream);
  /// Calls `copy` when the stream reaches it, immediately if it is due. Later work of the stream waits for it.
  CUresult run(const Stream& stream, std::function<void()> copy);
  /// Same; the bytes stay valid until then.
  CUresult copy(const Stream& stream, std::byte* to, const std::byte* from, size_t bytes);
  /// The caller may change the bytes as soon as this returns.
  CUresult copyNow(const Stream& stream, std::byte* to, std::span<const std::byte> from);
  /// From memory of the host to a device, in the order of the stream.
  CUresult toDevice(const Stream& stream, CUdeviceptr to, const std::byte* from, size_t bytes);
  /// MemcpyDtoD with a source in host memory. Returns nothing, and does nothing, for other sources.
  std::optional<CUresult> within(std::span<const std::byte> command);
  /// MemcpyDtoD between the program's memory of the host and a device, in a capture: recorded as a copy of that
  /// direction, as it would be before the memory is mirrored. A card updates no graph whose copy changes its direction.
  /// Returns nothing, and does nothing, for others.
  std::optional<CUresult> recorded(std::span<const std::byte> command);
  /// Called before a copy of that many bytes from host memory to a device: the driver reads the source of a short copy
  /// during the call if the stream has no work of its own, even if the stream must wait for the default stream, or the
  /// default stream for others. Gives the stream work where that could happen.
  CUresult keepOrder(const Stream& stream, uint64_t bytes);
  bool empty() const { return all_.empty(); }
  bool progress();
  void forgetContext(uint16_t number);
  /// The session is over: streams no longer wait.
  void close();

 private:
  struct Word {
    uint32_t* place = nullptr;
    uint32_t value = 0;  ///< with which the stream continues
  };
  struct Copy {
    Mark mark;
    Word word;
    std::function<void()> copy;
  };

  struct Ends {
    SessionRange to, from;
    uint64_t bytes = 0;
    uint64_t stream = 0;  ///< the client's handle
  };

  /// Where a MemcpyDtoD reads and writes; none if the session may not use that memory.
  std::optional<Ends> endsOf(std::span<const std::byte> command);
  /// Whether the default stream is in step with it.
  bool isBlocking(const Stream& stream);
  CUresult queryDefault(const Stream& stream);
  CUresult takeWord(Word& word);
  void set(const Word& word);

  HostBuffers& buffers_;
  AddressGate& addresses_;
  std::deque<Copy> all_;
  std::vector<std::shared_ptr<const HostBuffer>> pages_;
  std::vector<Word> spare_;
  std::optional<Word> nothing_;  ///< for dummy work
};

}  // namespace millpond::worker
