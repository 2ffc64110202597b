// SPDX-License-Identifier: Apache-2.0
#include "worker/process/file_access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/unique_fd.h"

namespace millpond::worker {
namespace {

// The kernel's interface (include/uapi/linux/landlock.h): build hosts may have older headers than the hosts that run
// this.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr uint32_t kVersion = 1;
constexpr int kPathBeneath = 1;

constexpr uint64_t kExecute = 1 << 0;
constexpr uint64_t kWriteFile = 1 << 1;
constexpr uint64_t kReadFile = 1 << 2;
constexpr uint64_t kReadDir = 1 << 3;
constexpr uint64_t kTruncate = 1 << 14;
constexpr uint64_t kIoctlDevice = 1 << 15;
/// All rights of version 1; 2, 3 and 5 add one each.
constexpr uint64_t kRightsOfOne = (uint64_t{1} << 13) - 1;
constexpr uint64_t kRefer = 1 << 13;
/// Device nodes, symbolic links and moves across folders are never allowed.
constexpr uint64_t kMake = (1 << 4) | (1 << 5) | (1 << 7) | (1 << 8) | (1 << 9) | (1 << 10);
constexpr uint64_t kConnectTcp = 1 << 1;
constexpr uint64_t kScopeAbstractSockets = 1 << 0;
constexpr uint64_t kScopeSignals = 1 << 1;

struct RulesetAttributes {
  uint64_t files;
  uint64_t network;
  uint64_t scoped;
};

struct [[gnu::packed]] PathAttributes {
  uint64_t allowed;
  int32_t parent;
};

Error refused(const std::string& what) { return Error{what + ": " + std::strerror(errno)}; }

Status allow(int ruleset, const std::string& path, uint64_t rights) {
  const UniqueFd file(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!file) return errno == ENOENT || errno == EACCES ? Status(Done{}) : refused("cannot open " + path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return refused("cannot look at " + path);
  // Rights over the content of a folder have no meaning for a file.
  if (!S_ISDIR(info.st_mode)) rights &= kExecute | kWriteFile | kReadFile | kTruncate | kIoctlDevice;
  const PathAttributes rule{rights, file.get()};
  if (::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0) != 0) return refused("no rule could be made for " + path);
  return Done{};
}

}  // namespace

int landlockVersion() {
  const long version = ::syscall(kCreateRuleset, nullptr, 0, kVersion);
  return version > 0 ? static_cast<int>(version) : 0;
}

Status restrictFiles(const FileAccess& access) {
  const int version = landlockVersion();
  if (version < 1) return Error{"this kernel has no Landlock"};
  uint64_t handled = kRightsOfOne;
  if (version >= 2) handled |= kRefer;
  if (version >= 3) handled |= kTruncate;
  if (version >= 5) handled |= kIoctlDevice;
  RulesetAttributes attributes{handled, 0, 0};
  size_t known = sizeof(uint64_t);
  if (version >= 4) {
    attributes.network = kConnectTcp;
    known = 2 * sizeof(uint64_t);
  }
  if (version >= 6) {
    attributes.scoped = kScopeAbstractSockets | kScopeSignals;
    known = sizeof(attributes);
  }
  const UniqueFd ruleset(static_cast<int>(::syscall(kCreateRuleset, &attributes, known, 0)));
  if (!ruleset) return refused("the kernel refused the file rules");
  const uint64_t read = (kExecute | kReadFile | kReadDir) & handled;
  const uint64_t write = (kReadFile | kReadDir | kWriteFile | kMake | kTruncate | kIoctlDevice) & handled;
  for (const std::string& path : access.read)
    if (auto made = allow(ruleset.get(), path, read); !made) return made;
  for (const std::string& path : access.write)
    if (auto made = allow(ruleset.get(), path, write); !made) return made;
  for (const std::string& path : access.unlisted)
    if (auto made = allow(ruleset.get(), path, write & ~kReadDir); !made) return made;
  if (::syscall(kRestrictSelf, ruleset.get(), 0) != 0) return refused("the kernel refused to apply the file rules");
  return Done{};
}

}  // namespace millpond::worker
