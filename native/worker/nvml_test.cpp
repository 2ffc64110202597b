// SPDX-License-Identifier: Apache-2.0
#include "worker/nvml.h"

#include "testing/check.h"

using millpond::worker::Nvml;

TEST("devices are linked as the management library says") {
  const Nvml nvml(MILLPOND_FAKE_NVML);
  CHECK_EQ(nvml.driverVersion(), std::string("580.1"));
  CHECK(nvml.areLinked("GPU-a", "GPU-b"));
  CHECK(nvml.areLinked("GPU-b", "GPU-a"));
  CHECK(!nvml.areLinked("GPU-a", "GPU-c"));
  CHECK(!nvml.areLinked("GPU-a", "GPU-unknown"));
}

TEST("without a management library nothing is known") {
  const Nvml nvml("/nonexistent/libnvidia-ml.so.1");
  CHECK_EQ(nvml.driverVersion(), std::string());
  CHECK(!nvml.areLinked("GPU-a", "GPU-b"));
}
