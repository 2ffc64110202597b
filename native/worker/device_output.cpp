// SPDX-License-Identifier: Apache-2.0
#include "worker/device_output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace millpond::worker {

Result<DeviceOutput> DeviceOutput::capture() {
  // A file in memory and no pipe: whoever writes must never wait for the one who reads, which is the same thread.
  UniqueFd file(::memfd_create("millpond-output", MFD_CLOEXEC));
  std::fflush(stdout);
  if (!file || ::fcntl(file.get(), F_SETFL, O_APPEND) != 0 || ::dup2(file.get(), STDOUT_FILENO) < 0)
    return Error{std::string("cannot take over the standard output: ") + std::strerror(errno)};
  return DeviceOutput(std::move(file));
}

void DeviceOutput::collect(const std::function<bool(std::span<const std::byte>)>& take) {
  std::fflush(stdout);
  struct stat now{};
  if (::fstat(file_.get(), &now) != 0 || now.st_size <= taken_) return;
  std::array<std::byte, kPiece> piece;
  while (taken_ < now.st_size) {
    const auto wanted = std::min<size_t>(piece.size(), static_cast<size_t>(now.st_size - taken_));
    const ssize_t got = ::pread(file_.get(), piece.data(), wanted, taken_);
    if (got <= 0) return;
    taken_ += got;
    if (!take(std::span(piece).first(static_cast<size_t>(got)))) return;
  }
  // Others may be writing behind this; what was read needs no memory any more.
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, taken_);
}

}  // namespace millpond::worker
