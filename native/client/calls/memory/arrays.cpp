// SPDX-License-Identifier: Apache-2.0
// Arrays, and texture and surface objects over them.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/log.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/arrays.h"
#include "cuda/array_format.h"

namespace millpond::client {

namespace api {
namespace {

constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                 CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE |
                                 CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                                 CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;

/// Destroys a handle that the worker does not know.
void abandon(Call& call, HandleKind kind, void* handle) {
  call.remote().handles.recycle(call.remote().handles.claim(kind, handle));
}

CUresult createArray(const char* name, const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels, void** out) {
  Call call(name, Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (desc.Width == 0 || (desc.Depth != 0 && desc.Height == 0 && !(desc.Flags & CUDA_ARRAY3D_LAYERED)))
    return CUDA_ERROR_INVALID_VALUE;
  const Planes planes = planesOf(desc.Format);
  const bool isCount = desc.NumChannels == 1 || desc.NumChannels == 2 || desc.NumChannels == 4;
  if (planes.count ? desc.NumChannels != 3 : !isCount) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t bytes = elementBytes(desc.Format, desc.NumChannels);
  if (bytes == 0 || (desc.Flags & ~kKnownFlags) != 0 || (planes.count && levels)) {
    static std::atomic<bool> said{false};
    logOnce(
        said, LogLevel::Warn,
        "arrays of compressed, normalised or packed formats, and mipmapped ones of several planes, are not supported "
        "(format %#x, flags %#x)",
        static_cast<unsigned>(desc.Format), desc.Flags);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const HandleKind kind = levels ? HandleKind::kMipmappedArray : HandleKind::kArray;
  cmd::ArrayCreate wire{};
  wire.width = desc.Width;
  wire.height = desc.Height;
  wire.depth = desc.Depth;
  wire.format = static_cast<int32_t>(desc.Format);
  wire.channels = desc.NumChannels;
  wire.flags = desc.Flags;
  wire.levels = levels;
  void* handle = nullptr;
  wire.handle = call.create(kind, &handle);
  cmd::ArrayCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) {
    abandon(call, kind, handle);
    return r;
  }
  call.remote().arrays.add(wire.handle, {desc, bytes, std::vector<uint64_t>(levels ? levels : planes.count), false});
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult destroy(const char* name, HandleKind kind, void* handle) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto info = call.remote().arrays.find(handle);
  if (!info || info->isPart) return CUDA_ERROR_INVALID_HANDLE;
  for (const uint64_t part : info->parts) {
    if (part == 0) continue;
    cmd::ArrayDestroy wire{};
    if (call.destroy(HandleKind::kArray, reinterpret_cast<void*>(part), wire.handle) == CUDA_SUCCESS) call.post(wire);
    call.remote().arrays.drop(part);
  }
  cmd::ArrayDestroy wire{};
  if (const CUresult r = call.destroy(kind, handle, wire.handle); r != CUDA_SUCCESS) return r;
  call.remote().arrays.drop(wire.handle);
  return call.post(wire);
}

CUresult requirements(const char* name, CUDA_ARRAY_MEMORY_REQUIREMENTS* out, HandleKind kind, const void* handle,
                      CUdevice device) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cmd::ArrayRequirements wire{};
  if (const CUresult r = call.handle(kind, handle, wire.handle); r != CUDA_SUCCESS) return r;
  if (const CUresult r = call.device(device, wire.device); r != CUDA_SUCCESS) return r;
  cmd::ArrayRequirementsReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  *out = {};
  out->size = reply.bytes;
  out->alignment = reply.alignment;
  return CUDA_SUCCESS;
}

CUresult makeObject(const char* name, unsigned long long* out, const TextureInfo& info) {
  Call call(name, Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cmd::TextureCreate wire{};
  const CUDA_RESOURCE_DESC& resource = info.resource;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      if (const CUresult r = call.handle(HandleKind::kArray, resource.res.array.hArray, wire.handle); r != CUDA_SUCCESS)
        return r;
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      if (const CUresult r = call.handle(HandleKind::kMipmappedArray, resource.res.mipmap.hMipmappedArray, wire.handle);
          r != CUDA_SUCCESS)
        return r;
      break;
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  wire.isSurface = info.isSurface;
  wire.hasView = info.view.has_value();
  static_assert(sizeof wire.resource == sizeof info.resource && sizeof wire.texture == sizeof info.texture &&
                sizeof wire.view == sizeof *info.view);
  std::memcpy(wire.resource, &info.resource, sizeof wire.resource);
  std::memcpy(wire.texture, &info.texture, sizeof wire.texture);
  if (info.view) std::memcpy(wire.view, &*info.view, sizeof wire.view);
  cmd::TextureCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  call.remote().arrays.addTexture(reply.object, info);
  *out = reply.object;
  return CUDA_SUCCESS;
}

CUresult endObject(const char* name, unsigned long long object, bool isSurface) {
  Call call(name, Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  // A card treats an unknown object like a destroyed one.
  if (!call.remote().arrays.dropTexture(object, isSurface)) return CUDA_SUCCESS;
  cmd::TextureDestroy wire{};
  wire.object = object;
  return call.post(wire);
}

/// The description with which the object was created; none, with the reason in `result`.
std::optional<TextureInfo> objectInfo(const char* name, unsigned long long object, bool isSurface, const void* out,
                                      CUresult& result) {
  Call call(name, Needs::kCurrent);
  result = call.entry();
  if (result != CUDA_SUCCESS) return std::nullopt;
  auto info = call.remote().arrays.findTexture(object, isSurface);
  if (!info || out == nullptr) {
    result = CUDA_ERROR_INVALID_VALUE;
    return std::nullopt;
  }
  return info;
}

/// A level or plane of an array, which ends with the array. The first query creates it; `describe` adds its
/// differences.
template <typename Reply, typename Command, typename Describe>
CUresult getPart(Call& call, Command wire, const void* whole, const ArrayInfo& info, unsigned part, CUarray& out,
                 Describe describe) {
  if (info.parts[part] != 0) {
    out = reinterpret_cast<CUarray>(info.parts[part]);
    return CUDA_SUCCESS;
  }
  void* handle = nullptr;
  wire.handle = call.create(HandleKind::kArray, &handle);
  Reply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) {
    abandon(call, HandleKind::kArray, handle);
    return r;
  }
  ArrayInfo own;
  own.desc = info.desc;
  own.desc.Width = reply.width;
  own.desc.Height = reply.height;
  own.desc.Depth = reply.depth;
  own.elementBytes = info.elementBytes;
  own.isPart = true;
  describe(reply, own);
  call.remote().arrays.add(wire.handle, own);
  out = reinterpret_cast<CUarray>(call.remote().arrays.addPart(whole, part, wire.handle));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return createArray("cuArray3DCreate_v2", *pAllocateArray, 0, reinterpret_cast<void**>(pHandle));
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = pAllocateArray->Width;
  desc.Height = pAllocateArray->Height;
  desc.Format = pAllocateArray->Format;
  desc.NumChannels = pAllocateArray->NumChannels;
  return createArray("cuArrayCreate_v2", desc, 0, reinterpret_cast<void**>(pHandle));
}

CUresult cuArrayDestroy(CUarray hArray) noexcept { return destroy("cuArrayDestroy", HandleKind::kArray, hArray); }

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) noexcept {
  Call call("cuArray3DGetDescriptor_v2", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto info = call.remote().arrays.find(hArray);
  if (!info) return CUDA_ERROR_INVALID_HANDLE;
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pArrayDescriptor = info->desc;
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  if (const CUresult r = api::cuArray3DGetDescriptor_v2(&desc, hArray); r != CUDA_SUCCESS) return r;
  *pArrayDescriptor = {desc.Width, desc.Height, desc.Format, desc.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements, CUarray array,
                                      CUdevice device) noexcept {
  return requirements("cuArrayGetMemoryRequirements", memoryRequirements, HandleKind::kArray, array, device);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  constexpr unsigned kMostLevels = 32;
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr || numMipmapLevels == 0) return CUDA_ERROR_INVALID_VALUE;
  // The driver makes as many levels as the extent has.
  return createArray("cuMipmappedArrayCreate", *pMipmappedArrayDesc, std::min(numMipmapLevels, kMostLevels),
                     reinterpret_cast<void**>(pHandle));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) noexcept {
  return destroy("cuMipmappedArrayDestroy", HandleKind::kMipmappedArray, hMipmappedArray);
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level) noexcept {
  Call call("cuMipmappedArrayGetLevel", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::ArrayLevel wire{};
  if (const CUresult r = call.handle(HandleKind::kMipmappedArray, hMipmappedArray, wire.mipmapped); r != CUDA_SUCCESS)
    return r;
  const auto info = call.remote().arrays.find(hMipmappedArray);
  if (!info || pLevelArray == nullptr || level >= info->parts.size()) return CUDA_ERROR_INVALID_VALUE;
  wire.level = level;
  return getPart<cmd::ArrayLevelReply>(call, wire, hMipmappedArray, *info, level, *pLevelArray,
                                       [](const cmd::ArrayLevelReply&, ArrayInfo&) {});
}

CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) noexcept {
  Call call("cuArrayGetPlane", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::ArrayPlane wire{};
  if (const CUresult r = call.handle(HandleKind::kArray, hArray, wire.array); r != CUDA_SUCCESS) return r;
  const auto info = call.remote().arrays.find(hArray);
  if (!info || pPlaneArray == nullptr || planeIdx >= info->parts.size()) return CUDA_ERROR_INVALID_VALUE;
  wire.plane = planeIdx;
  return getPart<cmd::ArrayPlaneReply>(call, wire, hArray, *info, planeIdx, *pPlaneArray,
                                       [](const cmd::ArrayPlaneReply& reply, ArrayInfo& own) {
                                         own.desc.Format = static_cast<CUarray_format>(reply.format);
                                         own.desc.NumChannels = reply.channels;
                                         own.elementBytes = elementBytes(own.desc.Format, own.desc.NumChannels);
                                       });
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device) noexcept {
  return requirements("cuMipmappedArrayGetMemoryRequirements", memoryRequirements, HandleKind::kMipmappedArray, mipmap,
                      device);
}

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc, const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pResDesc == nullptr || pTexDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TextureInfo info;
  info.resource = *pResDesc;
  info.texture = *pTexDesc;
  if (pResViewDesc) info.view = *pResViewDesc;
  return makeObject("cuTexObjectCreate", pTexObject, info);
}

CUresult cuTexObjectDestroy(CUtexObject texObject) noexcept {
  return endObject("cuTexObjectDestroy", texObject, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) noexcept {
  CUresult result = CUDA_SUCCESS;
  if (const auto info = objectInfo("cuTexObjectGetResourceDesc", texObject, false, pResDesc, result))
    *pResDesc = info->resource;
  return result;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) noexcept {
  CUresult result = CUDA_SUCCESS;
  if (const auto info = objectInfo("cuTexObjectGetTextureDesc", texObject, false, pTexDesc, result))
    *pTexDesc = info->texture;
  return result;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc, CUtexObject texObject) noexcept {
  CUresult result = CUDA_SUCCESS;
  const auto info = objectInfo("cuTexObjectGetResourceViewDesc", texObject, false, pResViewDesc, result);
  if (!info) return result;
  if (!info->view) return CUDA_ERROR_INVALID_VALUE;
  *pResViewDesc = *info->view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pResDesc == nullptr || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  TextureInfo info;
  info.resource = *pResDesc;
  info.isSurface = true;
  return makeObject("cuSurfObjectCreate", pSurfObject, info);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) noexcept {
  return endObject("cuSurfObjectDestroy", surfObject, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) noexcept {
  CUresult result = CUDA_SUCCESS;
  if (const auto info = objectInfo("cuSurfObjectGetResourceDesc", surfObject, true, pResDesc, result))
    *pResDesc = info->resource;
  return result;
}

}  // namespace api
}  // namespace millpond::client
