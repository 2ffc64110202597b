// SPDX-License-Identifier: Apache-2.0
// A green context: a device's primary context under another name, with some of its multiprocessors. Which work runs on
// which of the host's cores is not for this driver to say, so the multiprocessors are numbers and nothing else.
#pragma once

#include <memory>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/context.h"

namespace millpond::softgpu {

class GreenContext {
 public:
  GreenContext(ContextPtr primary, const CUdevResource& resource);

  const ContextPtr& primary() const { return primary_; }
  const CUdevResource& resource() const { return resource_; }
  unsigned long long id() const { return id_; }
  CUgreenCtx handle() const { return reinterpret_cast<CUgreenCtx>(const_cast<GreenContext*>(this)); }
  /// The object as a context, which has the same handle.
  CUcontext contextHandle() const { return reinterpret_cast<CUcontext>(const_cast<GreenContext*>(this)); }

 private:
  const ContextPtr primary_;
  const CUdevResource resource_;
  const unsigned long long id_;
};
using GreenPtr = std::shared_ptr<GreenContext>;

/// The object behind a descriptor.
struct ResourceDescription {
  CUdevResource resource;
};

}  // namespace millpond::softgpu
