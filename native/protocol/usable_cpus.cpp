// SPDX-License-Identifier: Apache-2.0
#include "protocol/usable_cpus.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/unique_fd.h"

namespace millpond {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// The beginning of a file; these files are shorter.
std::string contentOf(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content(4096, '\0');
  const ssize_t n = file ? ::read(file.get(), content.data(), content.size()) : 0;
  content.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return content;
}

/// "QUOTA PERIOD", or "max PERIOD", or "-1 PERIOD".
double quotaOf(const std::string& text) {
  char* end = nullptr;
  const double quota = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(quota > 0)) return kNone;
  const double period = std::strtod(end, nullptr);
  return period > 0 ? quota / period : kNone;
}

double quotaIn(const std::string& folder, bool isVersion2) {
  if (isVersion2) return quotaOf(contentOf(folder + "/cpu.max"));
  return quotaOf(contentOf(folder + "/cpu.cfs_quota_us") + " " + contentOf(folder + "/cpu.cfs_period_us"));
}

bool names(const std::string& controllers, const char* controller) {
  return ("," + controllers + ",").find(std::string(",") + controller + ",") != std::string::npos;
}

/// The limit of a group and of all its parents. A container sees its own group as the root of the mount.
double leastOf(const std::string& mount, std::string group, bool isVersion2) {
  double least = quotaIn(mount, isVersion2);
  while (group.size() > 1) {
    least = std::min(least, quotaIn(mount + group, isVersion2));
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  return least;
}

}  // namespace

double cpuQuota(const std::string& groups, const std::string& root) {
  double least = kNone;
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);
    at = end + 1;
    // HIERARCHY:CONTROLLERS:GROUP
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty())
      least = std::min({least, leastOf(root, group, true), leastOf(root + "/unified", group, true)});
    else if (names(controllers, "cpu"))
      least = std::min({least, leastOf(root + "/cpu", group, false), leastOf(root + "/cpu,cpuacct", group, false)});
  }
  return least;
}

double usableCpus() {
  cpu_set_t mine;
  const double allowed = ::sched_getaffinity(0, sizeof(mine), &mine) == 0 ? static_cast<double>(CPU_COUNT(&mine)) : 1;
  return std::max(1.0, std::min(allowed, cpuQuota(contentOf("/proc/self/cgroup"), "/sys/fs/cgroup")));
}

}  // namespace millpond
