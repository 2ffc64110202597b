// SPDX-License-Identifier: Apache-2.0
#include "worker/device/driver.h"

#include <dlfcn.h>

namespace millpond::worker {

Result<DriverLibrary> openDriver(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return Error{std::string("cannot load the driver: ") + ::dlerror()};
  // Our own client library under this name would forward calls to itself endlessly.
  if (::dlsym(library, "millpond_client")) return Error{path + " is Millpond's client library, not a driver"};
  DriverLibrary out;
  out.driver.load(library);
  const Driver& driver = out.driver;
  if (!driver.cuInit || !driver.cuDeviceGetCount || !driver.cuDevicePrimaryCtxRetain || !driver.cuMemAddressReserve)
    return Error{path + " is not a CUDA driver, or too old"};
  out.stateDirectory =
      reinterpret_cast<decltype(out.stateDirectory)>(::dlsym(library, "millpond_softgpu_state_directory"));
  return out;
}

Status startDriver(const Driver& driver, const std::string& path) {
  const CUresult rc = driver.cuInit(0);
  if (rc == CUDA_SUCCESS) return Done{};
  const char* name = nullptr;
  if (driver.cuGetErrorName) driver.cuGetErrorName(rc, &name);
  return Error{path + ": cuInit answered " + (name ? name : std::to_string(static_cast<int>(rc)))};
}

std::string failure(const Driver& driver, const char* call, CUresult rc) {
  const char* name = nullptr;
  if (driver.cuGetErrorName) driver.cuGetErrorName(rc, &name);
  return std::string(call) + " answered " + (name ? name : std::to_string(static_cast<int>(rc)));
}

}  // namespace millpond::worker
