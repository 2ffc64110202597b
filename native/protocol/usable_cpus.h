// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace millpond {

/// How many processors this process can keep busy, at least 1: those that it may run on, and not more than the quota of its
/// control groups pays for (`cpu.max`, in version 1 `cpu.cfs_quota_us`). A process that spins beyond its quota is stopped for
/// the rest of a period, 100 ms as a rule.
double usableCpus();

/// The quota in processors, the least of a group and all above it; infinite where there is none. `groups`: as in
/// /proc/self/cgroup; `root`: where the hierarchies are mounted.
double cpuQuota(const std::string& groups, const std::string& root);

}  // namespace millpond
