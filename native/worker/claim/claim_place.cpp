// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/claim_place.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <span>

#include "base/sha256.h"

namespace millpond::worker {

uint64_t ClaimPlace::key() const {
  if (directory.empty()) {
    static std::atomic<uint32_t> last{0};
    return uint64_t{1} << 63 | uint64_t{static_cast<uint32_t>(::getpid())} << 32 | ++last;
  }
  const Sha256 hash = sha256(std::as_bytes(std::span(directory)));
  uint64_t out = 0;
  std::memcpy(&out, hash.data(), sizeof out);
  if (!tenant.empty()) {
    // Other workers read the key in the gate's table: it discloses nothing of the tenant's secret.
    const Sha256 of = sha256(std::as_bytes(std::span(tenant)));
    uint32_t high = 0;
    std::memcpy(&high, of.data(), sizeof high);
    out = uint64_t{high | 1} << 32 | static_cast<uint32_t>(out);
  }
  return (out & ~(uint64_t{1} << 63)) | 1;
}

}  // namespace millpond::worker
