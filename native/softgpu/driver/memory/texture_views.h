// SPDX-License-Identifier: Apache-2.0
// How kernels see what textures and references name by a handle or an address.
#pragma once

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/device_memory.h"
#include "softgpu/driver/memory/texture_reference.h"
#include "softgpu/ptx/texture.h"

namespace millpond::softgpu {

/// A resource of any kind; CUDA_ERROR_INVALID_HANDLE for an unknown array.
CUresult viewOf(DeviceMemory& device, const CUDA_RESOURCE_DESC& resource, ptx::TextureView* view);
/// The resource bound to a reference; CUDA_ERROR_INVALID_VALUE if it cannot be read this way.
CUresult viewOfReference(DeviceMemory& device, const TextureReference::State& state, ptx::Reference kind,
                         ptx::TextureView* view);

}  // namespace millpond::softgpu
