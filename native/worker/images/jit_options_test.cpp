// SPDX-License-Identifier: Apache-2.0
#include "worker/images/jit_options.h"

#include "testing/check.h"

namespace millpond::worker {
namespace {

std::span<const std::byte> bytes(const std::vector<JitOptionRecord>& records) {
  return std::as_bytes(std::span(records));
}

TEST("a log is a buffer of the worker's own, and its size is told as it is") {
  JitOptions options;
  const std::vector<JitOptionRecord> records = {{CU_JIT_ERROR_LOG_BUFFER, 0, 100},
                                                {CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 0, 5000},
                                                {CU_JIT_OPTIMIZATION_LEVEL, 0, 2}};
  CHECK(options.read(bytes(records)));
  CHECK_EQ(options.count(), 3u);
  CHECK(options.values()[0] != nullptr);
  CHECK_EQ(options.errorBytes(), 100u);
}

TEST("of a log without room the driver is told nothing: it would refuse one that is no buffer") {
  JitOptions options;
  const std::vector<JitOptionRecord> records = {{CU_JIT_INFO_LOG_BUFFER, 0, 0},
                                                {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 0, 0},
                                                {CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 0, 100},
                                                {CU_JIT_OPTIMIZATION_LEVEL, 0, 2}};
  CHECK(options.read(bytes(records)));
  CHECK_EQ(options.count(), 1u);
  CHECK_EQ(options.ids()[0], CU_JIT_OPTIMIZATION_LEVEL);
  CHECK_EQ(options.infoBytes(), 0u);
  CHECK(options.info().empty());
}

}  // namespace
}  // namespace millpond::worker
