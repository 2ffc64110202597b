// SPDX-License-Identifier: Apache-2.0
// Modules and libraries: loading, and lookup of their contents.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "base/log.h"
#include "client/call/call.h"
#include "client/call/image_sender.h"
#include "client/calls/modules/jit_reply.h"
#include "client/gen/api.h"
#include "client/images/image.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

/// Library options that change nothing: an image is copied when it is loaded.
CUresult acceptLibraryOptions(unsigned count, const CUlibraryOption* options) {
  if (count != 0 && !options) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) continue;
    if (options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) return CUDA_ERROR_INVALID_VALUE;
    log(LogLevel::Warn,
        "libraries with a table of host functions are not supported: the GPU's host is another process");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

/// `known`: how many bytes `image` certainly has.
CUresult load(Call& call, HandleKind kind, const void* image, size_t known, const JitOptions& options, void** out) {
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::span<const std::byte>> parts;
  if (const CUresult r = imageBytes(image, known, parts); r != CUDA_SUCCESS) return r;

  void* handle = nullptr;
  cmd::ModuleLoad wire{};
  wire.handle = call.create(kind, &handle);
  wire.kind = kind == HandleKind::kLibrary ? 1 : 0;
  // A module linked from several fatbins cannot be recreated after parking: its variables are not known.
  wire.isKept =
      call.session().parks() && parts.size() == 1 && call.remote().images.keep(wire.handle, parts.front()) ? 1 : 0;
  ImagePlaces places;
  CUresult result = sendImage(call, wire.handle, parts, places);
  if (result == CUDA_SUCCESS) {
    std::vector<std::byte> whole;
    Session::Answer answer;
    answer.whole = &whole;
    result = call.waitFor(wire, answer, std::as_bytes(options.records()), std::as_bytes(std::span(places)));
    deliverJit<cmd::ModuleLoadReply>(whole, options);
  }
  if (result != CUDA_SUCCESS) {
    call.remote().images.drop(wire.handle);
    call.remote().handles.recycle(call.remote().handles.claim(kind, handle));
    return result;
  }
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult loadModule(Call& call, const void* image, const JitOptions& options, CUmodule* out) {
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (isWrapper(image)) return CUDA_ERROR_INVALID_IMAGE;
  return load(call, HandleKind::kModule, image, kUnknownBytes, options, reinterpret_cast<void**>(out));
}

CUresult unload(Call& call, HandleKind kind, const void* handle) {
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::ModuleUnload wire{};
  if (const CUresult r = call.destroy(kind, handle, wire.handle); r != CUDA_SUCCESS) return r;
  return call.post(wire);
}

/// A function of a module, or a kernel of a library: always the same handle for a name.
CUresult getFunction(Call& call, HandleKind ownerKind, const void* owner, HandleKind kind, const char* name,
                     void** out) {
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  uint64_t ownerWire = 0;
  if (const CUresult r = call.handle(ownerKind, owner, ownerWire); r != CUDA_SUCCESS) return r;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HandleTable& handles = call.remote().handles;
  if (const uint64_t known = handles.childNamed(ownerWire, name)) {
    *out = reinterpret_cast<void*>(known);
    return CUDA_SUCCESS;
  }
  void* handle = nullptr;
  cmd::GetFunction wire{};
  wire.owner = ownerWire;
  wire.handle = call.create(kind, &handle);
  std::vector<std::byte> whole;
  Session::Answer answer;
  answer.whole = &whole;
  CUresult result = call.waitFor(wire, answer, std::as_bytes(std::span(name, std::strlen(name))));
  cmd::Decoded<cmd::GetFunctionReply> reply;
  if (result == CUDA_SUCCESS &&
      (!cmd::decode(whole, reply) || reply.tail[0].size() != size_t{reply.fixed.paramCount} * 8))
    result = CUDA_ERROR_UNKNOWN;
  if (result != CUDA_SUCCESS) {
    handles.recycle(handles.claim(kind, handle));
    return result;
  }
  auto info = std::make_unique<FunctionInfo>();
  info->name = name;
  info->owner = ownerWire;
  info->parameters.resize(reply.fixed.paramCount);
  if (!info->parameters.empty()) std::memcpy(info->parameters.data(), reply.tail[0].data(), reply.tail[0].size());
  for (const auto& p : info->parameters) info->parameterBytes = std::max(info->parameterBytes, p.offset + p.size);
  handles.describe(ownerWire, wire.handle, std::move(info));
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult getGlobal(Call& call, HandleKind kind, const void* owner, const char* name, CUdeviceptr* dptr, size_t* bytes) {
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  cmd::GetGlobal wire{};
  if (const CUresult r = call.handle(kind, owner, wire.owner); r != CUDA_SUCCESS) return r;
  cmd::GetGlobalReply reply{};
  if (const CUresult r = call.wait(wire, reply, std::as_bytes(std::span(name, std::strlen(name)))); r != CUDA_SUCCESS)
    return r;
  if (reply.managed != 0) {
    const ManagedVariables::Variable variable{wire.owner, reply.address, reply.bytes};
    if (const CUresult r = call.remote().managedVariables.add(CallSink(call), variable, name); r != CUDA_SUCCESS)
      return r;
  } else {
    call.remote().memory.add(
        {reply.address, reply.bytes, MemoryKind::kDevice, call.context(), MemoryRun::kBorrowed, 0});
  }
  if (dptr) *dptr = reply.address;
  if (bytes) *bytes = reply.bytes;
  return CUDA_SUCCESS;
}

const FunctionInfo* infoOf(Call& call, const void* function) {
  const auto kind = handle::kind(reinterpret_cast<uint64_t>(function));
  const HandleTable::Slot* slot =
      call.remote().handles.find(kind == HandleKind::kKernel ? kind : HandleKind::kFunction, function);
  return slot ? slot->function.get() : nullptr;
}

CUresult parameterInfo(const char* name, Needs needs, const void* function, size_t index, size_t* offset,
                       size_t* size) {
  Call call(name, needs);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const FunctionInfo* info = infoOf(call, function);
  if (!info) return CUDA_ERROR_INVALID_HANDLE;
  if (offset == nullptr || index >= info->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info->parameters[index].offset;
  if (size) *size = info->parameters[index].size;
  return CUDA_SUCCESS;
}

CUresult functionName(const char* call_, const void* function, const char** name) {
  Call call(call_, Needs::kNoContext);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const FunctionInfo* info = infoOf(call, function);
  if (!info) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = info->name.c_str();
  return CUDA_SUCCESS;
}

/// The names of the functions of a module or the kernels of a library.
CUresult functionNames(Call& call, uint64_t owner, std::vector<std::string>& names) {
  cmd::FunctionNames wire{};
  wire.owner = owner;
  std::vector<std::byte> whole;
  Session::Answer answer;
  answer.whole = &whole;
  if (const CUresult r = call.waitFor(wire, answer); r != CUDA_SUCCESS) return r;
  cmd::Decoded<cmd::FunctionNamesReply> reply;
  if (!cmd::decode(whole, reply)) return CUDA_ERROR_UNKNOWN;
  const auto* text = reinterpret_cast<const char*>(reply.tail[0].data());
  for (size_t at = 0; at < reply.tail[0].size();) {
    names.emplace_back(text + at, ::strnlen(text + at, reply.tail[0].size() - at));
    at += names.back().size() + 1;
  }
  return names.size() == reply.fixed.count ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult enumerate(Call& call, HandleKind ownerKind, const void* owner, HandleKind kind, unsigned count, void** out) {
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  uint64_t wire = 0;
  if (const CUresult r = call.handle(ownerKind, owner, wire); r != CUDA_SUCCESS) return r;
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  if (const CUresult r = functionNames(call, wire, names); r != CUDA_SUCCESS) return r;
  for (size_t i = 0; i < names.size() && i < count; ++i)
    if (const CUresult r = getFunction(call, ownerKind, owner, kind, names[i].c_str(), &out[i]); r != CUDA_SUCCESS)
      return r;
  return CUDA_SUCCESS;
}

/// The library's module in the call's context: always the same handle.
CUresult moduleOf(Call& call, uint64_t library, CUmodule* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HandleTable& handles = call.remote().handles;
  // No function has this name.
  auto info = std::make_unique<FunctionInfo>();
  info->name = std::string(1, '\0') + std::to_string(call.context());
  info->owner = library;
  if (const uint64_t known = handles.childNamed(library, info->name)) {
    *out = reinterpret_cast<CUmodule>(known);
    return CUDA_SUCCESS;
  }
  void* handle = nullptr;
  cmd::LibraryGetModule wire{};
  wire.library = library;
  wire.handle = call.create(HandleKind::kModule, &handle);
  cmd::LibraryGetModuleReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) {
    handles.recycle(handles.claim(HandleKind::kModule, handle));
    return r;
  }
  handles.describe(library, wire.handle, std::move(info));
  *out = static_cast<CUmodule>(handle);
  return CUDA_SUCCESS;
}

CUresult loadLibrary(const char* name, CUlibrary* library, const void* code, size_t known, unsigned jitCount,
                     const CUjit_option* jitOptions, void** jitValues, unsigned count, const CUlibraryOption* options) {
  Call call(name, Needs::kNoContext);
  JitOptions jit;
  if (const CUresult r = jit.read(jitCount, jitOptions, jitValues); r != CUDA_SUCCESS) return r;
  if (const CUresult r = acceptLibraryOptions(count, options); r != CUDA_SUCCESS) return r;
  return load(call, HandleKind::kLibrary, code, known, jit, reinterpret_cast<void**>(library));
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept {
  Call call("cuModuleLoadData", Needs::kCurrent);
  return loadModule(call, image, {}, module);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions, CUjit_option* options,
                            void** optionValues) noexcept {
  Call call("cuModuleLoadDataEx", Needs::kCurrent);
  JitOptions jit;
  if (const CUresult r = jit.read(numOptions, options, optionValues); r != CUDA_SUCCESS) return r;
  return loadModule(call, image, jit, module);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) noexcept {
  Call call("cuModuleLoadFatBinary", Needs::kCurrent);
  return load(call, HandleKind::kModule, fatCubin, kUnknownBytes, {}, reinterpret_cast<void**>(module));
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) noexcept {
  Call call("cuModuleLoad", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  std::vector<char> bytes;
  if (const CUresult r = readImageFile(fname, bytes); r != CUDA_SUCCESS) return r;
  return load(call, HandleKind::kModule, bytes.data(), bytes.size(), {}, reinterpret_cast<void**>(module));
}

CUresult cuModuleUnload(CUmodule hmod) noexcept {
  Call call("cuModuleUnload", Needs::kAny);
  const HandleTable::Slot* slot =
      call.entry() == CUDA_SUCCESS ? call.remote().handles.find(HandleKind::kModule, hmod) : nullptr;
  // The module of a library in a context ends with the library.
  if (slot && slot->function) return CUDA_ERROR_INVALID_HANDLE;
  if (Mirror::exists()) call.remote().managedVariables.removeOf(reinterpret_cast<uint64_t>(hmod));
  return unload(call, HandleKind::kModule, hmod);
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) noexcept {
  Call call("cuModuleEnumerateFunctions", Needs::kAny);
  return enumerate(call, HandleKind::kModule, mod, HandleKind::kFunction, numFunctions,
                   reinterpret_cast<void**>(functions));
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) noexcept {
  Call call("cuLibraryEnumerateKernels", Needs::kNoContext);
  return enumerate(call, HandleKind::kLibrary, lib, HandleKind::kKernel, numKernels, reinterpret_cast<void**>(kernels));
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) noexcept {
  Call call("cuModuleGetFunction", Needs::kAny);
  return getFunction(call, HandleKind::kModule, hmod, HandleKind::kFunction, name, reinterpret_cast<void**>(hfunc));
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) noexcept {
  Call call("cuModuleGetGlobal_v2", Needs::kAny);
  return getGlobal(call, HandleKind::kModule, hmod, name, dptr, bytes);
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions, void** jitOptionsValues,
                           unsigned int numJitOptions, CUlibraryOption* libraryOptions, void**,
                           unsigned int numLibraryOptions) noexcept {
  return loadLibrary("cuLibraryLoadData", library, code, kUnknownBytes, numJitOptions, jitOptions, jitOptionsValues,
                     numLibraryOptions, libraryOptions);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                               void**, unsigned int numLibraryOptions) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  std::vector<char> bytes;
  if (const CUresult r = readImageFile(fileName, bytes); r != CUDA_SUCCESS) return r;
  return loadLibrary("cuLibraryLoadFromFile", library, bytes.data(), bytes.size(), numJitOptions, jitOptions,
                     jitOptionsValues, numLibraryOptions, libraryOptions);
}

CUresult cuLibraryUnload(CUlibrary library) noexcept {
  Call call("cuLibraryUnload", Needs::kNoContext);
  if (Mirror::exists()) call.remote().managedVariables.removeOf(reinterpret_cast<uint64_t>(library));
  return unload(call, HandleKind::kLibrary, library);
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) noexcept {
  Call call("cuLibraryGetKernel", Needs::kNoContext);
  return getFunction(call, HandleKind::kLibrary, library, HandleKind::kKernel, name, reinterpret_cast<void**>(pKernel));
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) noexcept {
  Call call("cuLibraryGetGlobal", Needs::kCurrent);
  return getGlobal(call, HandleKind::kLibrary, library, name, dptr, bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) noexcept {
  Call call("cuLibraryGetManaged", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::GetGlobal wire{};
  wire.managed = 1;
  if (const CUresult r = call.handle(HandleKind::kLibrary, library, wire.owner); r != CUDA_SUCCESS) return r;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  cmd::GetGlobalReply reply{};
  if (const CUresult r = call.wait(wire, reply, std::as_bytes(std::span(name, std::strlen(name)))); r != CUDA_SUCCESS)
    return r;
  const ManagedVariables::Variable variable{wire.owner, reply.address, reply.bytes};
  if (const CUresult r = call.remote().managedVariables.add(CallSink(call), variable, name); r != CUDA_SUCCESS)
    return r;
  if (dptr) *dptr = reply.address;
  if (bytes) *bytes = reply.bytes;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) noexcept {
  Call call("cuLibraryGetModule", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  uint64_t wire = 0;
  if (const CUresult r = call.handle(HandleKind::kLibrary, library, wire); r != CUDA_SUCCESS) return r;
  return moduleOf(call, wire, pMod);
}

CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) noexcept {
  Call call("cuLibraryGetUnifiedFunction", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  uint64_t wire = 0;
  if (const CUresult r = call.handle(HandleKind::kLibrary, library, wire); r != CUDA_SUCCESS) return r;
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The attributes report that no device supports them, and a driver without such a device returns this error.
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) noexcept {
  Call call("cuKernelGetFunction", Needs::kCurrent);
  uint64_t wire = 0;
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = call.handle(HandleKind::kKernel, kernel, wire); r != CUDA_SUCCESS) return r;
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Every call that takes a function also accepts a kernel.
  *pFunc = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) noexcept {
  Call call("cuKernelGetLibrary", Needs::kNoContext);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const FunctionInfo* info = infoOf(call, kernel);
  if (!info) return CUDA_ERROR_INVALID_HANDLE;
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pLib = reinterpret_cast<CUlibrary>(info->owner);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) noexcept {
  Call call("cuFuncGetModule", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  uint64_t wire = 0;
  if (const CUresult r = call.functionOrKernel(hfunc, wire); r != CUDA_SUCCESS) return r;
  const FunctionInfo* info = infoOf(call, hfunc);
  if (!info) return CUDA_ERROR_INVALID_HANDLE;
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle::kind(info->owner) == HandleKind::kLibrary) return moduleOf(call, info->owner, hmod);
  *hmod = reinterpret_cast<CUmodule>(info->owner);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) noexcept {
  return functionName("cuFuncGetName", hfunc, name);
}
CUresult cuKernelGetName(const char** name, CUkernel hfunc) noexcept {
  return functionName("cuKernelGetName", hfunc, name);
}
CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) noexcept {
  return parameterInfo("cuFuncGetParamInfo", Needs::kNoContext, func, paramIndex, paramOffset, paramSize);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset, size_t* paramSize) noexcept {
  return parameterInfo("cuKernelGetParamInfo", Needs::kCurrent, kernel, paramIndex, paramOffset, paramSize);
}

}  // namespace millpond::client::api
