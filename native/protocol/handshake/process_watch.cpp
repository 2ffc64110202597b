// SPDX-License-Identifier: Apache-2.0
#include "protocol/handshake/process_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace millpond {
namespace {

/// Since Linux 5.3, on every architecture; older headers do not have it.
constexpr long kPidfdOpen = 434;

}  // namespace

std::string ProcessWatch::space() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 36> boot{};
  std::array<char, 64> processes{};
  const ssize_t n = ::readlink("/proc/self/ns/pid", processes.data(), processes.size());
  if (!file || n <= 0 || ::read(file.get(), boot.data(), boot.size()) != static_cast<ssize_t>(boot.size())) return "";
  return std::string(boot.data(), boot.size()) + " " + std::string(processes.data(), static_cast<size_t>(n));
}

ProcessWatch::ProcessWatch(int pid) : file_(pid > 0 ? static_cast<int>(::syscall(kPidfdOpen, pid, 0)) : -1) {}

bool ProcessWatch::ended() const {
  pollfd look{file_.get(), POLLIN, 0};
  return file_ && ::poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
}

}  // namespace millpond
