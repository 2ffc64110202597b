// SPDX-License-Identifier: Apache-2.0
// Memory of this worker that stands for pages of the client: every reader of such a page sees the same bytes, wherever it is
// mapped here. So a copy of a graph reads the bytes that another one has written for the client.
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

  /// Bytes of the view that `view` would make; 0 where there can be none.
  static uint64_t sizeOf(uint64_t address, uint64_t bytes);
  /// The pages that [address, address + bytes) lies in: zeros where nothing has looked at them so far. Nothing where the
  /// system gives no memory.
  std::optional<View> view(uint64_t address, uint64_t bytes);
  /// Pages that nothing looks at any more are forgotten.
  void end(const View& view);

 private:
  struct Run {
    uint64_t end = 0;
    uint64_t offset = 0;  ///< in the file
    uint64_t views = 0;
  };
  void cut(uint64_t at);
  bool map(const View& view) const;

  UniqueFd file_;
  uint64_t fileEnd_ = 0;          ///< no place in the file is used twice
  std::map<uint64_t, Run> runs_;  ///< by the client's address, apart from each other
};

}  // namespace millpond::worker
