// SPDX-License-Identifier: Apache-2.0
// A driver between a worker and its real driver that checks every address of every call: it must be device memory, or
// host memory that the worker has registered. Any other address is memory of the worker, which no client may reach: it
// is recorded, and still passed on, so that tests see the consequences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/device/driver.h"

namespace millpond::worker {

class DriverGuard {
 public:
  /// Wraps `plain` in the guard. There is one guard in a process.
  static Driver before(const Driver& plain);
  static const Driver& plain();
  /// Forbidden addresses that have reached the driver since the last call.
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
    /// Host memory. The worker may pass its own, unless a client named it.
    void host(const void* address);

   private:
    const char* symbol_;
  };

  /// Memory of the worker that a test lets clients name.
  static void setCanary(const void* begin, size_t bytes);
};

}  // namespace millpond::worker
