// SPDX-License-Identifier: Apache-2.0
// Entry points: texture and surface references.
#include <algorithm>
#include <initializer_list>

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/memory/texture_reference.h"
#include "softgpu/driver/memory/texture_views.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

using State = TextureReference::State;
namespace ptx = millpond::softgpu::ptx;

HandleTable<TextureReference, CUtexref>& tableOf(Driver& driver, CUtexref) { return driver.textureReferences(); }
HandleTable<TextureReference, CUsurfref>& tableOf(Driver& driver, CUsurfref) { return driver.surfaceReferences(); }

/// `body(Driver&, State&)`, for an existing reference.
template <typename H, typename Body>
CUresult change(H handle, Body body) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const auto reference = tableOf(driver, handle).find(handle);
    if (!reference) return CUDA_ERROR_INVALID_HANDLE;
    return reference->change([&](State& state) { return body(driver, state); });
  });
}

/// Writes the value that `part` reads from a reference's state.
template <typename T, typename H, typename Part>
CUresult tell(T* out, H handle, Part part) {
  return change(handle, [&](Driver&, State& state) -> CUresult {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = part(state);
    return CUDA_SUCCESS;
  });
}

/// The same, if it is bound to a resource of one of these types.
template <typename T, typename H, typename Part>
CUresult tellBound(T* out, H handle, std::initializer_list<CUresourcetype> types, Part part) {
  return change(handle, [&](Driver&, State& state) -> CUresult {
    const bool isOne = std::find(types.begin(), types.end(), state.resource.resType) != types.end();
    if (!out || !state.isBound || !isOne) return CUDA_ERROR_INVALID_VALUE;
    *out = part(state.resource);
    return CUDA_SUCCESS;
  });
}

/// Binds a resource if kernels can read it; otherwise refuses.
CUresult bind(Driver& driver, State& state, const CUDA_RESOURCE_DESC& resource, CUarray_format format,
              unsigned channels) {
  State wanted = state;
  wanted.isBound = true;
  wanted.resource = resource;
  wanted.format = format;
  wanted.channels = channels;
  // The sampling may be specified later.
  ptx::TextureView view;
  if (CUresult result = viewOfReference(driver.deviceMemory(), wanted, ptx::Reference::kSurface, &view)) return result;
  state = wanted;
  return CUDA_SUCCESS;
}

CUresult setPlane(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr, size_t pitch) {
  return change(handle, [&](Driver& driver, State& state) -> CUresult {
    if (!desc) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = {dptr, desc->Format, desc->NumChannels, desc->Width, desc->Height, pitch};
    return bind(driver, state, resource, desc->Format, desc->NumChannels);
  });
}

template <typename H>
CUresult find(H* out, CUmodule handle, const char* name, ptx::Reference kind) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const std::shared_ptr<Module> module = driver.modules().find(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<TextureReference> reference = module->reference(name, kind);
    if (!reference) return CUDA_ERROR_NOT_FOUND;
    *out = tableOf(driver, H()).add(std::move(reference));
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  return find(pTexRef, hmod, name, ptx::Reference::kTexture);
}

CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  return find(pSurfRef, hmod, name, ptx::Reference::kSurface);
}

CUresult cuTexRefCreate(CUtexref* pTexRef) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!pTexRef) return CUDA_ERROR_INVALID_VALUE;
    *pTexRef = driver.textureReferences().add(
        std::make_shared<TextureReference>(context->id(), nullptr, ptx::Reference::kTexture, 0));
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefDestroy(CUtexref hTexRef) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const auto reference = driver.textureReferences().find(hTexRef);
    if (!reference) return CUDA_ERROR_INVALID_HANDLE;
    if (reference->module()) return CUDA_ERROR_INVALID_VALUE;
    driver.textureReferences().remove(hTexRef);
    return CUDA_SUCCESS;
  });
}

// Kernels use the references of their module by name, so the call has no effect, whatever the texture unit.
CUresult cuParamSetTexRef(CUfunction hfunc, int, CUtexref hTexRef) {
  return change(hTexRef, [&](Driver& driver, State&) -> CUresult {
    return driver.functions().find(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  return change(hTexRef, [&](Driver& driver, State& state) -> CUresult {
    const auto array = driver.arrays().find(hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    // The format is the array's, whether or not that is specified.
    if (Flags & ~static_cast<unsigned>(CU_TRSA_OVERRIDE_FORMAT)) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = hArray;
    return bind(driver, state, resource, array->descriptor.Format, array->descriptor.NumChannels);
  });
}

CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray, unsigned int Flags) {
  return change(hTexRef, [&](Driver& driver, State& state) -> CUresult {
    const auto all = driver.mipmappedArrays().find(hMipmappedArray);
    if (!all) return CUDA_ERROR_INVALID_HANDLE;
    if (Flags & ~static_cast<unsigned>(CU_TRSA_OVERRIDE_FORMAT)) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = hMipmappedArray;
    const CUDA_ARRAY3D_DESCRIPTOR& first = all->levels.front()->descriptor;
    return bind(driver, state, resource, first.Format, first.NumChannels);
  });
}

CUresult cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes) {
  return change(hTexRef, [&](Driver& driver, State& state) -> CUresult {
    if (dptr == 0 || bytes == 0) {
      state.isBound = false;
      if (ByteOffset) *ByteOffset = 0;
      return CUDA_SUCCESS;
    }
    const size_t offset = dptr % kTextureAlignment;
    size_t whole = 0;
    if ((offset != 0 && !ByteOffset) || __builtin_add_overflow(bytes, offset, &whole)) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {dptr - offset, state.format, state.channels, whole};
    if (CUresult result = bind(driver, state, resource, state.format, state.channels)) return result;
    if (ByteOffset) *ByteOffset = offset;
    return CUDA_SUCCESS;
  });
}

// The older variant is for drivers that pad; this driver has nothing to pad.
CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr, size_t Pitch) {
  return setPlane(hTexRef, desc, dptr, Pitch);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr, size_t Pitch) {
  return setPlane(hTexRef, desc, dptr, Pitch);
}

CUresult cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    const bool isCount = NumPackedComponents == 1 || NumPackedComponents == 2 || NumPackedComponents == 4;
    if (!isCount || elementBytes(fmt, 1) == 0) return CUDA_ERROR_INVALID_VALUE;
    state.format = fmt;
    state.channels = static_cast<unsigned>(NumPackedComponents);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    if (dim < 0 || dim > 2) return CUDA_ERROR_INVALID_VALUE;
    state.sampling.addressMode[dim] = am > CU_TR_ADDRESS_MODE_BORDER ? CU_TR_ADDRESS_MODE_CLAMP : am;
    return CUDA_SUCCESS;
  });
}

// An invalid filter is detected when it is used.
CUresult cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    state.sampling.filterMode = fm;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    if (fm > CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
    state.sampling.mipmapFilterMode = fm;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    state.sampling.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    state.sampling.minMipmapLevelClamp = minMipmapLevelClamp;
    state.sampling.maxMipmapLevelClamp = maxMipmapLevelClamp;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    state.sampling.maxAnisotropy = maxAniso;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetBorderColor(CUtexref hTexRef, float* pBorderColor) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    if (!pBorderColor) return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(pBorderColor, std::size(state.sampling.borderColor), state.sampling.borderColor);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                                CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
    if (Flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
    state.sampling.flags = Flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr* pdptr, CUtexref hTexRef) {
  return tellBound(
      pdptr, hTexRef, {CU_RESOURCE_TYPE_LINEAR, CU_RESOURCE_TYPE_PITCH2D}, [](const CUDA_RESOURCE_DESC& resource) {
        return resource.resType == CU_RESOURCE_TYPE_LINEAR ? resource.res.linear.devPtr : resource.res.pitch2D.devPtr;
      });
}

CUresult cuTexRefGetArray(CUarray* phArray, CUtexref hTexRef) {
  return tellBound(phArray, hTexRef, {CU_RESOURCE_TYPE_ARRAY},
                   [](const CUDA_RESOURCE_DESC& resource) { return resource.res.array.hArray; });
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* phMipmappedArray, CUtexref hTexRef) {
  return tellBound(phMipmappedArray, hTexRef, {CU_RESOURCE_TYPE_MIPMAPPED_ARRAY},
                   [](const CUDA_RESOURCE_DESC& resource) { return resource.res.mipmap.hMipmappedArray; });
}

CUresult cuTexRefGetAddressMode(CUaddress_mode* pam, CUtexref hTexRef, int dim) {
  if (dim < 0 || dim > 2) return CUDA_ERROR_INVALID_VALUE;
  return tell(pam, hTexRef, [dim](const State& state) { return state.sampling.addressMode[dim]; });
}

CUresult cuTexRefGetFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return tell(pfm, hTexRef, [](const State& state) { return state.sampling.filterMode; });
}

CUresult cuTexRefGetFormat(CUarray_format* pFormat, int* pNumChannels, CUtexref hTexRef) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    if (pFormat) *pFormat = state.format;
    if (pNumChannels) *pNumChannels = static_cast<int>(state.channels);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return tell(pfm, hTexRef, [](const State& state) { return state.sampling.mipmapFilterMode; });
}

CUresult cuTexRefGetMipmapLevelBias(float* pbias, CUtexref hTexRef) {
  return tell(pbias, hTexRef, [](const State& state) { return state.sampling.mipmapLevelBias; });
}

CUresult cuTexRefGetMipmapLevelClamp(float* pminMipmapLevelClamp, float* pmaxMipmapLevelClamp, CUtexref hTexRef) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    if (!pminMipmapLevelClamp || !pmaxMipmapLevelClamp) return CUDA_ERROR_INVALID_VALUE;
    *pminMipmapLevelClamp = state.sampling.minMipmapLevelClamp;
    *pmaxMipmapLevelClamp = state.sampling.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMaxAnisotropy(int* pmaxAniso, CUtexref hTexRef) {
  return tell(pmaxAniso, hTexRef, [](const State& state) { return static_cast<int>(state.sampling.maxAnisotropy); });
}

CUresult cuTexRefGetBorderColor(float* pBorderColor, CUtexref hTexRef) {
  return change(hTexRef, [&](Driver&, State& state) -> CUresult {
    if (!pBorderColor) return CUDA_ERROR_INVALID_VALUE;
    std::copy(std::begin(state.sampling.borderColor), std::end(state.sampling.borderColor), pBorderColor);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFlags(unsigned int* pFlags, CUtexref hTexRef) {
  return tell(pFlags, hTexRef, [](const State& state) { return state.sampling.flags; });
}

CUresult cuSurfRefSetArray(CUsurfref hSurfRef, CUarray hArray, unsigned int Flags) {
  return change(hSurfRef, [&](Driver& driver, State& state) -> CUresult {
    const auto array = driver.arrays().find(hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    if (Flags != 0 || !(array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST)) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = hArray;
    return bind(driver, state, resource, array->descriptor.Format, array->descriptor.NumChannels);
  });
}

CUresult cuSurfRefGetArray(CUarray* phArray, CUsurfref hSurfRef) {
  return tellBound(phArray, hSurfRef, {CU_RESOURCE_TYPE_ARRAY},
                   [](const CUDA_RESOURCE_DESC& resource) { return resource.res.array.hArray; });
}

}  // extern "C"
