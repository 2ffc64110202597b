// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/arrays/arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cuda/array_format.h"

namespace millpond::worker {
namespace {

/// The array has no memory of its own: mapped memory is counted separately.
bool isBare(const cmd::ArrayCreate& wanted) {
  return (wanted.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

/// Returns the bytes that an array is charged before it exists, and later if the driver does not report its size: all levels, in
/// the blocks of 64 bytes by 8 rows in which devices lay arrays out. Only the description that the driver gets decides.
uint64_t chargedBytes(const cmd::ArrayCreate& wanted) {
  constexpr uint64_t kBlockBytes = 64;
  const uint64_t blockRows = wanted.height > 1 ? 8 : 1;
  if (isBare(wanted)) return 0;
  const auto format = static_cast<CUarray_format>(wanted.format);
  const uint64_t element = elementBytes(format, wanted.channels), planes = std::max(planesOf(format).count, 1u);
  const bool hasLayers = (wanted.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  uint64_t all = 0;
  // No array has more levels than its extents have bits.
  for (uint32_t level = 0; level < std::clamp(wanted.levels, 1u, 64u); ++level) {
    const auto extent = [level](uint64_t whole) { return std::max<uint64_t>(whole >> level, 1); };
    uint64_t row = 0, rows = extent(wanted.height), bytes = 0;
    if (__builtin_mul_overflow(extent(wanted.width), element, &row) ||
        __builtin_add_overflow(row, kBlockBytes - 1, &row) || __builtin_add_overflow(rows, blockRows - 1, &rows) ||
        __builtin_mul_overflow(row / kBlockBytes * kBlockBytes, rows / blockRows * blockRows, &bytes) ||
        __builtin_mul_overflow(bytes, hasLayers ? std::max<uint64_t>(wanted.depth, 1) : extent(wanted.depth), &bytes) ||
        __builtin_mul_overflow(bytes, planes, &bytes) || __builtin_add_overflow(all, bytes, &all))
      return UINT64_MAX;
  }
  return all;
}

}  // namespace

CUresult Arrays::onArrayCreate(const cmd::Decoded<cmd::ArrayCreate>& command) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto attempt = [this, wanted = command.fixed]() -> CUresult {
    void* made = nullptr;
    uint64_t bytes = 0;
    if (CUresult rc = makeArray(wanted, made, bytes)) return rc;
    const HandleKind kind = wanted.levels ? HandleKind::kMipmappedArray : HandleKind::kArray;
    if (!objects_.adopt(kind, wanted.handle, made)) return violation("the array's handle is in use already");
    arrayBytes_[wanted.handle] = {contexts_.deviceOf(contexts_.bound()), bytes,
                                  (wanted.flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0};
    return CUDA_SUCCESS;
  };
  if (CUresult rc = attempt(); rc != CUDA_ERROR_OUT_OF_MEMORY) return rc;
  memory_.trimPools(contexts_.deviceOf(contexts_.bound()));
  return frees_.after(attempt, Frees::Which::kOfPoolsToo);
}

CUresult Arrays::makeArray(const cmd::ArrayCreate& wanted, void*& made, uint64_t& bytes) {
  const auto& d = driver_;
  if (!d.cuArray3DCreate_v2 || !d.cuArrayDestroy || !d.cuArrayGetMemoryRequirements) return CUDA_ERROR_NOT_SUPPORTED;
  if (wanted.levels &&
      (!d.cuMipmappedArrayCreate || !d.cuMipmappedArrayDestroy || !d.cuMipmappedArrayGetMemoryRequirements))
    return CUDA_ERROR_NOT_SUPPORTED;
  ClaimBudget& budget = budgets_.at(contexts_.deviceOf(contexts_.bound()));
  // The size of other formats is unknown.
  if (elementBytes(static_cast<CUarray_format>(wanted.format), wanted.channels) == 0) return CUDA_ERROR_INVALID_VALUE;
  bytes = chargedBytes(wanted);
  if (!budget.take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = wanted.width;
  desc.Height = wanted.height;
  desc.Depth = wanted.depth;
  desc.Format = static_cast<CUarray_format>(wanted.format);
  desc.NumChannels = wanted.channels;
  desc.Flags = wanted.flags;
  CUarray array = nullptr;
  CUmipmappedArray mipmapped = nullptr;
  CUresult rc =
      wanted.levels ? d.cuMipmappedArrayCreate(&mipmapped, &desc, wanted.levels) : d.cuArray3DCreate_v2(&array, &desc);
  if (!rc) {
    made = wanted.levels ? static_cast<void*>(mipmapped) : static_cast<void*>(array);
    CUDA_ARRAY_MEMORY_REQUIREMENTS real{};
    const CUdevice device = devices_.all()[contexts_.deviceOf(contexts_.bound())].device;
    const CUresult told = isBare(wanted)  ? CUDA_ERROR_INVALID_VALUE
                          : wanted.levels ? d.cuMipmappedArrayGetMemoryRequirements(&real, mipmapped, device)
                                          : d.cuArrayGetMemoryRequirements(&real, array, device);
    // Some drivers report it only for deferred arrays: then the estimate stands.
    if (told == CUDA_SUCCESS && real.size != 0 && real.size <= bytes) {
      budget.give({bytes - real.size});
      bytes = real.size;
    } else if (told == CUDA_SUCCESS) {
      if (budget.take(real.size - bytes)) {
        bytes = real.size;
      } else {
        wanted.levels ? d.cuMipmappedArrayDestroy(mipmapped) : d.cuArrayDestroy(array);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
  }
  if (rc) budget.give({bytes});
  budgets_.publish(contexts_.deviceOf(contexts_.bound()));
  return rc;
}

CUresult Arrays::onArrayDestroy(const cmd::Decoded<cmd::ArrayDestroy>& command) {
  const uint64_t wire = command.fixed.handle;
  const bool isMipmapped = handle::kind(wire) == HandleKind::kMipmappedArray;
  const HandleKind kind = isMipmapped ? HandleKind::kMipmappedArray : HandleKind::kArray;
  void* object = nullptr;
  if (!handle(kind, wire, object)) return violation("unknown array");
  const auto owned = arrayBytes_.find(wire);
  if (owned == arrayBytes_.end()) {
    objects_.drop(kind, wire);
    return CUDA_SUCCESS;  // a level or plane, which ends with its array
  }
  std::vector<uint64_t> tiles;
  tiles_.drop(wire, tiles);
  const ArrayMemory memory = owned->second;
  arrayBytes_.erase(owned);
  objects_.drop(kind, wire);
  if (!object) {  // its context has ended, and the array with it
    virtualMemory_.forget(tiles);
    budgets_.at(memory.device).give({memory.bytes});
    budgets_.publish();
    return CUDA_SUCCESS;
  }
  const auto finish = [this, object, isMipmapped, memory, tiles](uint16_t context) {
    const uint16_t before = contexts_.bound();
    // Arrays end with their context.
    if (context && contexts_.use(context)) {
      if (isMipmapped)
        driver_.cuMipmappedArrayDestroy(static_cast<CUmipmappedArray>(object));
      else
        driver_.cuArrayDestroy(static_cast<CUarray>(object));
    }
    if (before) contexts_.use(before);
    virtualMemory_.forget(tiles);
    budgets_.at(memory.device).give({memory.bytes});
    budgets_.publish();
  };
  // Destroying an array waits for the device: docs/decisions/0030.
  frees_.end({.finish = finish, .context = contexts_.bound(), .mayWait = true});
  return CUDA_SUCCESS;
}

CUresult Arrays::onArrayLevel(const cmd::Decoded<cmd::ArrayLevel>& command) {
  CUmipmappedArray mipmapped = nullptr;
  if (!handle(HandleKind::kMipmappedArray, command.fixed.mipmapped, mipmapped)) return violation("unknown array");
  CUarray level = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  CUresult rc = CUDA_ERROR_INVALID_HANDLE;
  if (mipmapped) rc = driver_.cuMipmappedArrayGetLevel(&level, mipmapped, command.fixed.level);
  if (!rc) rc = driver_.cuArray3DGetDescriptor_v2(&desc, level);
  if (rc) return rc;
  if (!objects_.adopt(HandleKind::kArray, command.fixed.handle, level))
    return violation("the level's handle is in use already");
  reply(cmd::ArrayLevelReply{desc.Width, desc.Height, desc.Depth});
  return CUDA_SUCCESS;
}

CUresult Arrays::onArrayRequirements(const cmd::Decoded<cmd::ArrayRequirements>& command) {
  CUdevice id = 0;
  if (!device(command.fixed.device, id)) return violation("no device of the session");
  CUDA_ARRAY_MEMORY_REQUIREMENTS real{};
  CUresult rc = CUDA_ERROR_INVALID_HANDLE;
  if (handle::kind(command.fixed.handle) == HandleKind::kMipmappedArray) {
    CUmipmappedArray mipmapped = nullptr;
    if (!handle(HandleKind::kMipmappedArray, command.fixed.handle, mipmapped)) return violation("unknown array");
    if (mipmapped) rc = driver_.cuMipmappedArrayGetMemoryRequirements(&real, mipmapped, id);
  } else {
    CUarray array = nullptr;
    if (!handle(HandleKind::kArray, command.fixed.handle, array)) return violation("unknown array");
    if (array) rc = driver_.cuArrayGetMemoryRequirements(&real, array, id);
  }
  if (!rc) reply(cmd::ArrayRequirementsReply{real.size, real.alignment});
  return rc;
}

CUresult Arrays::onArrayPlane(const cmd::Decoded<cmd::ArrayPlane>& command) {
  CUarray array = nullptr;
  if (!handle(HandleKind::kArray, command.fixed.array, array)) return violation("unknown array");
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  CUarray plane = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  if (CUresult rc = driver_.cuArrayGetPlane(&plane, array, command.fixed.plane)) return rc;
  if (CUresult rc = driver_.cuArray3DGetDescriptor_v2(&desc, plane)) return rc;
  if (!objects_.adopt(HandleKind::kArray, command.fixed.handle, plane))
    return violation("the plane's handle is in use already");
  reply(cmd::ArrayPlaneReply{.width = desc.Width,
                             .height = desc.Height,
                             .depth = desc.Depth,
                             .format = static_cast<int32_t>(desc.Format),
                             .channels = desc.NumChannels});
  return CUDA_SUCCESS;
}

CUresult Arrays::readTile(const Crossing<CUarrayMapInfo>& sent, CUarrayMapInfo& entry, TileChange& change) {
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

CUresult Arrays::onArrayMap(const cmd::Decoded<cmd::ArrayMap>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto tail = command.tail[0];
  if (tail.empty() || tail.size() % sizeof(CUarrayMapInfo) || tail.size() > cmd::kMaxTailBytes)
    return violation("incomplete entries, or too many");
  std::vector<CUarrayMapInfo> entries(tail.size() / sizeof(CUarrayMapInfo));
  std::vector<TileChange> changes(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto sent = Crossing<CUarrayMapInfo>::in(tail.data() + i * sizeof(CUarrayMapInfo));
    if (CUresult rc = readTile(sent, entries[i], changes[i])) return rc;
    if (changes[i].memory && !tiles_.hasRoom(changes[i].array, entries.size())) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // From now on the memory counts, independently of its other uses.
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
    // After a failure any part of the list may have been mapped, and no part is known to be unmapped.
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
