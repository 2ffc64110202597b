// SPDX-License-Identifier: Apache-2.0
// The records of a link after its handshake: data, and key updates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tls/record_key.h"

/// One thread may decrypt records while another encrypts.
class LinkRecords {
 public:
  /// Starts with the traffic secrets of both directions. `rekeyBytes`: number of bytes after which the key changes.
  /// False: out of memory.
  bool begin(const unsigned char* ownSecret, const unsigned char* othersSecret, uint64_t rekeyBytes);

  /// As in MillpondTlsFunctions.
  ptrdiff_t open(std::byte* in, size_t bytes, size_t* used, const std::byte** plain);
  size_t seal(const std::byte* in, size_t bytes, std::byte* out, size_t room);
  /// The reason why a record could not be decrypted.
  const char* why() const { return why_; }

 private:
  ptrdiff_t fail(const char* why);
  /// A handshake message after the handshake.
  bool acceptKeyUpdate(const RecordKey::Opened& record);
  /// If the key has encrypted enough, announces and performs a key update. Returns the length of that record, 0 if
  /// none.
  size_t sealKeyUpdate(std::byte* out, bool& failed);

  RecordKey incoming_;
  const char* why_ = "";
  ptrdiff_t end_ = 0;  // how it ended

  RecordKey outgoing_;
  uint64_t rekeyBytes_ = 0;
  uint64_t sealedBytes_ = 0;

  std::atomic<bool> isUpdateAsked_{false};  // by the other side
};
