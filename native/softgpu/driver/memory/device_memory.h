// SPDX-License-Identifier: Apache-2.0
// The memory of this process's devices, and the objects of it that handles stand for.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/memory/physical_memory.h"
#include "softgpu/driver/memory/texture_objects.h"
#include "softgpu/driver/memory/texture_reference.h"
#include "softgpu/driver/memory/virtual_memory.h"
#include "softgpu/driver/model/handle_table.h"

namespace millpond::softgpu {

class DeviceMemory {
 public:
  /// The only instance in the process. It is never destroyed: the driver's threads may run until the process ends.
  static DeviceMemory& instance();

  /// To be called once, before anything else; like Memory::open.
  void open(std::span<const std::unique_ptr<Device>> devices, uint64_t guardBytes);

  Memory& memory() { return memory_; }
  VirtualMemory& virtualMemory() { return virtualMemory_; }
  PhysicalStore& store(const Device& device) { return *stores_[device.ordinal()]; }

  HandleTable<Array, CUarray>& arrays() { return arrays_; }
  HandleTable<MipmappedArray, CUmipmappedArray>& mipmappedArrays() { return mipmappedArrays_; }
  TextureObjects& textures() { return textures_; }
  HandleTable<TextureReference, CUtexref>& textureReferences() { return textureReferences_; }
  HandleTable<TextureReference, CUsurfref>& surfaceReferences() { return surfaceReferences_; }

 private:
  std::vector<std::unique_ptr<PhysicalStore>> stores_;
  Memory memory_;
  VirtualMemory virtualMemory_{memory_};
  HandleTable<Array, CUarray> arrays_;
  HandleTable<MipmappedArray, CUmipmappedArray> mipmappedArrays_;
  TextureObjects textures_;
  HandleTable<TextureReference, CUtexref> textureReferences_;
  HandleTable<TextureReference, CUsurfref> surfaceReferences_;
};

}  // namespace millpond::softgpu
