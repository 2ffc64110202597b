// SPDX-License-Identifier: Apache-2.0
#include "client/call/launch_parameters.h"

#include <array>
#include <cstdint>
#include <vector>

#include "testing/check.h"

using namespace millpond::client;

namespace {

/// Parameters of 8 and 12 bytes.
struct Kernel {
  FunctionInfo info;
  std::array<std::byte, 20> bytes{};

  Kernel() {
    info.parameters = {{0, 8}, {8, 12}};
    info.parameterBytes = 20;
  }
  CUresult pack(const void* buffer, size_t size) {
    bytes.fill(std::byte{});
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void*>(buffer), CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    return packParameters(info, nullptr, extra, bytes);
  }
};

}  // namespace

TEST("a buffer of parameters may end early, as on a card, and may be neither empty nor too long") {
  Kernel kernel;
  const std::vector<std::byte> full(64, std::byte{0xab});
  for (size_t size = 0; size <= full.size(); ++size) {
    const CUresult expected = size == 0    ? CUDA_ERROR_INVALID_VALUE
                              : size <= 20 ? CUDA_SUCCESS
                                           : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    CHECK_EQ(kernel.pack(full.data(), size), expected);
    for (size_t i = 0; i < kernel.bytes.size(); ++i)
      CHECK(kernel.bytes[i] == (expected == CUDA_SUCCESS && i < size ? std::byte{0xab} : std::byte{}));
  }
  CHECK_EQ(kernel.pack(nullptr, 20), CUDA_ERROR_INVALID_VALUE);
}

TEST("a kernel without parameters takes an empty buffer") {
  Kernel kernel;
  kernel.info.parameters.clear();
  kernel.info.parameterBytes = 0;
  CHECK_EQ(kernel.pack(nullptr, 0), CUDA_SUCCESS);
  CHECK_EQ(kernel.pack(kernel.bytes.data(), 4), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK_EQ(packParameters(kernel.info, nullptr, nullptr, {}), CUDA_SUCCESS);
}

TEST("pointers to parameters are all needed, and exclude a buffer") {
  Kernel kernel;
  const uint64_t first = 1;
  const std::array<uint32_t, 3> second{2, 3, 4};
  void* pointers[] = {const_cast<uint64_t*>(&first), const_cast<uint32_t*>(second.data())};
  CHECK_EQ(packParameters(kernel.info, pointers, nullptr, kernel.bytes), CUDA_SUCCESS);
  CHECK(kernel.bytes[0] == std::byte{1} && kernel.bytes[8] == std::byte{2} && kernel.bytes[16] == std::byte{4});
  size_t size = 20;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kernel.bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CHECK_EQ(packParameters(kernel.info, pointers, extra, kernel.bytes), CUDA_ERROR_INVALID_VALUE);
  pointers[1] = nullptr;
  CHECK_EQ(packParameters(kernel.info, pointers, nullptr, kernel.bytes), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(packParameters(kernel.info, nullptr, nullptr, kernel.bytes), CUDA_ERROR_INVALID_VALUE);
}
