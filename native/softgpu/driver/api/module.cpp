// SPDX-License-Identifier: Apache-2.0
// Entry points: modules and their functions.
#include "image/image.h"
#include "softgpu/driver/api/function.h"
#include "softgpu/driver/graphs/capture.h"
#include "softgpu/driver/program/program_loader.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

// `load` compiles an image into the program that it is given.
template <typename Load>
CUresult loadModule(CUmodule* handle, Load load) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<const ptx::Program> program;
    if (CUresult result = load(&program)) return result;
    // Like a card's driver (docs/decisions/0030): new code is put on an idle device.
    if (CUresult fault = context->synchronize()) return fault;
    std::shared_ptr<Module> module;
    if (CUresult result = Module::load(context, std::move(program), &module)) return result;
    *handle = driver.modules().add(std::move(module));
    return CUDA_SUCCESS;
  });
}

CUresult loadModuleData(CUmodule* handle, const void* image, const JitOptions& options) {
  // Only libraries can be loaded from the structure in a compiled program that points to its fatbin.
  if (image && millpond::image::isWrapper(image)) return CUDA_ERROR_INVALID_IMAGE;
  return loadModule(handle, [&](auto* program) { return loadProgram(image, options, program); });
}

template <typename Body>
CUresult withModule(CUmodule handle, Body body) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const std::shared_ptr<Module> module = driver.modules().find(handle);
    return module ? body(driver, module) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

extern "C" {

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  return loadModule(module, [&](auto* program) { return loadProgramFile(fname, {}, program); });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return loadModuleData(module, image, {}); }

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions, CUjit_option* options,
                            void** optionValues) {
  return loadModuleData(module, image, {numOptions, options, optionValues});
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return loadModule(module, [&](auto* program) { return loadProgram(fatCubin, {}, program); });
}

CUresult cuModuleUnload(CUmodule hmod) {
  return withModule(hmod, [&](Driver& driver, const std::shared_ptr<Module>& module) -> CUresult {
    if (CUresult result = checkUnsafeCall()) return result;
    if (CUresult fault = module->context()->synchronize()) return fault;
    if (!driver.modules().remove(hmod)) return CUDA_ERROR_INVALID_HANDLE;
    driver.forgetContents(*module);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return withModule(hmod, [&](Driver& driver, const std::shared_ptr<Module>& module) -> CUresult {
    if (!hfunc || !name) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Function> function = module->function(std::string_view(name));
    if (!function) return CUDA_ERROR_NOT_FOUND;
    *hfunc = driver.functions().add(std::move(function));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  return withModule(mod, [&](Driver&, const std::shared_ptr<Module>& module) -> CUresult {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(module->functionCount());
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) {
  return withModule(mod, [&](Driver& driver, const std::shared_ptr<Module>& module) -> CUresult {
    if (!functions || numFunctions == 0) return CUDA_ERROR_INVALID_VALUE;
    const size_t count = std::min<size_t>(numFunctions, module->functionCount());
    for (size_t i = 0; i < count; ++i) functions[i] = driver.functions().add(module->function(i));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return withModule(hmod, [&](Driver&, const std::shared_ptr<Module>& module) -> CUresult {
    if (!name || (!dptr && !bytes)) return CUDA_ERROR_INVALID_VALUE;
    return module->variable(name, dptr, bytes);
  });
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return withFunction(hfunc, [&](Driver&, const std::shared_ptr<Function>& function) -> CUresult {
    if (!pi) return CUDA_ERROR_INVALID_VALUE;
    return function->settings().get(function->info(), function->module().program(), attrib, pi);
  });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return withFunction(hfunc, [&](Driver&, const std::shared_ptr<Function>& function) {
    return function->settings().set(function->info(), attrib, value);
  });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache) {
  return withFunction(hfunc, [](Driver&, const std::shared_ptr<Function>&) { return CUDA_SUCCESS; });
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig) {
  return withFunction(hfunc, [](Driver&, const std::shared_ptr<Function>&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  return withFunction(hfunc, [&](Driver& driver, const std::shared_ptr<Function>& function) -> CUresult {
    if (!hmod) return CUDA_ERROR_INVALID_VALUE;
    *hmod = driver.modules().add(function->module().shared_from_this());
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  return withFunction(hfunc, [&](Driver&, const std::shared_ptr<Function>& function) -> CUresult {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    *name = function->info().name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return withFunction(func, [&](Driver&, const std::shared_ptr<Function>& function) {
    return parameterInfo(function->info(), paramIndex, paramOffset, paramSize);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return withFunction(function, [&](Driver&, const std::shared_ptr<Function>&) -> CUresult {
    if (!state) return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return withFunction(function, [](Driver&, const std::shared_ptr<Function>&) { return CUDA_SUCCESS; });
}

}  // extern "C"
