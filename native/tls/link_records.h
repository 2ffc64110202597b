// SPDX-License-Identifier: Apache-2.0
// What goes over a link behind its handshake: data, and changes of keys.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tls/record_key.h"

/// One thread may open records while another seals some.
class LinkRecords {
 public:
  /// By the traffic secrets of both directions. `rekeyBytes`: after how many another key seals. False: out of memory.
  bool begin(const unsigned char* ownSecret, const unsigned char* othersSecret, uint64_t rekeyBytes);

  /// As MillpondTlsFunctions has it.
  ptrdiff_t open(std::byte* in, size_t bytes, size_t* used, const std::byte** plain);
  size_t seal(const std::byte* in, size_t bytes, std::byte* out, size_t room);
  /// Why a record could not be opened.
  const char* why() const { return why_; }

 private:
  ptrdiff_t fail(const char* why);
  /// A message of the handshake behind its end.
  bool acceptKeyUpdate(const RecordKey::Opened& record);
  /// Where the key has sealed enough, says so and goes on with the next. The length of that record, which may be none.
  size_t sealKeyUpdate(std::byte* out, bool& failed);

  RecordKey incoming_;
  const char* why_ = "";
  ptrdiff_t end_ = 0;  // how it ended

  RecordKey outgoing_;
  uint64_t rekeyBytes_ = 0;
  uint64_t sealedBytes_ = 0;

  std::atomic<bool> isUpdateAsked_{false};  // by the other side
};
