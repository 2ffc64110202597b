// SPDX-License-Identifier: Apache-2.0
// A driver that stands between a worker and its real one and looks at every address of every call: it must be device
// memory, or memory of the host that the worker has registered. What is neither is memory of the worker, which no client
// may come to: it is written down, and the driver is given it all the same, so that tests see what would have come of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/device/driver.h"

namespace millpond::worker {

class DriverGuard {
 public:
  /// `plain`, with the guard before it. There is one guard in a process.
  static Driver before(const Driver& plain);
  static const Driver& plain();
  /// What has reached the driver that must not, since this was asked last.
  static std::vector<std::string> takeViolations();

  /// One call: its parameters, one after the other.
  class Call {
   public:
    explicit Call(const char* symbol) : symbol_(symbol) {}
    void see(CUdeviceptr address);
    void see(const void* address) { see(reinterpret_cast<CUdeviceptr>(address)); }
    void see(const CUDA_MEMCPY3D* copy);
    void see(const CUDA_RESOURCE_DESC* resource);
    void see(const CUstreamBatchMemOpParams* operations, unsigned count);
    void see(const CUgraphNodeParams* node);
    void see(const CUlaunchConfig* config);
    void see(const CUlaunchAttributeValue* value, CUlaunchAttributeID id);
    /// Memory of the host. The worker's own may be there, as far as it is no client that names it.
    void host(const void* address);

   private:
    const char* symbol_;
  };

  /// Memory of the worker that a test lets clients name.
  static void setCanary(const void* begin, size_t bytes);
};

}  // namespace millpond::worker
