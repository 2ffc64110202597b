// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static const char* yes(bool is) { return is ? "yes" : "no"; }

PROGRAM("device-properties", "properties and attributes of the device agree with each other") {
  int count = 0, device = -1;
  CHECK(cudaGetDeviceCount(&count));
  CHECK(cudaGetDevice(&device));
  say("devices %d, current %d", count, device);
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0));
  using conformance::attribute;
  say("capability agrees: %s", yes(p.major == attribute(cudaDevAttrComputeCapabilityMajor) && p.minor == attribute(cudaDevAttrComputeCapabilityMinor)));
  say("warp %d, threads per block %d, block %d %d %d, grid %d %d %d", p.warpSize, p.maxThreadsPerBlock, p.maxThreadsDim[0], p.maxThreadsDim[1],
      p.maxThreadsDim[2], p.maxGridSize[0], p.maxGridSize[1], p.maxGridSize[2]);
  say("shared memory per block %zu, constant memory %zu, registers per block %d", p.sharedMemPerBlock, p.totalConstMem, p.regsPerBlock);
  say("multiprocessors agree: %s", yes(p.multiProcessorCount == attribute(cudaDevAttrMultiProcessorCount) && p.multiProcessorCount > 0));
  say("shared memory by opting in agrees: %s", yes(static_cast<int>(p.sharedMemPerBlockOptin) == attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)));
  say("unified addressing %d, can map host memory %d, concurrent kernels %d", p.unifiedAddressing, p.canMapHostMemory, p.concurrentKernels);
  say("a name: %s, memory: %s", yes(p.name[0] != '\0'), yes(p.totalGlobalMem > 0));
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  say("the memory agrees: %s, some of it free: %s", yes(total <= p.totalGlobalMem), yes(free > 0 && free <= total));
  char bus[32] = {};
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  int again = -1;
  CHECK(cudaDeviceGetByPCIBusId(&again, bus));
  say("by its PCI address: %d, of %zu letters", again, std::strlen(bus));
  SEE(cudaDeviceGetByPCIBusId(&again, "0000:ff:1f.0"));
  SEE(cudaDeviceGetPCIBusId(bus, 3, 0));
  cudaGetLastError();
  cudaDeviceProp wanted = {};
  CHECK(cudaChooseDevice(&again, &wanted));
  say("chosen %d", again);
  unsigned flags = 99;
  CHECK(cudaGetDeviceFlags(&flags));
  say("flags %u", flags & ~static_cast<unsigned>(cudaDeviceMapHost | cudaDeviceSyncMemops));
  SEE(cudaSetDeviceFlags(cudaDeviceScheduleYield));
  CHECK(cudaGetDeviceFlags(&flags));
  say("schedule %u", flags & cudaDeviceScheduleMask);
  SEE(cudaSetDeviceFlags(0x1000));
  cudaGetLastError();
  // No existing attribute fails when it is read.
  int known = 0;
  for (int i = 1; i <= 120; ++i) {
    int value = 0;
    known += cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(i), 0) == cudaSuccess;
  }
  cudaGetLastError();
  say("most attributes are known: %s", yes(known > 100));
}
