// SPDX-License-Identifier: Apache-2.0
// Planes of arrays, and the memory of sparse ones.
#include <bit>
#include <cstring>
#include <utility>

#include "worker/session/executor.h"

namespace millpond::worker {

CUresult Executor::onArrayPlane(const cmd::Decoded<cmd::ArrayPlane>& command) {
  CUarray array = nullptr;
  if (!handle(HandleKind::kArray, command.fixed.array, array)) return violation("unknown array");
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  CUarray plane = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  if (CUresult rc = driver_.cuArrayGetPlane(&plane, array, command.fixed.plane)) return rc;
  if (CUresult rc = driver_.cuArray3DGetDescriptor_v2(&desc, plane)) return rc;
  if (!adopt(HandleKind::kArray, command.fixed.handle, plane)) return violation("the plane's handle is in use already");
  reply(cmd::ArrayPlaneReply{.width = desc.Width,
                             .height = desc.Height,
                             .depth = desc.Depth,
                             .format = static_cast<int32_t>(desc.Format),
                             .channels = desc.NumChannels});
  return CUDA_SUCCESS;
}

CUresult Executor::readTile(const Crossing<CUarrayMapInfo>& sent, CUarrayMapInfo& entry, TileChange& change) {
  entry = sent.numbers();
  void* object = nullptr;
  if (entry.resourceType == CU_RESOURCE_TYPE_ARRAY) {
    change.array = sent.handle<offsetof(CUarrayMapInfo, resource.array)>();
    if (!handle(HandleKind::kArray, change.array, object)) return violation("unknown array");
    entry.resource.array = static_cast<CUarray>(object);
  } else if (entry.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    change.array = sent.handle<offsetof(CUarrayMapInfo, resource.mipmap)>();
    if (!handle(HandleKind::kMipmappedArray, change.array, object)) return violation("unknown array");
    entry.resource.mipmap = static_cast<CUmipmappedArray>(object);
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A level or plane has no memory of its own.
  const auto known = arrayBytes_.find(change.array);
  if (!object || known == arrayBytes_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!known->second.isDeferred) change.part = ArrayTiles::partOf(entry);
  if (!std::has_single_bit(entry.deviceBitMask)) return CUDA_ERROR_INVALID_VALUE;
  CUdevice id = 0;
  if (!device(std::countr_zero(entry.deviceBitMask), id)) return violation("no device of the session");
  if (id >= 32) return CUDA_ERROR_NOT_SUPPORTED;
  entry.deviceBitMask = 1u << id;
  if (entry.memOperationType == CU_MEM_OPERATION_TYPE_MAP)
    change.memory = sent.handle<offsetof(CUarrayMapInfo, memHandle.memHandle)>();
  else if (entry.memOperationType != CU_MEM_OPERATION_TYPE_UNMAP)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult Executor::onArrayMap(const cmd::Decoded<cmd::ArrayMap>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto tail = command.tail[0];
  if (tail.empty() || tail.size() % sizeof(CUarrayMapInfo) || tail.size() > cmd::kMaxTailBytes)
    return violation("no whole entries, or too many");
  std::vector<CUarrayMapInfo> entries(tail.size() / sizeof(CUarrayMapInfo));
  std::vector<TileChange> changes(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto sent = Crossing<CUarrayMapInfo>::in(tail.data() + i * sizeof(CUarrayMapInfo));
    if (CUresult rc = readTile(sent, entries[i], changes[i])) return rc;
    if (changes[i].memory && !tiles_.hasRoom(changes[i].array, entries.size())) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // From here on the memory counts, whatever becomes of its other uses.
  std::vector<uint64_t> held;
  CUresult rc = CUDA_SUCCESS;
  for (size_t i = 0; i < entries.size() && !rc; ++i) {
    if (!changes[i].memory) continue;
    const auto memory = virtualMemory_.hold(*changes[i].memory);
    if (!memory) {
      rc = CUDA_ERROR_INVALID_VALUE;
    } else {
      held.push_back(*changes[i].memory);
      entries[i].memHandle.memHandle = *memory;
    }
  }
  if (rc) {
    virtualMemory_.forget(held);
    budgets_.publish();
    return rc;
  }
  rc = driver_.cuMemMapArrayAsync(entries.data(), static_cast<unsigned>(entries.size()), s.handle);
  std::vector<uint64_t> gone;
  for (const TileChange& change : changes) {
    // Of a list that failed any part may have been mapped, and none is known to be unmapped.
    if (change.memory) tiles_.add(change.array, change.part, *change.memory, rc ? nullptr : &gone);
    if (!change.memory && !rc) tiles_.remove(change.array, change.part, gone);
  }
  if (!gone.empty())
    frees_.end({.finish = [this, gone](uint16_t) {
      virtualMemory_.forget(gone);
      budgets_.publish();
    }});
  if (!rc) reply(cmd::ArrayMapReply{});
  return rc;
}

}  // namespace millpond::worker
