// SPDX-License-Identifier: Apache-2.0
// Entry points: initialisation, version, devices.
#include <cstring>
#include <string>

#include "softgpu/driver/api/api.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

// Copies a terminated text into a buffer of `length` bytes, truncating it at the end of the buffer.
CUresult putText(const std::string& text, char* buffer, int length) {
  if (!buffer || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t kept = std::min(text.size(), static_cast<size_t>(length) - 1);
  std::memcpy(buffer, text.data(), kept);
  buffer[kept] = '\0';
  return CUDA_SUCCESS;
}

CUresult getUuid(CUuuid* uuid, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device& device) -> CUresult {
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(uuid->bytes, device.uuid().data(), sizeof(uuid->bytes));
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int Flags) {
  return guarded([&]() -> CUresult {
    if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return Driver::instance().initialise();
  });
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = driver.deviceCount();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return withDevice(ordinal, [&](Driver&, Device&) -> CUresult {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device& device) { return putText(device.name(), name, len); });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return getUuid(uuid, dev); }
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) { return getUuid(uuid, dev); }

// Locally unique ids exist on Windows only.
CUresult cuDeviceGetLuid(char*, unsigned int*, CUdevice dev) {
  return withDevice(dev, [](Driver&, Device&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device& device) -> CUresult {
    if (!prop) return CUDA_ERROR_INVALID_VALUE;
    const auto value = [&](CUdevice_attribute which) { return device.attribute(which).value_or(0); };
    *prop = {
        .maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        .maxThreadsDim = {value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                          value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
        .maxGridSize = {value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                        value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
        .sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        .SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        .memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        .regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        .clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format, unsigned numChannels,
                                            CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device& device) -> CUresult {
    if (!maxWidthInElements || (numChannels != 1 && numChannels != 2 && numChannels != 4))
      return CUDA_ERROR_INVALID_VALUE;
    *maxWidthInElements =
        static_cast<size_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH).value_or(0));
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device& device) -> CUresult {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device.memoryBytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device& device) -> CUresult {
    const std::optional<int> value = device.attribute(attrib);
    if (!pi || !value) return CUDA_ERROR_INVALID_VALUE;
    *pi = *value;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device&) -> CUresult {
    if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
    *major = kComputeMajor;
    *minor = kComputeMinor;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device& device) { return putText(device.pciBusId(), pciBusId, len); });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!dev || !pciBusId) return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned slot = 0;
    // Domain and function may be left out; the only existing function is 0.
    if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
      domain = 0;
      if (std::sscanf(pciBusId, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
    }
    if (domain != 0 || slot != 0 || bus < 1 || bus > static_cast<unsigned>(driver.deviceCount())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = static_cast<CUdevice>(bus - 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  return withDevice(dev, [&](Driver&, Device&) -> CUresult {
    if (!pi) return CUDA_ERROR_INVALID_VALUE;
    *pi = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return withDevice(dev, [&](Driver& driver, Device&) -> CUresult {
    if (!canAccessPeer) return CUDA_ERROR_INVALID_VALUE;
    if (!driver.device(peerDev)) return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice srcDevice, CUdevice dstDevice) {
  return withDevice(srcDevice, [&](Driver& driver, Device&) -> CUresult {
    if (!driver.device(dstDevice) || srcDevice == dstDevice) return CUDA_ERROR_INVALID_DEVICE;
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
