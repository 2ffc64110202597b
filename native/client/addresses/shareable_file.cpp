// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/shareable_file.h"

#include <sys/socket.h>

namespace millpond::client {

std::optional<ShareableFile> ShareableFile::carrying(std::span<const std::byte> handle) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return std::nullopt;
  ShareableFile file{UniqueFd(ends[0]), UniqueFd(ends[1])};
  const auto bytes = static_cast<ssize_t>(handle.size());
  if (bytes > 0 && ::send(file.kept.get(), handle.data(), handle.size(), MSG_NOSIGNAL) != bytes) return std::nullopt;
  return file;
}

bool ShareableFile::read(int file, std::span<std::byte> handle) {
  // It is left there for the next reader.
  return ::recv(file, handle.data(), handle.size(), MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC) ==
         static_cast<ssize_t>(handle.size());
}

}  // namespace millpond::client
