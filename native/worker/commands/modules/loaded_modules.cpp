// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/modules/loaded_modules.h"

#include <algorithm>

namespace millpond::worker {

void LoadedModules::note(const cmd::ModuleLoad& load, std::span<const std::byte> image) {
  if (!isRecorded_) return;
  std::vector<unsigned> archs;
  for (const auto& device : devices_.all()) {
    int major = 0, minor = 0;
    driver_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device.device);
    driver_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device.device);
    archs.push_back(static_cast<unsigned>(major * 10 + minor));
  }
  Loaded& loaded = loaded_[load.handle] = {load.isKept == 1, {}};
  if (!image.empty()) loaded.variables = imageVariables(image, archs);
}

bool LoadedModules::holdsTheSame(uint64_t wire, const ImageVariable& variable) {
  const HandleMap::Entry* entry = handles_.find(wire);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const CUresult found =
      handle::kind(wire) == HandleKind::kModule
          ? driver_.cuModuleGetGlobal_v2(&address, &bytes, static_cast<CUmodule>(entry->object), variable.name.c_str())
          : driver_.cuLibraryGetGlobal(&address, &bytes, static_cast<CUlibrary>(entry->object), variable.name.c_str());
  if (found != CUDA_SUCCESS || bytes != variable.initial.size()) return false;
  std::vector<std::byte> now(bytes);
  return driver_.cuMemcpyDtoH_v2(now.data(), address, bytes) == CUDA_SUCCESS && now == variable.initial;
}

LoadedModules::Compared LoadedModules::compareVariables(uint64_t wire, const Loaded& loaded) {
  if (!loaded.variables) return Compared::kUnknown;
  const HandleMap::Entry* entry = handles_.find(wire);
  const bool isModule = handle::kind(wire) == HandleKind::kModule;
  const uint16_t before = contexts_.bound();
  Compared result = Compared::kSame;
  for (uint16_t context = 1; context <= contexts_.size() && !loaded.variables->empty(); ++context) {
    if (!contexts_.at(context).hasLaunched || (isModule && context != entry->context)) continue;
    const bool isSame =
        contexts_.use(context) && std::all_of(loaded.variables->begin(), loaded.variables->end(),
                                              [&](const ImageVariable& v) { return holdsTheSame(wire, v); });
    if (!isSame) result = Compared::kOther;
  }
  contexts_.use(before);
  return result;
}

std::string LoadedModules::whyKept() {
  if (!asked_.empty()) return "its program knows the address of a module's variable";
  for (const auto& [wire, loaded] : loaded_) {
    const HandleMap::Entry* entry = handles_.find(wire);
    if (!entry || !entry->object) continue;
    if (!loaded.isKept) return "its client did not keep the image of one of its modules";
    switch (compareVariables(wire, loaded)) {
      case Compared::kSame: continue;
      case Compared::kOther: return "a variable of a module may have been written";
      case Compared::kUnknown: return "the initial values of a module's variables are unknown";
    }
  }
  return "";
}

}  // namespace millpond::worker
