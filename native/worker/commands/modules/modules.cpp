// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/modules/modules.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/image_extent.h"
#include "worker/commands/modules/jit_reply.h"
#include "worker/images/linked_fatbins.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxSymbolBytes = 4096;
/// Maximum number of function names in a reply.
constexpr size_t kMaxNamesBytes = size_t{512} << 10;
/// The longest parameter list of any architecture.
constexpr size_t kMaxParameterBytes = 32764;

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::optional<ImageMemory> Modules::memoryOf(const Image& image, const LinkedFatbins& fatbins) {
  std::vector<unsigned> archs;
  for (const auto& device : devices_.all()) {
    int major = 0, minor = 0;
    driver_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device.device);
    driver_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device.device);
    archs.push_back(static_cast<unsigned>(major * 10 + minor));
  }
  if (fatbins.parts().empty()) return imageMemory(std::span(image.data(), image.total), archs);
  ImageMemory all;
  for (const std::span<const std::byte> part : fatbins.parts()) {
    const auto memory = imageMemory(part, archs);
    if (!memory) return std::nullopt;
    all.add(*memory);
  }
  return all;
}

CUresult Modules::onModuleLoad(const cmd::Decoded<cmd::ModuleLoad>& command) {
  const auto& load = command.fixed;
  Image image;
  if (!images_.take(load.handle, image)) return violation("a module whose image is missing");
  if (image.noRoom) return CUDA_ERROR_OUT_OF_MEMORY;
  if (Images::isWrapper(image)) return violation("an image that names addresses");
  const HandleKind kind = handle::kind(load.handle);
  if (!(load.kind == 0 && kind == HandleKind::kModule) && !(load.kind == 1 && kind == HandleKind::kLibrary))
    return violation("a module of unknown kind");
  JitOptions options;
  if (!options.read(command.tail[0])) return violation("unknown compiler options");
  LinkedFatbins fatbins;
  if (!fatbins.read(command.tail[1], image.data(), image.total)) return violation("fatbins outside of their image");
  // With the terminating zero of text.
  if (!fatbins.wrapper() && imageExtent(image.data(), image.total + 1) == 0)
    return violation("an image that reaches beyond its bytes");

  if (handles_.find(load.handle)) return violation("the handle of a module is taken");
  if (CUresult rc = charges_.image(load.handle, image.total)) return rc;
  const auto memory = memoryOf(image, fatbins);
  if (memory)
    if (CUresult rc = charges_.module(load.handle, *memory)) {
      charges_.dropModule(load.handle);
      return rc;
    }

  const void* code = fatbins.wrapper() ? fatbins.wrapper() : image.data();
  void* object = nullptr;
  const auto make = [&]() -> CUresult {
    CUmodule module = nullptr;
    CUlibrary library = nullptr;
    const CUresult made =
        kind == HandleKind::kModule
            ? driver_.cuModuleLoadDataEx(&module, code, options.count(), options.ids(), options.values())
            : driver_.cuLibraryLoadData(&library, code, options.ids(), options.values(), options.count(), nullptr,
                                        nullptr, 0);
    object = kind == HandleKind::kModule ? static_cast<void*>(module) : static_cast<void*>(library);
    return made;
  };
  const auto unmake = [&] {
    kind == HandleKind::kModule ? driver_.cuModuleUnload(static_cast<CUmodule>(object))
                                : driver_.cuLibraryUnload(static_cast<CUlibrary>(object));
  };
  // Code whose declarations of variables cannot be parsed, or that is not code at all.
  const CUresult rc = memory ? make()
                             : charges_.measured(DriverMemory::Of::kModule, load.handle,
                                                 contexts_.primaryOf(contexts_.bound()), UINT64_MAX, make, unmake);
  if (rc) charges_.dropModule(load.handle);
  replyJit<cmd::ModuleLoadReply>(session_, options);
  if (!rc && !objects_.adopt(kind, load.handle, object)) return violation("the handle of a module is taken");
  if (!rc) loaded_.note(load, {image.data(), fatbins.wrapper() ? 0 : image.total});
  images_.keep(std::move(image));
  return rc;
}

void Modules::dropChildren(uint64_t owner) {
  const auto found = children_.find(owner);
  if (found == children_.end()) return;
  const std::vector<uint64_t> children = std::move(found->second);
  children_.erase(found);
  for (const uint64_t child : children) {
    dropChildren(child);
    handles_.drop(handle::kind(child), child);
    functions_.remove(child);
    borrowed_.erase(child);
    loaded_.forget(child);
  }
}

CUresult Modules::onModuleUnload(const cmd::Decoded<cmd::ModuleUnload>& command) {
  const uint64_t wire = command.fixed.handle;
  const HandleKind kind = handle::kind(wire);
  if (kind != HandleKind::kModule && kind != HandleKind::kLibrary) return violation("not a module");
  void* object = nullptr;
  if (!handle(kind, wire, object)) return violation("unknown module");
  const bool borrowed = borrowed_.erase(wire) != 0;
  dropChildren(wire);
  objects_.drop(kind, wire);
  loaded_.forget(wire);
  const uint64_t ending = charges_.newEnding();
  charges_.retireModule(wire, ending);
  // The module of a library in a context ends with either, and its handles with this command.
  if (borrowed) {
    charges_.ended(ending);
    return CUDA_SUCCESS;
  }
  // An object that has ended with its context, or never existed.
  if (!object) {
    charges_.ended(ending);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return order_.run([this, kind, object, ending] {
    const CUresult rc = kind == HandleKind::kModule ? driver_.cuModuleUnload(static_cast<CUmodule>(object))
                                                    : driver_.cuLibraryUnload(static_cast<CUlibrary>(object));
    charges_.ended(ending);
    return rc;
  });
}

CUresult Modules::onLibraryGetModule(const cmd::Decoded<cmd::LibraryGetModule>& command) {
  CUlibrary library = nullptr;
  if (!handle(HandleKind::kLibrary, command.fixed.library, library)) return violation("unknown library");
  CUmodule module = nullptr;
  if (CUresult rc = driver_.cuLibraryGetModule(&module, library)) return rc;
  if (!objects_.adopt(HandleKind::kModule, command.fixed.handle, module))
    return violation("the handle of a module is taken");
  children_[command.fixed.library].push_back(command.fixed.handle);
  borrowed_.insert(command.fixed.handle);
  return CUDA_SUCCESS;
}

CUresult Modules::onFunctionNames(const cmd::Decoded<cmd::FunctionNames>& command) {
  const uint64_t owner = command.fixed.owner;
  std::string names;
  unsigned count = 0;
  const auto collect = [&](auto& handles, auto enumerate, auto nameOf) -> CUresult {
    handles.resize(count);
    if (count == 0) return CUDA_SUCCESS;
    if (CUresult rc = enumerate(handles.data())) return rc;
    for (const auto each : handles) {
      const char* name = nullptr;
      if (CUresult rc = nameOf(&name, each)) return rc;
      names.append(name ? name : "");
      names.push_back('\0');
    }
    return CUDA_SUCCESS;
  };
  CUresult rc;
  if (handle::kind(owner) == HandleKind::kModule) {
    CUmodule module = nullptr;
    if (!handle(HandleKind::kModule, owner, module)) return violation("unknown module");
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    std::vector<CUfunction> functions;
    rc = driver_.cuModuleGetFunctionCount(&count, module);
    if (!rc)
      rc = collect(
          functions, [&](CUfunction* out) { return driver_.cuModuleEnumerateFunctions(out, count, module); },
          driver_.cuFuncGetName);
  } else {
    CUlibrary library = nullptr;
    if (!handle(HandleKind::kLibrary, owner, library)) return violation("unknown library");
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::vector<CUkernel> kernels;
    rc = driver_.cuLibraryGetKernelCount(&count, library);
    if (!rc)
      rc = collect(
          kernels, [&](CUkernel* out) { return driver_.cuLibraryEnumerateKernels(out, count, library); },
          driver_.cuKernelGetName);
  }
  if (rc) return rc;
  if (names.size() > kMaxNamesBytes) return CUDA_ERROR_NOT_SUPPORTED;
  reply(cmd::FunctionNamesReply{.count = count}, std::as_bytes(std::span(names)));
  return CUDA_SUCCESS;
}

CUresult Modules::onGetFunction(const cmd::Decoded<cmd::GetFunction>& command) {
  const auto& get = command.fixed;
  if (command.tail[0].size() > kMaxSymbolBytes)
    return violation("a name of " + std::to_string(command.tail[0].size()) + " bytes");
  const std::string name = text(command.tail[0]);
  const HandleKind kind = handle::kind(get.handle);
  void* object = nullptr;
  CUresult rc;
  if (kind == HandleKind::kFunction) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    if (!handle(HandleKind::kModule, get.owner, module)) return violation("unknown module");
    rc = driver_.cuModuleGetFunction(&function, module, name.c_str());
    object = function;
  } else if (kind == HandleKind::kKernel) {
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    if (!handle(HandleKind::kLibrary, get.owner, library)) return violation("unknown library");
    rc = driver_.cuLibraryGetKernel(&kernel, library, name.c_str());
    object = kernel;
  } else {
    return violation("a function of unknown kind");
  }
  if (rc) return rc;

  if ((rc = charges_.localMemory(kind, object))) return rc;

  std::vector<uint32_t> layout;
  uint32_t end = 0;
  for (size_t i = 0; i < kMaxParameterBytes; ++i) {
    size_t offset = 0, size = 0;
    const CUresult more = kind == HandleKind::kFunction
                              ? driver_.cuFuncGetParamInfo(static_cast<CUfunction>(object), i, &offset, &size)
                              : driver_.cuKernelGetParamInfo(static_cast<CUkernel>(object), i, &offset, &size);
    if (more) break;
    layout.push_back(static_cast<uint32_t>(offset));
    layout.push_back(static_cast<uint32_t>(size));
    end = std::max(end, static_cast<uint32_t>(offset + size));
  }
  if (!objects_.adopt(kind, get.handle, object)) return violation("the handle of a function is taken");
  children_[get.owner].push_back(get.handle);
  functions_.add(get.handle, {end, {}, layout});
  reply(cmd::GetFunctionReply{.paramCount = static_cast<uint32_t>(layout.size() / 2)}, std::as_bytes(std::span(layout)),
        std::span<const std::byte>{});
  return CUDA_SUCCESS;
}

CUresult Modules::onGetGlobal(const cmd::Decoded<cmd::GetGlobal>& command) {
  if (command.tail[0].size() > kMaxSymbolBytes)
    return violation("a name of " + std::to_string(command.tail[0].size()) + " bytes");
  const std::string name = text(command.tail[0]);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUresult rc;
  if (handle::kind(command.fixed.owner) == HandleKind::kModule) {
    CUmodule module = nullptr;
    if (!handle(HandleKind::kModule, command.fixed.owner, module)) return violation("unknown module");
    rc = driver_.cuModuleGetGlobal_v2(&address, &bytes, module, name.c_str());
  } else {
    CUlibrary library = nullptr;
    if (!handle(HandleKind::kLibrary, command.fixed.owner, library)) return violation("unknown library");
    rc = command.fixed.managed ? driver_.cuLibraryGetManaged(&address, &bytes, library, name.c_str())
                               : driver_.cuLibraryGetGlobal(&address, &bytes, library, name.c_str());
  }
  if (rc) return rc;
  loaded_.tellAddress(command.fixed.owner);
  unsigned isManaged = command.fixed.managed;
  CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_IS_MANAGED;
  void* told = &isManaged;
  // If the driver does not know the address, it has no managed variable there.
  if (isManaged == 0 && driver_.cuPointerGetAttributes(1, &wanted, &told, address)) isManaged = 0;
  reply(cmd::GetGlobalReply{.address = address, .bytes = bytes, .managed = isManaged != 0 ? 1u : 0u});
  return CUDA_SUCCESS;
}

CUresult Modules::onGetReference(const cmd::Decoded<cmd::GetReference>& command) {
  const auto& get = command.fixed;
  if (command.tail[0].size() > cmd::kMaxStringBytes) return violation("a name that is too long");
  const std::string name(reinterpret_cast<const char*>(command.tail[0].data()), command.tail[0].size());
  CUmodule module = nullptr;
  if (!handle(HandleKind::kModule, get.owner, module)) return violation("unknown module");
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const HandleKind kind = handle::kind(get.handle);
  void* object = nullptr;
  CUresult rc;
  if (kind == HandleKind::kTextureReference) {
    CUtexref texture = nullptr;
    rc = driver_.cuModuleGetTexRef(&texture, module, name.c_str());
    object = texture;
  } else if (kind == HandleKind::kSurfaceReference) {
    CUsurfref surface = nullptr;
    rc = driver_.cuModuleGetSurfRef(&surface, module, name.c_str());
    object = surface;
  } else {
    return violation("a reference of unknown kind");
  }
  if (rc) return rc;
  if (!objects_.adopt(kind, get.handle, object)) return violation("the handle of a reference is taken");
  children_[get.owner].push_back(get.handle);
  borrowed_.insert(get.handle);
  reply(cmd::GetReferenceReply{});
  return CUDA_SUCCESS;
}

CUresult Modules::onTextureReferenceDestroy(const cmd::Decoded<cmd::TextureReferenceDestroy>& command) {
  const uint64_t wire = command.fixed.handle;
  CUtexref reference = nullptr;
  if (!handle(HandleKind::kTextureReference, wire, reference)) return violation("unknown texture reference");
  if (borrowed_.contains(wire)) return violation("the reference is its module's");
  objects_.drop(HandleKind::kTextureReference, wire);
  return reference ? driver_.cuTexRefDestroy(reference) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace millpond::worker
