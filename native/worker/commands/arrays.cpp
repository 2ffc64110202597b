// SPDX-License-Identifier: Apache-2.0
// Arrays, the texture and surface objects over them, and copies in up to three dimensions.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

/// Without memory of its own: what is mapped to it counts by itself.
bool isBare(const cmd::ArrayCreate& wanted) {
  return (wanted.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

/// An estimate from below of what an array takes; what it really takes is known when it is there.
uint64_t leastBytes(const cmd::ArrayCreate& wanted) {
  if (isBare(wanted)) return 0;
  uint64_t bytes = wanted.elementBytes;
  for (const uint64_t extent : {wanted.width, wanted.height, wanted.depth})
    if (__builtin_mul_overflow(bytes, std::max<uint64_t>(extent, 1), &bytes)) return UINT64_MAX;
  return bytes;
}

}  // namespace

CUresult Executor::onCopyBox(const cmd::Decoded<cmd::CopyBox>& command) {
  const auto& box = command.fixed;
  Stream s;
  if (!stream(box.stream, s)) return violation("unknown stream");
  if (box.width == 0 || box.height == 0 || box.depth == 0) return violation("a box of nothing");
  CUDA_MEMCPY3D copy{};
  const auto end = [&](uint64_t array, wire::Address address, uint64_t pitch, uint64_t rows, CUmemorytype& type,
                       CUarray& handleOut, CUdeviceptr& device, auto& host, size_t& pitchOut, size_t& rowsOut) -> CUresult {
    if (array) {
      type = CU_MEMORYTYPE_ARRAY;
      if (!handle(HandleKind::kArray, array, handleOut)) return violation("unknown array");
      return handleOut ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    SessionRange range;
    if (CUresult rc = addresses_.reach(
            Box{.address = address, .pitch = pitch, .rows = rows, .width = box.width, .height = box.height, .depth = box.depth},
            range))
      return rc;
    type = range.isHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (range.isHost()) host = range.host();
    else device = range.device();
    pitchOut = pitch;
    rowsOut = rows;
    return CUDA_SUCCESS;
  };
  if (CUresult rc = end(box.srcArray, box.srcAddress, box.srcPitch, box.srcRows, copy.srcMemoryType, copy.srcArray,
                        copy.srcDevice, copy.srcHost, copy.srcPitch, copy.srcHeight))
    return rc;
  if (CUresult rc = end(box.dstArray, box.dstAddress, box.dstPitch, box.dstRows, copy.dstMemoryType, copy.dstArray,
                        copy.dstDevice, copy.dstHost, copy.dstPitch, copy.dstHeight))
    return rc;
  if (box.srcArray) {
    copy.srcXInBytes = box.srcX;
    copy.srcY = box.srcY;
    copy.srcZ = box.srcZ;
  }
  if (box.dstArray) {
    copy.dstXInBytes = box.dstX;
    copy.dstY = box.dstY;
    copy.dstZ = box.dstZ;
  }
  copy.WidthInBytes = box.width;
  copy.Height = box.height;
  copy.Depth = box.depth;
  if (!driver_.cuMemcpy3DAsync_v2) return CUDA_ERROR_NOT_SUPPORTED;
  return driver_.cuMemcpy3DAsync_v2(&copy, s.handle);
}

CUresult Executor::onArrayCreate(const cmd::Decoded<cmd::ArrayCreate>& command) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto attempt = [this, wanted = command.fixed]() -> CUresult {
    void* made = nullptr;
    uint64_t bytes = 0;
    if (CUresult rc = makeArray(wanted, made, bytes)) return rc;
    const HandleKind kind = wanted.levels ? HandleKind::kMipmappedArray : HandleKind::kArray;
    if (!adopt(kind, wanted.handle, made)) return violation("the array's handle is in use already");
    arrayBytes_[wanted.handle] = {contexts_.deviceOf(contexts_.bound()), bytes, (wanted.flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0};
    return CUDA_SUCCESS;
  };
  if (CUresult rc = attempt(); rc != CUDA_ERROR_OUT_OF_MEMORY) return rc;
  memory_.trimPools(contexts_.deviceOf(contexts_.bound()));
  return frees_.after(attempt, Frees::Which::kOfPoolsToo);
}

CUresult Executor::makeArray(const cmd::ArrayCreate& wanted, void*& made, uint64_t& bytes) {
  const auto& d = driver_;
  if (!d.cuArray3DCreate_v2 || !d.cuArrayDestroy || !d.cuArrayGetMemoryRequirements) return CUDA_ERROR_NOT_SUPPORTED;
  if (wanted.levels && (!d.cuMipmappedArrayCreate || !d.cuMipmappedArrayDestroy ||
                        !d.cuMipmappedArrayGetMemoryRequirements))
    return CUDA_ERROR_NOT_SUPPORTED;
  ClaimBudget& budget = budgets_.at(contexts_.deviceOf(contexts_.bound()));
  bytes = leastBytes(wanted);
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
  CUresult rc = wanted.levels ? d.cuMipmappedArrayCreate(&mipmapped, &desc, wanted.levels)
                              : d.cuArray3DCreate_v2(&array, &desc);
  if (!rc) {
    made = wanted.levels ? static_cast<void*>(mipmapped) : static_cast<void*>(array);
    CUDA_ARRAY_MEMORY_REQUIREMENTS real{};
    const CUdevice device = devices_.all()[contexts_.deviceOf(contexts_.bound())].device;
    const CUresult told = isBare(wanted)  ? CUDA_ERROR_INVALID_VALUE
                          : wanted.levels ? d.cuMipmappedArrayGetMemoryRequirements(&real, mipmapped, device)
                                          : d.cuArrayGetMemoryRequirements(&real, array, device);
    // Some drivers tell it of arrays only whose memory comes later: then the estimate stands.
    if (told == CUDA_SUCCESS && real.size > bytes) {
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

CUresult Executor::onArrayDestroy(const cmd::Decoded<cmd::ArrayDestroy>& command) {
  const uint64_t wire = command.fixed.handle;
  const bool isMipmapped = handle::kind(wire) == HandleKind::kMipmappedArray;
  const HandleKind kind = isMipmapped ? HandleKind::kMipmappedArray : HandleKind::kArray;
  void* object = nullptr;
  if (!handle(kind, wire, object)) return violation("unknown array");
  const auto owned = arrayBytes_.find(wire);
  if (owned == arrayBytes_.end()) {
    drop(kind, wire);
    return CUDA_SUCCESS;  // a level or plane, which its array ends
  }
  std::vector<uint64_t> tiles;
  tiles_.drop(wire, tiles);
  const ArrayMemory memory = owned->second;
  arrayBytes_.erase(owned);
  drop(kind, wire);
  if (!object) {  // its context has ended, and took it along
    virtualMemory_.forget(tiles);
    budgets_.at(memory.device).give({memory.bytes});
    budgets_.publish();
    return CUDA_SUCCESS;
  }
  const auto finish = [this, object, isMipmapped, memory, tiles](uint16_t context) {
    const uint16_t before = contexts_.bound();
    // A context that has ended took its arrays along.
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
  // The end of an array waits for the device: docs/decisions/0030.
  frees_.end({.finish = finish, .context = contexts_.bound(), .mayWait = true});
  return CUDA_SUCCESS;
}

CUresult Executor::onArrayLevel(const cmd::Decoded<cmd::ArrayLevel>& command) {
  CUmipmappedArray mipmapped = nullptr;
  if (!handle(HandleKind::kMipmappedArray, command.fixed.mipmapped, mipmapped)) return violation("unknown array");
  CUarray level = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  CUresult rc = CUDA_ERROR_INVALID_HANDLE;
  if (mipmapped) rc = driver_.cuMipmappedArrayGetLevel(&level, mipmapped, command.fixed.level);
  if (!rc) rc = driver_.cuArray3DGetDescriptor_v2(&desc, level);
  if (rc) return rc;
  if (!adopt(HandleKind::kArray, command.fixed.handle, level)) return violation("the level's handle is in use already");
  reply(cmd::ArrayLevelReply{desc.Width, desc.Height, desc.Depth});
  return CUDA_SUCCESS;
}

CUresult Executor::onArrayRequirements(const cmd::Decoded<cmd::ArrayRequirements>& command) {
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

CUresult Executor::onTextureCreate(const cmd::Decoded<cmd::TextureCreate>& command) {
  const auto& wanted = command.fixed;
  using Resource = CUDA_RESOURCE_DESC;
  const auto sent = Crossing<Resource>::in(wanted.resource);
  Resource resource = sent.numbers();
  CUDA_TEXTURE_DESC texture;
  CUDA_RESOURCE_VIEW_DESC view;
  static_assert(sizeof resource == sizeof wanted.resource && sizeof texture == sizeof wanted.texture &&
                sizeof view == sizeof wanted.view);
  std::memcpy(&texture, wanted.texture, sizeof texture);
  std::memcpy(&view, wanted.view, sizeof view);
  // A client may have written any number there.
  std::underlying_type_t<CUresourcetype> type = 0;
  std::memcpy(&type, &resource.resType, sizeof type);
  switch (type) {
    case CU_RESOURCE_TYPE_ARRAY:
      if (!handle(HandleKind::kArray, wanted.handle, resource.res.array.hArray)) return violation("unknown array");
      if (!resource.res.array.hArray) return CUDA_ERROR_INVALID_HANDLE;
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      if (!handle(HandleKind::kMipmappedArray, wanted.handle, resource.res.mipmap.hMipmappedArray))
        return violation("unknown array");
      if (!resource.res.mipmap.hMipmappedArray) return CUDA_ERROR_INVALID_HANDLE;
      break;
    case CU_RESOURCE_TYPE_LINEAR: {
      SessionRange range;
      auto& linear = resource.res.linear;
      if (linear.sizeInBytes == 0) return CUDA_ERROR_INVALID_VALUE;
      if (CUresult rc = addresses_.reach(sent.address<offsetof(Resource, res.linear.devPtr)>(), linear.sizeInBytes, range))
        return rc;
      linear.devPtr = range.device();
      break;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      SessionRange range;
      auto& image = resource.res.pitch2D;
      // An element has one byte at least; what lies between the last row's end and its pitch need not be there.
      if (CUresult rc = addresses_.reach(Box{.address = sent.address<offsetof(Resource, res.pitch2D.devPtr)>(),
                                             .pitch = image.pitchInBytes,
                                             .width = image.width,
                                             .height = image.height},
                                         range))
        return rc;
      image.devPtr = range.device();
      break;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
  unsigned long long object = 0;
  if (wanted.isSurface && driver_.cuSurfObjectCreate) rc = driver_.cuSurfObjectCreate(&object, &resource);
  if (!wanted.isSurface && driver_.cuTexObjectCreate)
    rc = driver_.cuTexObjectCreate(&object, &resource, &texture, wanted.hasView ? &view : nullptr);
  if (rc) return rc;
  textures_[object] = {contexts_.bound(), wanted.isSurface != 0};
  reply(cmd::TextureCreateReply{object});
  return CUDA_SUCCESS;
}

CUresult Executor::onTextureDestroy(const cmd::Decoded<cmd::TextureDestroy>& command) {
  const auto found = textures_.find(command.fixed.object);
  if (found == textures_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const Texture texture = found->second;
  textures_.erase(found);
  const auto finish = [this, object = command.fixed.object, isSurface = texture.isSurface](uint16_t context) {
    const uint16_t before = contexts_.bound();
    if (context && contexts_.use(context)) {
      if (isSurface)
        driver_.cuSurfObjectDestroy(object);
      else
        driver_.cuTexObjectDestroy(object);
    }
    if (before) contexts_.use(before);
  };
  frees_.end({.finish = finish, .context = texture.context});
  return CUDA_SUCCESS;
}

CUresult Executor::onPeerAccess(const cmd::Decoded<cmd::PeerAccess>& command) {
  const uint32_t peer = command.fixed.peer;
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer == 0 || peer > contexts_.size() || !contexts_.at(peer).handle) return CUDA_ERROR_INVALID_CONTEXT;
  const auto call = command.fixed.enable ? driver_.cuCtxEnablePeerAccess : nullptr;
  const auto undo = command.fixed.enable ? nullptr : driver_.cuCtxDisablePeerAccess;
  if (call) return call(contexts_.at(peer).handle, 0);
  return undo ? undo(contexts_.at(peer).handle) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace millpond::worker
