// SPDX-License-Identifier: Apache-2.0
// Memory of this worker that represents pages of the client: every reader of such a page sees the same bytes, wherever
// it is mapped here. So one copy of a graph can read the bytes that another one has written for the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/unique_fd.h"

namespace millpond::worker {

class ClientPages {
 public:
  static constexpr uint64_t kPage = 4096;

  /// A mapping of whole pages.
  struct View {
    uint64_t address = 0;  ///< of the client: the first page
    uint64_t bytes = 0;
    std::byte* memory = nullptr;

    std::byte* at(uint64_t clientAddress) const { return memory + (clientAddress - address); }
  };

  /// Bytes of the view that `view` would create; 0 if it cannot.
  static uint64_t sizeOf(uint64_t address, uint64_t bytes);
  /// The pages of [address, address + bytes): zeros if they were not used before. Nothing if the system is out of
  /// memory.
  std::optional<View> view(uint64_t address, uint64_t bytes);
  /// The same for whole pages, mapped at their address of the client. Nothing if something else is there, too.
  std::optional<View> viewInPlace(uint64_t address, uint64_t bytes);
  /// Unused pages are forgotten.
  void end(const View& view);

 private:
  struct Run {
    uint64_t end = 0;
    uint64_t offset = 0;  ///< in the file
    uint64_t views = 0;
  };
  std::optional<View> view(const View& wanted, int flags);
  void cut(uint64_t at);
  bool map(const View& view) const;

  UniqueFd file_;
  uint64_t fileEnd_ = 0;          ///< offsets in the file are never reused
  std::map<uint64_t, Run> runs_;  ///< by the client's address, disjoint
};

}  // namespace millpond::worker
