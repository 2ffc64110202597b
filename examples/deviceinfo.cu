// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime says about each device this process can see. Its output differs from device to device.
#include "example.h"

static bool run(const example::Arguments&) {
  int driver = 0, runtime = 0, devices = 0;
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaGetDeviceCount(&devices));
  std::printf("CUDA driver %d.%d, runtime %d.%d\n", driver / 1000, driver % 1000 / 10, runtime / 1000,
              runtime % 1000 / 10);

  int before = 0;
  CHECK(cudaGetDevice(&before));
  for (int i = 0; i < devices; ++i) {
    cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cudaGetDeviceProperties(&properties, i));
    CHECK(cudaSetDevice(i));
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    std::printf("device %d: %s, compute capability %d.%d, %d multiprocessors\n", i, properties.name, properties.major,
                properties.minor, properties.multiProcessorCount);
    std::printf("  uuid GPU-");
    for (int byte = 0; byte < 16; ++byte) {
      const bool dash = byte == 4 || byte == 6 || byte == 8 || byte == 10;
      std::printf("%s%02x", dash ? "-" : "", static_cast<unsigned char>(properties.uuid.bytes[byte]));
    }
    std::printf(", pci %04x:%02x:%02x.0\n", static_cast<unsigned>(properties.pciDomainID),
                static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
    std::printf("  memory %zu MiB, of which free %zu MiB (properties say %zu MiB)\n", total_bytes >> 20,
                free_bytes >> 20, properties.totalGlobalMem >> 20);
    std::printf("  warp %d, threads per block %d, shared memory per block %zu KiB\n", properties.warpSize,
                properties.maxThreadsPerBlock, properties.sharedMemPerBlock >> 10);
  }
  CHECK(cudaSetDevice(before));
  std::printf("deviceinfo: %s (%d devices)\n", devices > 0 ? "OK" : "WRONG", devices);
  return devices > 0;
}

EXAMPLE("deviceinfo", "", "prints what the runtime says about each device", run);
