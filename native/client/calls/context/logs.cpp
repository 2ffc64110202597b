// SPDX-License-Identifier: Apache-2.0
// The log of failed calls. It works before cuInit, and whatever the state of the session.
#include <cstdio>
#include <cstring>
#include <memory>

#include "client/gen/api.h"
#include "client/state/call_log.h"

namespace millpond::client::api {
namespace {

/// All stored messages; in terms of iterators also those that are no longer stored.
constexpr CUlogIterator kOldest = 0;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) noexcept {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUlogsCallbackHandle handle = CallLog::instance().add(callbackFunc, userData);
  if (callback_out != nullptr) *callback_out = handle;
  return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) noexcept {
  return CallLog::instance().remove(callback) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int) noexcept {
  if (iterator_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = CallLog::instance().end();
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int) noexcept {
  if (pathToFile == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(pathToFile, "we"));
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  CUlogIterator from = iterator ? *iterator : kOldest;
  std::string text;
  CallLog::instance().read(from, SIZE_MAX, text);
  if (iterator) *iterator = from;
  return std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size, unsigned int) noexcept {
  if (buffer == nullptr || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlogIterator from = iterator ? *iterator : kOldest;
  std::string text;
  // The terminating zero takes room, too.
  const bool fits = *size > 0 && CallLog::instance().read(from, *size - 1, text);
  if (!fits) {
    *size = 0;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (iterator) *iterator = from;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  *size = text.size();
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
