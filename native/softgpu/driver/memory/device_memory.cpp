// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/device_memory.h"

#include <utility>

namespace millpond::softgpu {

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* const memory = std::make_unique<DeviceMemory>().release();
  return *memory;
}

void DeviceMemory::open(std::span<const std::unique_ptr<Device>> devices, uint64_t guardBytes) {
  std::vector<Device*> all;
  for (const std::unique_ptr<Device>& device : devices) {
    stores_.push_back(std::make_unique<PhysicalStore>(*device));
    all.push_back(device.get());
  }
  memory_.open(std::move(all), guardBytes);
}

}  // namespace millpond::softgpu
