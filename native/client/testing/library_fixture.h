// SPDX-License-Identifier: Apache-2.0
// The client library in a process of its own for each scenario, with a canned worker.
#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "cuda/gen/cuda_api.h"
#include "testing/check.h"
#include "testing/servers/canned_worker.h"

namespace millpond::client::testing {

inline const char* libraryPath = nullptr;
inline millpond::testing::CannedWorker* worker = nullptr;

// A driver function of the library, with the type from the header.
#define DRIVER(name) reinterpret_cast<decltype(&::name)>(symbol(#name))

inline void* symbol(const char* name) {
  static void* const library = [] {
    void* opened = ::dlopen(libraryPath, RTLD_NOW | RTLD_LOCAL);
    if (!opened) millpond::testing::fail(__FILE__, __LINE__, ::dlerror());
    return opened;
  }();
  void* found = ::dlsym(library, name);
  if (!found) millpond::testing::fail(__FILE__, __LINE__, std::string("no symbol ") + name);
  return found;
}

inline int runInChild(const std::function<void()>& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);  // the library's exit handlers belong to other scenarios
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A process in which the library finds the canned worker; `body` checks.
inline void scenario(const std::function<void()>& body) {
  CHECK_EQ(runInChild([&] {
             ::setenv("MILLPOND_WORKER", ("unix:" + worker->path()).c_str(), 1);
             body();
           }),
           0);
}

inline std::string nameOf(CUdevice device) {
  char name[100] = {};
  CHECK_EQ(DRIVER(cuDeviceGetName)(name, sizeof name, device), CUDA_SUCCESS);
  return name;
}

inline const void* table(std::array<unsigned char, 16> id) {
  CUuuid uuid;
  std::memcpy(uuid.bytes, id.data(), sizeof uuid.bytes);
  const void* found = &id;
  const CUresult result = DRIVER(cuGetExportTable)(&found, &uuid);
  CHECK_EQ(result, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
  return found;
}
template <typename Function>
Function slot(const void* words, size_t index) {
  return reinterpret_cast<Function>(static_cast<void* const*>(words)[index]);
}

inline constexpr std::array<unsigned char, 16> kRuntime{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                        0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
inline constexpr std::array<unsigned char, 16> kHooks{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74,
                                                      0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66};
inline constexpr std::array<unsigned char, 16> kThread{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47,
                                                       0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc};
inline constexpr std::array<unsigned char, 16> kStorage{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                                        0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};
inline constexpr std::array<unsigned char, 16> kChecks{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43,
                                                       0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e};
inline constexpr std::array<unsigned char, 16> kIntegrity{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b,
                                                          0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};
inline constexpr std::array<unsigned char, 16> kToolsContext{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48,
                                                             0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2};

}  // namespace millpond::client::testing
