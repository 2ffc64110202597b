// SPDX-License-Identifier: Apache-2.0
#include "tls/link_records.h"

#include <cstring>

#include "tls/tls.h"

namespace {

/// AES-GCM may encrypt some 2^24 records with one key, full or not. This limit is much lower.
constexpr uint64_t kRekeyRecords = uint64_t{1} << 22;

// RFC 8446, 4.6.3 and 6
constexpr std::byte kKeyUpdate[] = {std::byte{24}, std::byte{0}, std::byte{0}, std::byte{1}};
constexpr std::byte kNotRequested{0}, kRequested{1};
constexpr std::byte kCloseNotify{0};

}  // namespace

bool LinkRecords::begin(const unsigned char* ownSecret, const unsigned char* othersSecret, uint64_t rekeyBytes) {
  rekeyBytes_ = rekeyBytes;
  return outgoing_.begin(ownSecret) && incoming_.begin(othersSecret);
}

ptrdiff_t LinkRecords::fail(const char* why) {
  why_ = why;
  return end_ = kTlsFailed;
}

bool LinkRecords::acceptKeyUpdate(const RecordKey::Opened& record) {
  if (record.bytes != sizeof(kKeyUpdate) + 1 || std::memcmp(record.plain, kKeyUpdate, sizeof(kKeyUpdate)) != 0)
    return false;
  const std::byte request = record.plain[sizeof(kKeyUpdate)];
  if (request == kRequested) isUpdateAsked_.store(true, std::memory_order_relaxed);
  return (request == kRequested || request == kNotRequested) && incoming_.update();
}

ptrdiff_t LinkRecords::open(std::byte* in, size_t bytes, size_t* used, const std::byte** plain) {
  *used = 0;
  *plain = nullptr;
  if (end_ != 0) return end_;
  const size_t length = RecordKey::length(in, bytes);
  if (length == RecordKey::kNoRecord) return fail("it does not speak TLS");
  if (length == 0 || length > bytes) return 0;
  const RecordKey::Opened record = incoming_.open(in, length);
  if (!record.isWhole) return fail("a record was changed on its way");
  *used = length;
  switch (record.content) {
    case RecordKey::kData: *plain = record.plain; return static_cast<ptrdiff_t>(record.bytes);
    case RecordKey::kHandshake: return acceptKeyUpdate(record) ? 0 : fail("a message that belongs into the handshake");
    case RecordKey::kAlert:
      if (record.bytes == 2 && record.plain[1] == kCloseNotify) return end_ = kTlsClosed;
      return fail("an alert");
    default: return fail("content of an unknown kind");
  }
}

size_t LinkRecords::sealKeyUpdate(std::byte* out, bool& failed) {
  const bool isAsked = isUpdateAsked_.exchange(false, std::memory_order_relaxed);
  if (!isAsked && sealedBytes_ <= rekeyBytes_ && outgoing_.records() < kRekeyRecords) return 0;
  std::byte message[sizeof(kKeyUpdate) + 1];
  std::memcpy(message, kKeyUpdate, sizeof(kKeyUpdate));
  message[sizeof(kKeyUpdate)] = kNotRequested;
  const size_t n = outgoing_.seal(RecordKey::kHandshake, message, sizeof(message), out);
  failed = n == 0 || !outgoing_.update();
  sealedBytes_ = 0;
  return n;
}

size_t LinkRecords::seal(const std::byte* in, size_t bytes, std::byte* out, size_t room) {
  // A change of keys may come before it.
  if (room < bytes + 2 * kTlsRecordOverhead) return 0;
  sealedBytes_ += bytes;
  bool failed = false;
  const size_t before = sealKeyUpdate(out, failed);
  const size_t n = failed ? 0 : outgoing_.seal(RecordKey::kData, in, bytes, out + before);
  return n == 0 ? 0 : before + n;
}
