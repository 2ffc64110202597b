// SPDX-License-Identifier: Apache-2.0
#include "worker/core/device_output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"

/// Provided by the sanitizers' runtimes, if linked: their reports are the worker's own messages.
extern "C" [[gnu::weak]] void __sanitizer_set_report_fd(void* descriptor);

namespace millpond::worker {
namespace {

std::atomic<int> capturedError{-1}, ownError{-1};
std::atomic<off_t> errorTaken{0};

/// Replaces `standard` with a file in memory instead of a pipe: the writer must never wait for the reader, which is the
/// same thread.
Result<UniqueFd> replace(int standard) {
  UniqueFd file(::memfd_create("millpond-output", MFD_CLOEXEC));
  if (!file || ::fcntl(file.get(), F_SETFL, O_APPEND) != 0 || ::dup2(file.get(), standard) < 0)
    return Error{std::string("cannot take over the standard output: ") + std::strerror(errno)};
  return file;
}

/// The reason of an abort is written to standard error just before, and no thread would read it later.
void tellOnAbort(int) {
  char piece[1024];
  off_t at = errorTaken.load();
  for (ssize_t got = 0; (got = ::pread(capturedError.load(), piece, sizeof piece, at)) > 0; at += got)
    if (::write(ownError.load(), piece, static_cast<size_t>(got)) < 0) return;
}

Status keepOwnError() {
  const int own = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0) return Error{std::string("cannot keep the standard error: ") + std::strerror(errno)};
  ownError.store(own);
  setLogDescriptor(own);
  if (__sanitizer_set_report_fd) __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(own)));
  return Done{};
}

}  // namespace

Result<DeviceOutput> DeviceOutput::capture() {
  std::fflush(stdout);
  std::fflush(stderr);
  if (auto kept = keepOwnError(); !kept) return kept.error();
  auto output = replace(STDOUT_FILENO);
  if (!output) return output.error();
  auto error = replace(STDERR_FILENO);
  if (!error) return error.error();
  capturedError.store(error->get());
  struct sigaction onAbort {};
  onAbort.sa_handler = tellOnAbort;
  onAbort.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGABRT, &onAbort, nullptr);
  DeviceOutput captured;
  captured.output_.file = std::move(*output);
  captured.error_.file = std::move(*error);
  return captured;
}

void DeviceOutput::collect(wire::OutputStream stream, const Take& take) {
  const bool isError = stream == wire::OutputStream::kError;
  File& from = isError ? error_ : output_;
  std::fflush(isError ? stderr : stdout);
  struct stat now {};
  if (::fstat(from.file.get(), &now) != 0 || now.st_size <= from.taken) return;
  std::array<std::byte, kPiece> piece;
  while (from.taken < now.st_size) {
    const auto wanted = std::min<size_t>(piece.size(), static_cast<size_t>(now.st_size - from.taken));
    const ssize_t got = ::pread(from.file.get(), piece.data(), wanted, from.taken);
    if (got <= 0) return;
    from.taken += got;
    if (isError) errorTaken.store(from.taken);
    if (!take(std::span(piece).first(static_cast<size_t>(got)))) return;
  }
  // Other threads may be appending; the part that was read no longer needs memory.
  ::fallocate(from.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, from.taken);
}

}  // namespace millpond::worker
