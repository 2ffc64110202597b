// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("devices", "devices: names, identities, attributes, limits that every device has") {
  CUdevice gpu = device();
  int count = 0, version = 0;
  CHECK(cuDeviceGetCount(&count));
  CHECK(cuDriverGetVersion(&version));
  say("devices %d, version 13.0 or later: %s", count, yes(version >= 13000));
  char name[256] = {0}, shorter[4] = {0};
  CHECK(cuDeviceGetName(name, sizeof name, gpu));
  SEE(cuDeviceGetName(shorter, sizeof shorter, gpu));
  say("a name: %s, cut to %zu letters", yes(name[0] != 0), strnlen(shorter, sizeof shorter));
  CUuuid uuid, again;
  CHECK(cuDeviceGetUuid_v2(&uuid, gpu));
  CHECK(cuDeviceGetUuid(&again, gpu));
  say("one identity: %s", yes(memcmp(&uuid, &again, sizeof uuid) == 0));
  char bus[32];
  CHECK(cuDeviceGetPCIBusId(bus, sizeof bus, gpu));
  CUdevice found = -1;
  CHECK(cuDeviceGetByPCIBusId(&found, bus));
  say("by its PCI address: %d", found);
  char luid[8];
  unsigned mask;
  SEE(cuDeviceGetLuid(luid, &mask, gpu));
  size_t bytes = 0;
  CHECK(cuDeviceTotalMem_v2(&bytes, gpu));
  say("memory: %s", yes(bytes > 0));
  say("warp %d, threads %d, block %d %d %d, grid %d %d %d", attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
      attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y), attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
      attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
      attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z));
  say("unified addressing %d, overlap %d, compute mode %d", attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
      attribute(CU_DEVICE_ATTRIBUTE_GPU_OVERLAP), attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
  int value = 0, known = 0;
  for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; ++i) known += cuDeviceGetAttribute(&value, (CUdevice_attribute)i, gpu) == CUDA_SUCCESS;
  say("most attributes are known: %s", yes(known > 110));
  SEE(cuDeviceGetAttribute(&value, (CUdevice_attribute)0, gpu));
  SEE(cuDeviceGetAttribute(&value, (CUdevice_attribute)5000, gpu));
  SEE(cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, gpu));
  CUdevprop properties;
  SEE(cuDeviceGetProperties(&properties, gpu));
  say("properties agree: %s", yes(properties.maxThreadsPerBlock == attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)));
  int major = 0, minor = 0;
  SEE(cuDeviceComputeCapability(&major, &minor, gpu));
  say("capability agrees: %s", yes(major == attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)));
  size_t width = 0;
  SEE(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, gpu));
  int affinity = 9;
  SEE(cuDeviceGetExecAffinitySupport(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT, gpu));
}
