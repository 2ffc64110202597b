// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace millpond {

/// The number of processors that this process can keep busy, at least 1: those in its affinity mask, limited by the
/// quota of its control groups (`cpu.max`, in version 1 `cpu.cfs_quota_us`). A process that spins beyond its quota is
/// suspended for the rest of a period, usually 100 ms.
double usableCpus();

/// The quota in processors, the minimum of a group and all its parents; infinite if there is none. `groups`: as in
/// /proc/self/cgroup; `root`: the mount point of the hierarchies.
double cpuQuota(const std::string& groups, const std::string& root);

}  // namespace millpond
