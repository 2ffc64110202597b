// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/model/green_context.h"

#include <atomic>

namespace millpond::softgpu {
namespace {

/// Above the numbers of other contexts.
unsigned long long nextGreenId() {
  static std::atomic<unsigned long long> last = 1ull << 32;
  return ++last;
}

}  // namespace

GreenContext::GreenContext(ContextPtr primary, const CUdevResource& resource)
    : primary_(std::move(primary)), resource_(resource), id_(nextGreenId()) {}

}  // namespace millpond::softgpu
