// SPDX-License-Identifier: Apache-2.0
#include "client/call/jit_options.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace millpond::client {
namespace {

uint64_t numberOf(const void* value) { return reinterpret_cast<uintptr_t>(value); }

void copyLog(void* buffer, uint32_t room, std::string_view text) {
  if (!buffer || room == 0) return;
  const size_t length = std::min<size_t>(text.size(), room - 1);
  std::memcpy(buffer, text.data(), length);
  static_cast<char*>(buffer)[length] = '\0';
}

}  // namespace

CUresult JitOptions::read(unsigned count, const CUjit_option* options, void** values) {
  if (count > kMaxJitOptions || (count != 0 && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
  values_ = values;
  for (unsigned i = 0; i < count; ++i) {
    const JitOptionKind kind = kindOf(options[i]);
    if (kind == JitOptionKind::kUnknown) return CUDA_ERROR_INVALID_VALUE;
    if (kind == JitOptionKind::kRefused) {
      log(LogLevel::Warn, "JIT option %d is not supported: it names things by addresses of this process",
          static_cast<int>(options[i]));
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    records_.push_back({static_cast<uint32_t>(options[i]), 0, numberOf(values[i])});
  }
  for (JitOptionRecord& record : records_) {
    const auto id = static_cast<CUjit_option>(record.id);
    if (id == CU_JIT_INFO_LOG_BUFFER) record.value = record.value ? sizeOf(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) : 0;
    if (id == CU_JIT_ERROR_LOG_BUFFER) record.value = record.value ? sizeOf(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) : 0;
  }
  return CUDA_SUCCESS;
}

uint32_t JitOptions::sizeOf(CUjit_option sizeOption) const {
  for (const JitOptionRecord& record : records_)
    if (record.id == static_cast<uint32_t>(sizeOption))
      return static_cast<uint32_t>(std::min<uint64_t>(static_cast<uint32_t>(record.value), kMaxJitLogBytes));
  return 0;
}

void JitOptions::deliver(const JitOutcome& outcome) const {
  for (size_t i = 0; i < records_.size(); ++i) {
    switch (kindOf(static_cast<CUjit_option>(records_[i].id))) {
      case JitOptionKind::kThreads: values_[i] = reinterpret_cast<void*>(uintptr_t{outcome.threadsPerBlock}); break;
      case JitOptionKind::kTime: std::memcpy(&values_[i], &outcome.wallTimeMs, sizeof outcome.wallTimeMs); break;
      case JitOptionKind::kInfoLog: copyLog(values_[i], static_cast<uint32_t>(records_[i].value), outcome.info); break;
      case JitOptionKind::kErrorLog:
        copyLog(values_[i], static_cast<uint32_t>(records_[i].value), outcome.error);
        break;
      case JitOptionKind::kInfoBytes: values_[i] = reinterpret_cast<void*>(uintptr_t{outcome.infoBytes}); break;
      case JitOptionKind::kErrorBytes: values_[i] = reinterpret_cast<void*>(uintptr_t{outcome.errorBytes}); break;
      default: break;
    }
  }
}

}  // namespace millpond::client
