// SPDX-License-Identifier: Apache-2.0
#include "client/profile/worker_profile.h"

#include <ctime>
#include <string_view>
#include <vector>

#include "base/errors/coded_error.h"
#include "base/log.h"
#include "protocol/client/session_client.h"
#include "protocol/gen/commands.h"

namespace millpond::client {
namespace {

/// Number of round trips by which the clocks are compared: the shortest one is the most precise.
constexpr int kComparisons = 5;

/// No context and no thread of the program has this number: those are numbered from 1.
constexpr Session::Caller kOwnThread{0, 0};

int64_t nowNs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

template <typename C>
CUresult ask(Session& session, const C& command, Session::Answer& answer) {
  const int32_t result = session.wait(
      static_cast<uint16_t>(C::kOp), kOwnThread, cmd::encodedSize<C>(),
      [&](std::byte* place) { cmd::encode(place, command); }, answer);
  return session.lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : static_cast<CUresult>(result);
}

template <typename C, typename R>
CUresult ask(Session& session, const C& command, std::vector<std::byte>& body, cmd::Decoded<R>& reply) {
  Session::Answer answer;
  answer.whole = &body;
  if (const CUresult result = ask(session, command, answer); result != CUDA_SUCCESS) return result;
  return cmd::decode(std::span<const std::byte>(body), reply) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/// Lines come from the worker: those with control characters would not be valid lines of a profile.
bool isText(std::string_view lines) {
  for (const char c : lines)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') return false;
  return lines.empty() || lines.back() == '\n';
}

}  // namespace

CUresult WorkerProfile::begin(bool commands) {
  uncertainty_ = INT64_MAX;
  for (int i = 0; i < kComparisons; ++i) {
    std::vector<std::byte> body;
    cmd::Decoded<cmd::ProfileBeginReply> reply;
    const int64_t before = nowNs();
    const CUresult result = ask(session_, cmd::ProfileBegin{.commands = commands}, body, reply);
    const int64_t after = nowNs();
    if (result == CUDA_ERROR_NOT_SUPPORTED)
      log(LogLevel::Error, "%s",
          codedText(codes::kNotInstalled, "no profile of the device: its node has no CUPTI",
                    "Install NVIDIA's cuda-cupti there, or name the library in MILLPOND_CUPTI of its agent.")
              .c_str());
    else if (result != CUDA_SUCCESS)
      log(LogLevel::Error, "no profile of the device: its worker answered %d", static_cast<int>(result));
    if (result != CUDA_SUCCESS) return result;
    // The first one may have loaded a library.
    if (after - before >= uncertainty_) continue;
    uncertainty_ = after - before;
    lead_ = static_cast<int64_t>(reply.fixed.now) - (before + uncertainty_ / 2);
  }
  return CUDA_SUCCESS;
}

CUresult WorkerProfile::read(bool flush, Page& page) {
  std::vector<std::byte> body;
  cmd::Decoded<cmd::ProfileReadReply> reply;
  if (const CUresult result = ask(session_, cmd::ProfileRead{.flush = flush}, body, reply); result != CUDA_SUCCESS)
    return result;
  page.lines.assign(reinterpret_cast<const char*>(reply.tail[0].data()), reply.tail[0].size());
  page.lost = reply.fixed.lost;
  page.hasMore = reply.fixed.more != 0 && !page.lines.empty();
  return isText(page.lines) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult WorkerProfile::end() {
  Session::Answer answer;
  return ask(session_, cmd::ProfileEnd{}, answer);
}

}  // namespace millpond::client
