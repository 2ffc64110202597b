// SPDX-License-Identifier: Apache-2.0
// Entry points: libraries and their kernels.
#include <algorithm>

#include "softgpu/driver/api/function.h"
#include "softgpu/driver/graphs/capture.h"
#include "softgpu/driver/program/program_loader.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

// `load` compiles an image into the program that it is given. No library option changes anything: nothing refers to the
// image once it is compiled.
template <typename Load>
CUresult loadLibrary(CUlibrary* handle, const JitOptions& options, Load load) {
  return withDriver([&](Driver& driver) -> CUresult {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<const ptx::Program> program;
    const CUresult result = load(&program);
    // A real driver examines an image at its first use. An image loaded with a log is examined now, so that
    // the log is filled on return.
    const bool isToldLater =
        result == CUDA_ERROR_INVALID_IMAGE ||
        (options.count == 0 && (result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
    if (result && !isToldLater) return result;
    *handle = driver.libraries().add(result ? std::make_shared<Library>(result)
                                            : std::make_shared<Library>(std::move(program)));
    return CUDA_SUCCESS;
  });
}

template <typename Body>
CUresult withLibrary(CUlibrary handle, Body body) {
  return withDriver([&](Driver& driver) -> CUresult {
    const std::shared_ptr<Library> library = driver.libraries().find(handle);
    return library ? body(driver, library) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// A call about the contents of a library.
template <typename Body>
CUresult withContents(CUlibrary handle, Body body) {
  return withLibrary(handle, [&](Driver& driver, const std::shared_ptr<Library>& library) -> CUresult {
    return library->flaw() ? library->flaw() : body(driver, library);
  });
}

// A call about a library as a module of the current context.
template <typename Body>
CUresult withInstance(CUlibrary handle, Body body) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    const std::shared_ptr<Library> library = driver.libraries().find(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Module> module;
    if (CUresult result = library->instance(context, &module)) return result;
    return body(driver, module);
  });
}

}  // namespace

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions, void** jitOptionsValues,
                           unsigned int numJitOptions, CUlibraryOption*, void**, unsigned int) {
  const JitOptions options{numJitOptions, jitOptions, jitOptionsValues};
  return loadLibrary(library, options, [&](auto* program) { return loadProgram(code, options, program); });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*, void**,
                               unsigned int) {
  const JitOptions options{numJitOptions, jitOptions, jitOptionsValues};
  return loadLibrary(library, options, [&](auto* program) { return loadProgramFile(fileName, options, program); });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return withLibrary(library, [&](Driver& driver, const std::shared_ptr<Library>& unloaded) -> CUresult {
    if (CUresult result = checkUnsafeCall()) return result;
    for (const std::shared_ptr<Module>& module : unloaded->instances()) {
      // The remaining work may use the code, whatever has happened to the context.
      module->context()->synchronize();
      driver.forgetContents(*module);
      driver.modules().remove(HandleTable<Module, CUmodule>::handleOf(module.get()));
    }
    driver.kernels().removeIf([&](const LibraryKernel& kernel) { return &kernel.library() == unloaded.get(); });
    return driver.libraries().remove(library) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return withContents(library, [&](Driver& driver, const std::shared_ptr<Library>& found) -> CUresult {
    if (!pKernel || !name) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<LibraryKernel> kernel = found->kernel(std::string_view(name));
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    *pKernel = driver.kernels().add(std::move(kernel));
    return CUDA_SUCCESS;
  });
}

// Also for an invalid image: it has no kernels.
CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  return withLibrary(lib, [&](Driver&, const std::shared_ptr<Library>& found) -> CUresult {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(found->kernelCount());
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  return withContents(lib, [&](Driver& driver, const std::shared_ptr<Library>& found) -> CUresult {
    if (!kernels || numKernels == 0) return CUDA_ERROR_INVALID_VALUE;
    const size_t count = std::min<size_t>(numKernels, found->kernelCount());
    for (size_t i = 0; i < count; ++i) kernels[i] = driver.kernels().add(found->kernel(i));
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  return withInstance(library, [&](Driver& driver, const std::shared_ptr<Module>& module) -> CUresult {
    if (!pMod) return CUDA_ERROR_INVALID_VALUE;
    *pMod = driver.modules().add(module);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return withInstance(library, [&](Driver&, const std::shared_ptr<Module>& module) -> CUresult {
    if (!name || (!dptr && !bytes)) return CUDA_ERROR_INVALID_VALUE;
    return module->variable(name, dptr, bytes);
  });
}

// All memory of the device is memory of this process, so managed variables need nothing more.

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return withInstance(library, [&](Driver&, const std::shared_ptr<Module>& module) -> CUresult {
    if (!name || (!dptr && !bytes)) return CUDA_ERROR_INVALID_VALUE;
    const auto variables = module->program().variables();
    const bool isManaged = std::any_of(variables.begin(), variables.end(), [&](const ptx::VariableInfo& variable) {
      return variable.isManaged && variable.name == name;
    });
    return isManaged ? module->variable(name, dptr, bytes) : CUDA_ERROR_NOT_FOUND;
  });
}

// Functions of unified addressing cannot be in PTX that has been accepted.

CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary library, const char* symbol) {
  return withLibrary(library, [&](Driver&, const std::shared_ptr<Library>&) -> CUresult {
    return symbol ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    if (!pFunc) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<LibraryKernel> found = driver.kernels().find(kernel);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Function> function;
    if (CUresult result = found->function(context, &function)) return result;
    *pFunc = driver.functions().add(std::move(function));
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  return withKernel(kernel, [&](Driver&, const std::shared_ptr<LibraryKernel>& found) -> CUresult {
    if (!pLib) return CUDA_ERROR_INVALID_VALUE;
    *pLib = HandleTable<Library, CUlibrary>::handleOf(&found->library());
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  return withKernel(kernel, [&](Driver& driver, const std::shared_ptr<LibraryKernel>& found) -> CUresult {
    if (!pi) return CUDA_ERROR_INVALID_VALUE;
    Device* device = driver.device(dev);
    return device ? found->attribute(*device, attrib, pi) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  return withKernel(kernel, [&](Driver& driver, const std::shared_ptr<LibraryKernel>& found) -> CUresult {
    Device* device = driver.device(dev);
    return device ? found->setAttribute(*device, attrib, val) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice dev) {
  return withKernel(kernel, [&](Driver& driver, const std::shared_ptr<LibraryKernel>&) -> CUresult {
    return driver.device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  return withKernel(hfunc, [&](Driver&, const std::shared_ptr<LibraryKernel>& found) -> CUresult {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    *name = found->info().name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return withKernel(kernel, [&](Driver&, const std::shared_ptr<LibraryKernel>& found) {
    return parameterInfo(found->info(), paramIndex, paramOffset, paramSize);
  });
}

}  // extern "C"
