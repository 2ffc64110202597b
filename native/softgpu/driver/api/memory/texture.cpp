// SPDX-License-Identifier: Apache-2.0
// Entry points: texture and surface objects.
#include <cstring>

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/memory/texture_objects.h"
#include "softgpu/driver/memory/texture_views.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

CUresult destroy(unsigned long long object, bool isSurface) {
  return withContext([&](Driver& driver, const ContextPtr&) {
    // A card treats an unknown object like one that has ended.
    driver.textures().remove(object, isSurface);
    return CUDA_SUCCESS;
  });
}

/// Stores the part of an object that `part` selects.
template <typename T, typename Part>
CUresult describe(T* out, unsigned long long number, bool isSurface, Part part) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const auto object = driver.textures().get(number, isSurface);
    if (!out || !object) return CUDA_ERROR_INVALID_VALUE;
    *out = part(*object);
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc, const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!pTexObject || !pResDesc || !pTexDesc) return CUDA_ERROR_INVALID_VALUE;
    TextureObject object{.resource = *pResDesc, .texture = *pTexDesc, .context = context->id(), .view = {}};
    if (CUresult result = viewOf(driver.deviceMemory(), *pResDesc, &object.view)) return result;
    if (pResViewDesc && pResViewDesc->format != CU_RES_VIEW_FORMAT_NONE && !isPlainView(*pResViewDesc, object.view))
      return CUDA_ERROR_NOT_SUPPORTED;
    const bool isLine = pResDesc->resType == CU_RESOURCE_TYPE_LINEAR;
    if (CUresult result = applySampling(isLine ? samplingOfLine(*pTexDesc) : *pTexDesc, &object.view)) return result;
    *pTexObject = driver.textures().add(object);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) { return destroy(texObject, false); }

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return describe(pResDesc, texObject, false, [](const TextureObject& object) { return object.resource; });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return describe(pTexDesc, texObject, false, [](const TextureObject& object) { return object.texture; });
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    const auto array = driver.arrays().find(pResDesc->res.array.hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    TextureObject object{.resource = *pResDesc, .isSurface = true, .context = context->id(), .view = {}};
    if (CUresult result = viewOf(driver.deviceMemory(), *pResDesc, &object.view)) return result;
    *pSurfObject = driver.textures().add(object);
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) { return destroy(surfObject, true); }

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return describe(pResDesc, surfObject, true, [](const TextureObject& object) { return object.resource; });
}

}  // extern "C"
