// SPDX-License-Identifier: Apache-2.0
#include "protocol/usable_cpus.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "testing/check.h"

namespace millpond {
namespace {

namespace fs = std::filesystem;

/// A tree of control groups.
struct Groups {
  fs::path root;

  Groups() {
    std::string name = (fs::temp_directory_path() / "millpond-groups-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    root = name;
  }
  ~Groups() { fs::remove_all(root); }

  void write(const std::string& file, const std::string& content) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << content;
  }
  double quota(const std::string& groups) const { return cpuQuota(groups, root.string()); }
};

TEST("without a quota there is no limit") {
  const Groups groups;
  CHECK(std::isinf(groups.quota("")));
  CHECK(std::isinf(groups.quota("0::/nowhere\n")));
  CHECK(std::isinf(groups.quota("nonsense\n:\n::\n")));
  groups.write("pod/cpu.max", "max 100000\n");
  CHECK(std::isinf(groups.quota("0::/pod\n")));
  groups.write("cpu/old/cpu.cfs_quota_us", "-1\n");
  groups.write("cpu/old/cpu.cfs_period_us", "100000\n");
  CHECK(std::isinf(groups.quota("4:cpu,cpuacct:/old\n")));
}

TEST("the least of a group and all above it counts") {
  const Groups groups;
  groups.write("pods/cpu.max", "150000 100000\n");
  groups.write("pods/one/cpu.max", "400000 100000\n");
  groups.write("pods/one/shell/cpu.max", "max 100000\n");
  CHECK_EQ(groups.quota("0::/pods/one/shell\n"), 1.5);
  groups.write("pods/one/cpu.max", "50000 100000\n");
  CHECK_EQ(groups.quota("0::/pods/one/shell\n"), 0.5);
}

TEST("a container whose own group is the root finds its quota") {
  const Groups groups;
  groups.write("cpu.max", "200000 100000\n");
  CHECK_EQ(groups.quota("0::/\n"), 2.0);
  CHECK_EQ(groups.quota("0::/a/name/outside\n"), 2.0);
}

TEST("quotas of version 1 count") {
  const Groups groups;
  groups.write("cpu,cpuacct/docker/id/cpu.cfs_quota_us", "250000\n");
  groups.write("cpu,cpuacct/docker/id/cpu.cfs_period_us", "100000\n");
  CHECK_EQ(groups.quota("9:memory:/docker/id\n4:cpu,cpuacct:/docker/id\n0::/x\n"), 2.5);
  CHECK(std::isinf(groups.quota("4:cpuset:/docker/id\n")));
}

TEST("this process has a processor") { CHECK(usableCpus() >= 1); }

}  // namespace
}  // namespace millpond
