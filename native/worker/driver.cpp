// SPDX-License-Identifier: Apache-2.0
#include "worker/driver.h"

#include <dlfcn.h>

namespace millpond::worker {

Result<Driver> loadDriver(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return Error{std::string("cannot load the driver: ") + ::dlerror()};
  // Our own client library under this name would forward to itself without end.
  if (::dlsym(library, "millpond_client")) return Error{path + " is Millpond's client library, not a driver"};
  Driver driver;
  driver.load(library);
  if (!driver.cuInit || !driver.cuDeviceGetCount || !driver.cuDevicePrimaryCtxRetain || !driver.cuMemAddressReserve)
    return Error{path + " is no CUDA driver, or one that is too old"};
  if (CUresult rc = driver.cuInit(0)) {
    const char* name = nullptr;
    if (driver.cuGetErrorName) driver.cuGetErrorName(rc, &name);
    return Error{path + ": cuInit answered " + (name ? name : std::to_string(static_cast<int>(rc)))};
  }
  return driver;
}

std::string failure(const Driver& driver, const char* call, CUresult rc) {
  const char* name = nullptr;
  if (driver.cuGetErrorName) driver.cuGetErrorName(rc, &name);
  return std::string(call) + " answered " + (name ? name : std::to_string(static_cast<int>(rc)));
}

}  // namespace millpond::worker
