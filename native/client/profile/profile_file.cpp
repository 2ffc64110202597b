// SPDX-License-Identifier: Apache-2.0
#include "client/profile/profile_file.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/log.h"
#include "client/addresses/helper_thread.h"

namespace millpond::client {
namespace {

constexpr useconds_t kIntervalUs = 200'000;
std::atomic<ProfileFile*> current{nullptr};

std::string nameOf(std::string_view pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.substr(i, 2) == "%p") {
      name += std::to_string(::getpid());
      ++i;
    } else {
      name += pattern[i];
    }
  }
  return name;
}

bool writeAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

void ProfileFile::begin(Session& session, void (*flushCalls)()) {
  const char* pattern = std::getenv("MILLPOND_PROFILE");
  if (!pattern || !*pattern) return;
  const std::string name = nameOf(pattern);
  UniqueFd file(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666));
  if (!file) return log(LogLevel::Error, "no profile: %s: %s", name.c_str(), std::strerror(errno));
  std::unique_ptr<ProfileFile> made(new ProfileFile(session, std::move(file), flushCalls));
  if (made->worker_.begin(false) != CUDA_SUCCESS) return;
  const std::string header = "# millpond profile 1, process " + std::to_string(::getpid()) + ", clock " +
                             std::to_string(made->worker_.lead()) + ", uncertainty " +
                             std::to_string(made->worker_.uncertainty()) + "\n";
  if (!writeAll(made->file_.get(), header))
    return log(LogLevel::Error, "no profile: %s cannot be written: %s", name.c_str(), std::strerror(errno));
  // Never deleted: the thread uses it until the process ends.
  ProfileFile* const profile = made.release();
  current.store(profile, std::memory_order_release);
  if (!startHelperThread(&ProfileFile::writeNowAndThen, profile))
    log(LogLevel::Warn, "the profile is written when the program ends: no thread could be started");
}

void* ProfileFile::writeNowAndThen(void* self) {
  ::prctl(PR_SET_NAME, "millpond-profile");
  do {
    ::usleep(kIntervalUs);
    static_cast<ProfileFile*>(self)->flushCalls_();
  } while (static_cast<ProfileFile*>(self)->write(false));
  return nullptr;
}

bool ProfileFile::write(bool flush) {
  const std::lock_guard lock(mutex_);
  for (bool hasMore = true; hasMore && !isOver_;) {
    WorkerProfile::Page page;
    const CUresult result = worker_.read(flush, page);
    isOver_ = result != CUDA_SUCCESS;
    if (isOver_ && result != CUDA_ERROR_UNKNOWN) break;
    flush = false;
    hasMore = page.hasMore;
    isOver_ = isOver_ || !writeAll(file_.get(), page.lines);
    if (page.lost > lost_ && !isOver_) {
      lost_ = page.lost;
      isOver_ = !writeAll(file_.get(), "lost\t" + std::to_string(lost_) + "\n");
    }
    if (isOver_) log(LogLevel::Error, "the profile ends here: its file is full, or the worker sent a malformed line");
  }
  return !isOver_;
}

bool ProfileFile::isWritten() { return current.load(std::memory_order_acquire) != nullptr; }

void ProfileFile::finish() {
  if (ProfileFile* const profile = current.load(std::memory_order_acquire)) profile->write(true);
}

void ProfileFile::abandon() { current.store(nullptr, std::memory_order_relaxed); }

}  // namespace millpond::client
