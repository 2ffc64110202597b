// SPDX-License-Identifier: Apache-2.0
#include "client/state/core_dumps.h"

#include <cstdlib>
#include <cstring>

namespace millpond::client {
namespace {

/// Size of a text in bytes, including its end.
constexpr size_t kTextBytes = 1024;

bool isText(CUcoredumpSettings attribute) { return attribute == CU_COREDUMP_FILE || attribute == CU_COREDUMP_PIPE; }

/// Size of an attribute's value in bytes; 0 if there is no such attribute.
size_t bytesOf(CUcoredumpSettings attribute) {
  if (attribute < CU_COREDUMP_ENABLE_ON_EXCEPTION || attribute >= CU_COREDUMP_MAX) return 0;
  if (isText(attribute)) return kTextBytes;
  return attribute == CU_COREDUMP_GENERATION_FLAGS ? sizeof(unsigned) : sizeof(bool);
}

/// The settings that contexts do not have of their own.
bool isOfProcess(CUcoredumpSettings attribute) {
  return attribute == CU_COREDUMP_ENABLE_USER_TRIGGER || attribute == CU_COREDUMP_PIPE;
}

}  // namespace

CoreDumps& CoreDumps::instance() {
  static auto& one = *new CoreDumps();
  return one;
}

template <typename T>
std::optional<T> CoreDumps::find(uint16_t context, std::optional<T> Settings::*member) const {
  for (const uint16_t each : {context, kProcess})
    if (const auto found = settings_.find(each); found != settings_.end() && found->second.*member)
      return found->second.*member;
  return std::nullopt;
}

bool CoreDumps::truth(uint16_t context, CUcoredumpSettings attribute) const {
  switch (attribute) {
    case CU_COREDUMP_TRIGGER_HOST: return (flags(context) & CU_COREDUMP_SKIP_ABORT) == 0;
    case CU_COREDUMP_LIGHTWEIGHT:
      return (flags(context) & CU_COREDUMP_LIGHTWEIGHT_FLAGS) == CU_COREDUMP_LIGHTWEIGHT_FLAGS;
    default: return false;
  }
}

std::string CoreDumps::text(uint16_t context, CUcoredumpSettings attribute) const {
  const bool isFile = attribute == CU_COREDUMP_FILE;
  const auto set = find(context, isFile ? &Settings::file : &Settings::pipe);
  if (set) return *set;
  const char* const given = std::getenv(isFile ? "CUDA_COREDUMP_FILE" : "CUDA_COREDUMP_PIPE");
  return given ? given : "";
}

CUresult CoreDumps::get(uint16_t context, CUcoredumpSettings attribute, void* value, size_t* size) const {
  const size_t bytes = bytesOf(attribute);
  if (bytes == 0 || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context != kProcess && isOfProcess(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (value == nullptr) {
    *size = bytes;
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mutex_);
  if (isText(attribute)) {
    const std::string found = text(context, attribute);
    if (*size <= found.size()) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(value, found.c_str(), found.size() + 1);
    return CUDA_SUCCESS;
  }
  if (*size < bytes) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_COREDUMP_GENERATION_FLAGS) {
    const unsigned found = flags(context);
    std::memcpy(value, &found, sizeof found);
  } else {
    const bool found = truth(context, attribute);
    std::memcpy(value, &found, sizeof found);
  }
  return CUDA_SUCCESS;
}

CUresult CoreDumps::setTruth(uint16_t context, CUcoredumpSettings attribute, bool value) {
  unsigned part = 0;
  bool isSet = value;
  switch (attribute) {
    case CU_COREDUMP_TRIGGER_HOST:
      part = CU_COREDUMP_SKIP_ABORT;
      isSet = !value;
      break;
    case CU_COREDUMP_LIGHTWEIGHT: part = CU_COREDUMP_LIGHTWEIGHT_FLAGS; break;
    default: return value ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  }
  const unsigned before = flags(context);
  settings_[context].flags = isSet ? before | part : before & ~part;
  return CUDA_SUCCESS;
}

CUresult CoreDumps::set(uint16_t context, CUcoredumpSettings attribute, const void* value, size_t* size) {
  const size_t bytes = bytesOf(attribute);
  if (bytes == 0 || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context != kProcess && isOfProcess(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (value == nullptr) {
    *size = bytes;
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mutex_);
  if (isText(attribute)) {
    const size_t length = ::strnlen(static_cast<const char*>(value), *size);
    if (length >= kTextBytes) return CUDA_ERROR_INVALID_VALUE;
    std::string wanted(static_cast<const char*>(value), length);
    Settings& settings = settings_[context];
    (attribute == CU_COREDUMP_FILE ? settings.file : settings.pipe) = std::move(wanted);
    return CUDA_SUCCESS;
  }
  if (*size < bytes) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_COREDUMP_GENERATION_FLAGS) {
    constexpr unsigned kKnown = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
    unsigned wanted = 0;
    std::memcpy(&wanted, value, sizeof wanted);
    if (wanted & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
    settings_[context].flags = wanted;
    return CUDA_SUCCESS;
  }
  unsigned char wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  return setTruth(context, attribute, wanted != 0);
}

void CoreDumps::forget(uint16_t context) {
  std::lock_guard lock(mutex_);
  settings_.erase(context);
}

}  // namespace millpond::client
