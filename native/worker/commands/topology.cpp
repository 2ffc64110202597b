// SPDX-License-Identifier: Apache-2.0
// Where the multiprocessors lie, which matrix libraries ask a hidden table of the driver.
#include <cstring>

#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr unsigned char kTableId[16] = {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                        0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
/// The size in its first word, as far as the table is known.
constexpr uintptr_t kTableBytes = 0x88;
constexpr size_t kGetSlot = 4;
constexpr size_t kFreeSlot = 13;

}  // namespace

CUresult Executor::onSmTopology(const cmd::Decoded<cmd::SmTopology>&) {
  CUuuid id{};
  std::memcpy(id.bytes, kTableId, sizeof(kTableId));
  const void* table = nullptr;
  if (!driver_.cuGetExportTable || driver_.cuGetExportTable(&table, &id) != CUDA_SUCCESS || !table)
    return CUDA_ERROR_NOT_SUPPORTED;
  const auto* words = static_cast<const uintptr_t*>(table);
  if (words[0] != kTableBytes) return CUDA_ERROR_NOT_SUPPORTED;
  CUdevice device = 0;
  int multiprocessors = 0;
  if (const CUresult rc = driver_.cuCtxGetDevice(&device)) return rc;
  if (const CUresult rc =
          driver_.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
    return rc;
  const auto get = reinterpret_cast<CUresult (*)(uint8_t**, uint8_t**)>(words[kGetSlot]);
  const auto release = reinterpret_cast<CUresult (*)(uint8_t*, uint8_t*)>(words[kFreeSlot]);
  uint8_t* places = nullptr;
  uint8_t* clusters = nullptr;
  if (const CUresult rc = get(&places, &clusters)) return rc;
  if (!places || !clusters) return CUDA_ERROR_NOT_SUPPORTED;
  const auto count = static_cast<size_t>(multiprocessors / 2);
  reply(cmd::SmTopologyReply{}, std::as_bytes(std::span(places, count)), std::as_bytes(std::span(clusters, count)));
  release(places, clusters);
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
