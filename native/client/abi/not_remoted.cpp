// SPDX-License-Identifier: Apache-2.0
#include <mutex>
#include <vector>

#include "base/log.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client {

CUresult notRemoted(const char* symbol, const char* why) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  // The names are literals, so their addresses identify them.
  static std::mutex& mutex = *new std::mutex();
  static auto& said = *new std::vector<const char*>();
  {
    std::lock_guard lock(mutex);
    for (const char* each : said)
      if (each == symbol) return CUDA_ERROR_NOT_SUPPORTED;
    said.push_back(symbol);
  }
  if (why)
    log(LogLevel::Warn, "%s is not supported: %s", symbol, why);
  else
    log(LogLevel::Warn, "%s is not supported yet (see docs/reference/cuda-coverage.md)", symbol);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace millpond::client
