// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/engine/occupancy.h"

#include <algorithm>

#include "softgpu/driver/host/pages.h"

namespace millpond::softgpu {
namespace {

constexpr unsigned kSharedUnit = 256;          // bytes, per block
constexpr unsigned kRegisterUnit = 256;        // registers, per warp
constexpr unsigned kWarpsPerSubpartition = 4;  // a block's warps spread over four schedulers

unsigned registersPerThread(const Function& function) { return std::clamp(function.info().registers, 1u, 64u); }

}  // namespace

int blocksPerMultiprocessor(const Function& function, unsigned threads, size_t dynamicSharedBytes) {
  const ptx::KernelInfo& info = function.info();
  // Whether the kernel may be launched with these sizes is a different question.
  if (threads == 0 || threads > ptx::kMaxThreadsPerBlock) return 0;
  const unsigned warps = (threads + ptx::kWarpSize - 1) / ptx::kWarpSize;
  unsigned blocks = std::min(kMaxBlocksPerMultiprocessor, kMaxThreadsPerMultiprocessor / (warps * ptx::kWarpSize));

  const auto perWarp = static_cast<unsigned>(roundUp(registersPerThread(function) * ptx::kWarpSize, kRegisterUnit));
  const unsigned warpsByRegisters =
      kRegistersPerMultiprocessor / kWarpsPerSubpartition / perWarp * kWarpsPerSubpartition;
  blocks = std::min(blocks, warpsByRegisters / warps);

  const uint64_t shared = roundUp(info.staticSharedBytes + uint64_t{dynamicSharedBytes}, kSharedUnit);
  if (dynamicSharedBytes > kSharedBytesPerBlockOptIn || shared > kSharedBytesPerBlockOptIn) return 0;
  if (shared > 0) blocks = std::min(blocks, static_cast<unsigned>(kSharedBytesPerMultiprocessor / shared));
  return static_cast<int>(blocks);
}

size_t dynamicSharedBytesPerBlock(const Function& function, unsigned blocks) {
  if (blocks == 0) return 0;
  const unsigned share = kSharedBytesPerMultiprocessor / blocks / kSharedUnit * kSharedUnit;
  const unsigned usable = std::min(share, kSharedBytesPerBlockOptIn);
  return usable - std::min(usable, function.info().staticSharedBytes);
}

}  // namespace millpond::softgpu
