// SPDX-License-Identifier: Apache-2.0
#include "worker/process/containment.h"

#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"
#include "worker/process/syscall_filter.h"

namespace millpond::worker {
namespace {

/// Above ordinary processes (0), below the most expendable (1000).
constexpr char kOomScore[] = "500";

Error failed(const std::string& what) { return Error{what + ": " + std::strerror(errno)}; }

std::string folderOf(const std::string& path) {
  char real[PATH_MAX];
  const std::string whole = ::realpath(path.c_str(), real) ? real : path;
  const size_t slash = whole.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : whole.substr(0, slash);
}

void addMatches(const char* pattern, std::vector<std::string>& out) {
  glob_t found{};
  if (::glob(pattern, 0, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
}

/// Includes capabilities that a new program could gain: dropped from the bounding set, they never come back.
Status dropCapabilities() {
  for (unsigned long each = 0; each <= CAP_LAST_CAP; ++each)
    // Kernels older than the headers know fewer capabilities.
    if (::prctl(PR_CAPBSET_DROP, each, 0, 0, 0) != 0 && errno != EINVAL && errno != EPERM)
      return failed("cannot drop capability " + std::to_string(each));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2]{};
  if (::syscall(SYS_capset, &header, none) != 0) return failed("cannot drop capabilities");
  return Done{};
}

}  // namespace

Status becomeUser(uint32_t user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0)
    return failed("cannot become user " + std::to_string(user));
  // After a change of user the process's own entries in /proc belong to root until it is dumpable again; `contain`
  // writes one.
  if (::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return failed("cannot make the process its user's own");
  return Done{};
}

FileAccess systemFiles(const std::string& driver) {
  FileAccess out;
  out.read = {"/usr",
              "/lib",
              "/lib64",
              "/bin",
              "/sbin",
              "/nix/store",
              "/sys",
              "/etc/ld.so.cache",
              "/etc/ld.so.conf",
              "/etc/ld.so.conf.d",
              "/etc/nsswitch.conf",
              "/etc/passwd",
              "/etc/group",
              "/etc/localtime",
              "/etc/machine-id",
              "/etc/nvidia",
              "/run/nvidia-persistenced",
              "/run/nvidia-fabricmanager",
              folderOf(driver)};
  const std::string own = folderOf("/proc/self/exe");
  out.read.push_back(own);
  out.read.push_back(own + "/../client");
  if (const char* libraries = std::getenv("LD_LIBRARY_PATH")) {
    std::string rest = libraries;
    for (size_t end; !rest.empty(); rest.erase(0, end == std::string::npos ? end : end + 1)) {
      end = rest.find(':');
      if (end != 0) out.read.push_back(rest.substr(0, end));
    }
  }
  // /proc shows other processes as far as file modes and the rules for tracing allow; threads write their names there.
  out.write = {"/proc", "/dev/shm", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
  addMatches("/dev/nvidia*", out.write);
  return out;
}

Result<std::vector<std::string>> contain(const FileAccess& files) {
  std::vector<std::string> missing;
  {
    const UniqueFd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    if (!score || ::write(score.get(), kOomScore, sizeof(kOomScore) - 1) < 0)
      missing.push_back("its OOM score cannot be set");
  }
  constexpr rlimit kNone{0, 0};
  if (::setrlimit(RLIMIT_CORE, &kNone) != 0) return failed("cannot turn core dumps off");
  if (::geteuid() == 0) missing.push_back("it runs as root, without capabilities: name a user for workers");
  if (auto dropped = dropCapabilities(); !dropped) return dropped.error();
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("cannot give up new privileges");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return failed("cannot forbid tracing");
  const int landlock = landlockVersion();
  if (landlock == 0) {
    missing.push_back("the kernel has no Landlock (Linux 5.13): file modes alone protect other files of its user");
  } else {
    if (auto restricted = restrictFiles(files); !restricted) return restricted.error();
    if (landlock < 4)
      missing.push_back("the kernel's Landlock is older than Linux 6.7: an accepted connection can be redirected");
  }
  return missing;
}

Status seal() { return restrictSystemCalls(); }

}  // namespace millpond::worker
