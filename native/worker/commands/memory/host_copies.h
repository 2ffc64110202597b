// SPDX-License-Identifier: Apache-2.0
// Copies between two places in memory of the host, in the order of streams. The driver waits for the stream inside of the
// call that asks for such a copy (measured: docs/decisions/0036), and so perhaps for a function of the client, whose end only
// the issuing thread hears of. Here the stream waits for a word instead, which is set when this thread has copied.
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

  /// Whether a copy in that stream can be made now.
  bool isDue(const Stream& stream);
  /// Calls `copy` when the stream has come there, now where it is due. What comes behind it in the stream waits for it.
  CUresult run(const Stream& stream, std::function<void()> copy);
  /// As that; the bytes stay until then.
  CUresult copy(const Stream& stream, std::byte* to, const std::byte* from, size_t bytes);
  /// The caller may change the bytes as soon as this returns.
  CUresult copyNow(const Stream& stream, std::byte* to, std::span<const std::byte> from);
  /// From memory of the host to a device, in the order of the stream.
  CUresult toDevice(const Stream& stream, CUdeviceptr to, const std::byte* from, size_t bytes);
  /// MemcpyDtoD, if its source is memory of the host. Nothing, and nothing is done, where it is not.
  std::optional<CUresult> within(std::span<const std::byte> command);
  /// Before a copy of that many bytes from memory of the host to a device: the driver reads the source of a short one at
  /// the call where the stream has no work of its own, even if the stream has to wait for the default stream, or the
  /// default stream for others. Gives the stream work where that could be.
  CUresult keepOrder(const Stream& stream, uint64_t bytes);
  bool empty() const { return all_.empty(); }
  bool progress();
  void forgetContext(uint16_t number);
  /// The session is over: streams wait no more.
  void close();

 private:
  struct Word {
    uint32_t* place;
    uint32_t value;  ///< with which the stream goes on
  };
  struct Copy {
    Mark mark;
    Word word;
    std::function<void()> copy;
  };

  /// Whether the default stream is in step with it.
  bool isBlocking(const Stream& stream);
  CUresult queryDefault(const Stream& stream);
  std::optional<Word> takeWord();
  void set(const Word& word);

  HostBuffers& buffers_;
  AddressGate& addresses_;
  std::deque<Copy> all_;
  std::vector<std::shared_ptr<const HostBuffer>> pages_;
  std::vector<Word> spare_;
  std::optional<Word> nothing_;  ///< for work without a meaning
};

}  // namespace millpond::worker
