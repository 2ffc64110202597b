// SPDX-License-Identifier: Apache-2.0
#include "client/profile/profile_file.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors/coded_error.h"
#include "base/log.h"
#include "client/addresses/helper_thread.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/client/session_client.h"
#include "protocol/gen/commands.h"

namespace millpond::client {
namespace {

constexpr useconds_t kIntervalUs = 200'000;
/// Round trips by which the clocks are compared: the shortest one tells most.
constexpr int kComparisons = 5;

/// No context, and no thread of the program: those are numbered from 1.
constexpr Session::Caller kOwnThread{0, 0};

std::atomic<ProfileFile*> current{nullptr};

int64_t nowNs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

template <typename C, typename R>
CUresult ask(Session& session, const C& command, std::vector<std::byte>& body, cmd::Decoded<R>& reply) {
  Session::Answer answer;
  answer.whole = &body;
  const int32_t result = session.wait(
      static_cast<uint16_t>(C::kOp), kOwnThread, cmd::encodedSize<C>(),
      [&](std::byte* place) { cmd::encode(place, command); }, answer);
  if (session.lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (result != CUDA_SUCCESS) return static_cast<CUresult>(result);
  return cmd::decode(std::span<const std::byte>(body), reply) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

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

/// Lines come from the worker: control characters among them would be no lines of a profile.
bool isText(std::string_view lines) {
  for (const char c : lines)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') return false;
  return lines.empty() || lines.back() == '\n';
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
  int64_t lead = 0, uncertainty = INT64_MAX;
  for (int i = 0; i < kComparisons; ++i) {
    std::vector<std::byte> body;
    cmd::Decoded<cmd::ProfileBeginReply> reply;
    const int64_t before = nowNs();
    const CUresult result = ask(session, cmd::ProfileBegin{}, body, reply);
    const int64_t after = nowNs();
    if (result == CUDA_ERROR_NOT_SUPPORTED)
      return log(LogLevel::Error, "%s",
                 codedText(codes::kNotInstalled, "no profile of the device: its node has no CUPTI",
                           "Install NVIDIA's cuda-cupti there, or name the library in MILLPOND_CUPTI of its agent.")
                     .c_str());
    if (result != CUDA_SUCCESS)
      return log(LogLevel::Error, "no profile of the device: its worker answered %d", static_cast<int>(result));
    // The first one may have loaded a library.
    if (after - before >= uncertainty) continue;
    uncertainty = after - before;
    lead = static_cast<int64_t>(reply.fixed.now) - (before + uncertainty / 2);
  }
  const std::string header = "# millpond profile 1, process " + std::to_string(::getpid()) + ", clock " +
                             std::to_string(lead) + ", uncertainty " + std::to_string(uncertainty) + "\n";
  if (!writeAll(made->file_.get(), header))
    return log(LogLevel::Error, "no profile: %s cannot be written: %s", name.c_str(), std::strerror(errno));
  // Never deleted: the thread uses it until the process ends.
  ProfileFile* const profile = made.release();
  current.store(profile, std::memory_order_release);
  if (!startHelperThread(&ProfileFile::writeNowAndThen, profile))
    log(LogLevel::Warn, "the profile is written when the program ends: the system has no thread left");
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
    std::vector<std::byte> body;
    cmd::Decoded<cmd::ProfileReadReply> reply;
    isOver_ = ask(session_, cmd::ProfileRead{.flush = flush}, body, reply) != CUDA_SUCCESS;
    if (isOver_) break;
    flush = false;
    const std::string_view lines(reinterpret_cast<const char*>(reply.tail[0].data()), reply.tail[0].size());
    hasMore = reply.fixed.more != 0 && !lines.empty();
    isOver_ = !isText(lines) || !writeAll(file_.get(), lines);
    if (reply.fixed.lost > lost_ && !isOver_) {
      lost_ = reply.fixed.lost;
      isOver_ = !writeAll(file_.get(), "lost\t" + std::to_string(lost_) + "\n");
    }
    if (isOver_)
      log(LogLevel::Error, "the profile ends here: its file is full, or the worker wrote what is no line of one");
  }
  return !isOver_;
}

void ProfileFile::finish() {
  if (ProfileFile* const profile = current.load(std::memory_order_acquire)) profile->write(true);
}

void ProfileFile::abandon() { current.store(nullptr, std::memory_order_relaxed); }

}  // namespace millpond::client
