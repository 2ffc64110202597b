// SPDX-License-Identifier: Apache-2.0
// The program's settings for core dumps of the GPU, for the process and for single contexts. None is ever written: the driver
// would do that on the GPU's host.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class CoreDumps {
 public:
  /// The context 0 stands for the process.
  static constexpr uint16_t kProcess = 0;

  /// One for the process, from before cuInit on.
  static CoreDumps& instance();

  /// Like cuCoredumpGetAttribute; without `value`, returns its size in bytes.
  CUresult get(uint16_t context, CUcoredumpSettings attribute, void* value, size_t* size) const;
  /// Like cuCoredumpSetAttribute. CUDA_ERROR_NOT_SUPPORTED for settings that would cause a dump to be written.
  CUresult set(uint16_t context, CUcoredumpSettings attribute, const void* value, size_t* size);
  /// A context has ended.
  void forget(uint16_t context);

 private:
  /// The setting; none if that of the process, and otherwise the default, applies.
  struct Settings {
    std::optional<unsigned> flags;
    std::optional<std::string> file;
    std::optional<std::string> pipe;
  };

  template <typename T>
  std::optional<T> find(uint16_t context, std::optional<T> Settings::*member) const;
  unsigned flags(uint16_t context) const { return find(context, &Settings::flags).value_or(CU_COREDUMP_DEFAULT_FLAGS); }
  bool truth(uint16_t context, CUcoredumpSettings attribute) const;
  std::string text(uint16_t context, CUcoredumpSettings attribute) const;
  CUresult setTruth(uint16_t context, CUcoredumpSettings attribute, bool value);

  mutable std::mutex mutex_;
  std::map<uint16_t, Settings> settings_;
};

}  // namespace millpond::client
