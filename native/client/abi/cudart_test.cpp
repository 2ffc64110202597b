// SPDX-License-Identifier: Apache-2.0
// The real CUDA runtime accepts the client library: built where a CUDA toolkit is found, once with the
// runtime linked statically and once with the shared one. The library is found by LD_LIBRARY_PATH, as in
// programs.
#include <cuda_runtime_api.h>

#include "testing/check.h"
#include "testing/servers/canned_worker.h"

using millpond::testing::CannedWorker;

namespace {
bool contains(const char* text, const char* part) { return std::strstr(text, part) != nullptr; }
}  // namespace

TEST("start-up: versions, devices, properties") {
  int version = 0;
  CHECK_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  CHECK_EQ(version, CannedWorker::kDriverVersion);
  int count = 0;
  CHECK_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  CHECK_EQ(count, 2);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    CHECK_EQ(cudaGetDeviceProperties(&properties, i), cudaSuccess);
    CHECK(contains(properties.name, ("Canned GPU " + std::to_string(i)).c_str()));
    CHECK_EQ(properties.totalGlobalMem, CannedWorker::kMemoryBytes);
    CHECK_EQ(properties.major, 9);
    CHECK_EQ(properties.warpSize, 32);
    CHECK_EQ(properties.pciBusID, 0xa0 + i);
    CHECK_EQ(static_cast<unsigned char>(properties.uuid.bytes[15]), static_cast<unsigned>(i));
  }
  char text[32];
  CHECK_EQ(cudaDeviceGetPCIBusId(text, sizeof text, 1), cudaSuccess);
  int device = -1;
  CHECK_EQ(cudaDeviceGetByPCIBusId(&device, text), cudaSuccess);
  CHECK_EQ(device, 1);
}

// A failed check causes error 103 on the first call that needs a context and on every later one.
TEST("the integrity check is passed: contexts come up on every device and thread") {
  for (int i = 0; i < 2; ++i) {
    CHECK_EQ(cudaSetDevice(i), cudaSuccess);
    CHECK_EQ(cudaFree(nullptr), cudaSuccess);
    int device = -1;
    CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
    CHECK_EQ(device, i);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 100; ++round) {
        CHECK_EQ(cudaSetDevice((i + round) % 2), cudaSuccess);
        CHECK_EQ(cudaFree(nullptr), cudaSuccess);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST("streams, events, priorities, flags") {
  cudaStream_t stream = nullptr;
  CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaEvent_t event = nullptr;
  CHECK_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  CHECK_EQ(cudaEventRecord(event, stream), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  CHECK_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  CHECK_EQ(status, cudaStreamCaptureStatusNone);
  CHECK_EQ(cudaEventDestroy(event), cudaSuccess);
  CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
  int least = 0;
  int greatest = 0;
  CHECK_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  CHECK_EQ(greatest, -5);
  unsigned flags = 99;
  CHECK_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
}

TEST("a device is reset again and again") {
  CHECK_EQ(cudaSetDevice(1), cudaSuccess);
  for (int round = 0; round < 20; ++round) {
    CHECK_EQ(cudaFree(nullptr), cudaSuccess);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
    CHECK_EQ(cudaDeviceReset(), cudaSuccess);
  }
}

TEST("what is not supported is refused, and the rest goes on") {
  cudaExternalMemory_t memory = nullptr;
  cudaExternalMemoryHandleDesc description{};
  description.type = cudaExternalMemoryHandleTypeOpaqueFd;
  description.size = 4096;
  CHECK_EQ(cudaImportExternalMemory(&memory, &description), cudaErrorNotSupported);
  CHECK_EQ(cudaGetLastError(), cudaErrorNotSupported);
  CHECK_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

int main(int argc, char** argv) {
  const CannedWorker worker;
  ::setenv("MILLPOND_WORKER", ("unix:" + worker.path()).c_str(), 1);
  return millpond::testing::run(argc, argv);
}
