// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/streams/topology.h"

#include <cstring>

namespace millpond::worker {
namespace {

constexpr unsigned char kTableId[16] = {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                        0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
/// The size in its first word, as far as the table is known.
constexpr uintptr_t kTableBytes = 0x88;
constexpr size_t kGetSlot = 4;
constexpr size_t kFreeSlot = 13;
constexpr size_t kMaxOperations = 64;

}  // namespace

CUresult Topology::onSmTopology(const cmd::Decoded<cmd::SmTopology>&) {
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

CUresult Topology::onAtomicCapabilities(const cmd::Decoded<cmd::AtomicCapabilities>& command) {
  CUdevice from = 0, to = 0;
  if (!device(command.fixed.device, from)) return violation("no device of the session");
  if (command.fixed.peer != -1 && !device(command.fixed.peer, to)) return violation("no device of the session");
  const auto bytes = command.tail[0];
  std::vector<CUatomicOperation> operations(bytes.size() / sizeof(CUatomicOperation));
  if (bytes.size() % sizeof(CUatomicOperation) || operations.empty() || operations.size() > kMaxOperations)
    return violation("questions about " + std::to_string(operations.size()) + " atomic operations");
  std::memcpy(operations.data(), bytes.data(), bytes.size());
  std::vector<unsigned> capabilities(operations.size());
  const auto count = static_cast<unsigned>(operations.size());
  const CUresult rc =
      command.fixed.peer == -1
          ? driver_.cuDeviceGetHostAtomicCapabilities(capabilities.data(), operations.data(), count, from)
          : driver_.cuDeviceGetP2PAtomicCapabilities(capabilities.data(), operations.data(), count, from, to);
  if (rc) return rc;
  reply(cmd::AtomicCapabilitiesReply{.count = count}, std::as_bytes(std::span(capabilities)));
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
