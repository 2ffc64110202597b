// SPDX-License-Identifier: Apache-2.0
#include "client/session/restoration.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/errors/coded_error.h"
#include "base/log.h"
#include "client/addresses/own_address.h"
#include "client/session/image_transfer.h"

namespace millpond::client {
namespace {

struct Frame {
  wire::CommandHeader header;
  std::span<const std::byte> whole;

  cmd::Op op() const { return static_cast<cmd::Op>(header.op); }
  std::span<const std::byte> body() const { return whole.subspan(sizeof(header)); }
};

/// Removes the next command from the journal; none at its end, or if it is malformed.
std::optional<Frame> takeFrame(std::span<const std::byte>& journal) {
  Frame frame;
  if (journal.size() < sizeof(frame.header)) return std::nullopt;
  std::memcpy(&frame.header, journal.data(), sizeof(frame.header));
  const size_t bytes = frame.header.bytes;
  if (bytes < sizeof(frame.header) || bytes > wire::kMaxFrameBytes || bytes > journal.size()) return std::nullopt;
  frame.whole = journal.first(bytes);
  journal = journal.subspan(bytes);
  return frame;
}

/// Sends commands to a session that no call of the program knows yet.
class Restoring {
 public:
  explicit Restoring(Session& session) : session_(session) {}

  void useContext(uint16_t context) { caller_.context = context; }
  CUresult repeat(const Frame& frame) {
    Session::Answer answer;
    return ask(frame.op(), frame.body().size(), answer,
               [&](std::byte* place) { std::memcpy(place, frame.body().data(), frame.body().size()); });
  }
  template <typename C, typename R>
  CUresult wait(const C& fixed, R& reply) {
    Session::Answer answer;
    if constexpr (R::kFixedBytes > 0) answer.body = std::as_writable_bytes(std::span(&reply, 1));
    const CUresult result =
        ask(C::kOp, cmd::encodedSize<C>(), answer, [&](std::byte* place) { cmd::encode(place, fixed); });
    return result == CUDA_SUCCESS && answer.bodyBytes < R::kFixedBytes ? CUDA_ERROR_UNKNOWN : result;
  }
  template <typename C>
  CUresult postData(C fixed, std::span<const std::byte> data) {
    fixed.setTailBytes({static_cast<uint32_t>(data.size())});
    const bool isSent = session_.postWithData(
        static_cast<uint16_t>(C::kOp), caller_, C::kFixedBytes,
        [&](std::byte* place) { std::memcpy(place, &fixed, C::kFixedBytes); }, data);
    return isSent ? CUDA_SUCCESS : static_cast<CUresult>(kSessionLost);
  }

 private:
  template <typename Fill>
  CUresult ask(cmd::Op op, size_t bodyBytes, Session::Answer& answer, Fill&& fill) {
    return static_cast<CUresult>(session_.wait(static_cast<uint16_t>(op), caller_, bodyBytes, fill, answer));
  }

  Session& session_;
  Session::Caller caller_;
};

/// The files and images that this side has kept for the session.
struct Kept {
  const RetainedImages& images;
  const RetainedFiles& files;
};

CUresult repeat(Restoring& restoring, Session& session, const Frame& frame, const Kept& kept) {
  restoring.useContext(frame.header.context);
  if (frame.op() == cmd::Op::kModuleLoad) {
    cmd::Decoded<cmd::ModuleLoad> load;
    if (!cmd::decode(frame.body(), load)) return CUDA_ERROR_INVALID_VALUE;
    const auto image = kept.images.find(load.fixed.handle);
    if (image.empty()) return CUDA_ERROR_INVALID_IMAGE;
    if (const CUresult sent = sendImageBytes(restoring, session.remote(), load.fixed.handle, image)) return sent;
  }
  if (frame.op() == cmd::Op::kHostKeep) {
    cmd::Decoded<cmd::HostKeep> memory;
    if (!cmd::decode(frame.body(), memory) || session.remote()) return CUDA_ERROR_INVALID_VALUE;
    const auto file = kept.files.find(OwnAddress::of(memory.fixed.address));
    if (!file) {
      log(LogLevel::Error, "the program has closed the file of its pinned memory, which was not its own");
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!session.sendFile(*file)) return static_cast<CUresult>(kSessionLost);
  }
  return restoring.repeat(frame);
}

}  // namespace

Status restore(Session& fresh, std::span<const std::byte> journal, const RetainedImages& images,
               const RetainedFiles& files) {
  Restoring restoring(fresh);
  const auto failed = [](const char* what, CUresult code) {
    return codedError(codes::kDriver, std::string("the program's state on it could not be restored: ") + what +
                                          " failed with " + std::to_string(static_cast<int>(code)));
  };
  while (const auto frame = takeFrame(journal)) {
    if (const CUresult done = repeat(restoring, fresh, *frame, {images, files}))
      return failed(cmd::opName(frame->op()), done);
  }
  if (!journal.empty()) return codedError(codes::kInternal, "the journal of the parked session is malformed");
  cmd::SessionRestoredReply reply{};
  if (const CUresult done = restoring.wait(cmd::SessionRestored{}, reply)) return failed("the end of it", done);
  return Done{};
}

bool endWhileParked(Session& session, std::span<const Subject> subjects) {
  const auto isEnded = [&](const Frame& frame) {
    const auto of = subjectOf(frame.op(), frame.header.context, frame.body());
    return !of || std::find(subjects.begin(), subjects.end(), of->subject) != subjects.end();
  };
  return session.reviseJournal([&](std::span<const std::byte> journal) {
    std::vector<std::byte> left;
    while (const auto frame = takeFrame(journal))
      if (!isEnded(*frame)) left.insert(left.end(), frame->whole.begin(), frame->whole.end());
    return left;
  });
}

}  // namespace millpond::client
