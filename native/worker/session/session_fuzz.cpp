// SPDX-License-Identifier: Apache-2.0
// A whole worker after the handshake, given arbitrary bytes as the command stream of a session: the real link and the
// real executor, on the software GPU.
//
// An input is one byte, which selects the transport, and the stream as a client would send it.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/log.h"
#include "protocol/gen/commands.h"
#include "protocol/server/server_link.h"
#include "testing/check.h"
#include "worker/session/executor.h"
#include "worker/testing/driver_guard.h"
#include "worker/testing/own_driver.h"

namespace millpond::worker {
namespace {

/// Bits of the first byte.
constexpr uint8_t kOverTcp = 1;
constexpr uint8_t kWithGrace = 2;  ///< the link's own frames are understood
/// More than the socket accepts at once, and far more than any message.
constexpr size_t kMostBytes = size_t{1} << 20;
/// Timeout of the last command's reply. Endless work is ended then.
constexpr int64_t kPatienceNs = 500'000'000;
constexpr uint32_t kLastRequest = 0xffff'ffff;

/// Whether the stream ends at the end of a frame, so that another frame can follow.
bool isWhole(std::span<const std::byte> stream) {
  while (!stream.empty()) {
    wire::CommandHeader header;
    if (stream.size() < sizeof(header)) return false;
    std::memcpy(&header, stream.data(), sizeof(header));
    if (header.bytes < sizeof(header) || header.bytes % 8 || header.bytes > stream.size()) return false;
    stream = stream.subspan(header.bytes);
  }
  return true;
}

/// Reads the worker's frames, in whatever pieces they come, and looks for the last answer.
class Replies {
 public:
  /// `chunkBusy`: of the staging chunks, null over TCP.
  explicit Replies(std::atomic<uint32_t>* chunkBusy) : chunkBusy_(chunkBusy) {}
  bool sawLast() const { return sawLast_; }

  void take(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t wanted = frame_.size() < sizeof(wire::ReplyHeader) ? sizeof(wire::ReplyHeader) : header().bytes;
      const size_t some = std::min(bytes.size(), wanted - frame_.size());
      frame_.insert(frame_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(some));
      bytes = bytes.subspan(some);
      if (frame_.size() < sizeof(wire::ReplyHeader)) return;
      // The worker's own framing must always be valid, whatever it received.
      CHECK(header().bytes >= sizeof(wire::ReplyHeader) && header().bytes % 8 == 0);
      if (frame_.size() == header().bytes) look();
    }
  }

 private:
  wire::ReplyHeader header() const {
    wire::ReplyHeader header;
    std::memcpy(&header, frame_.data(), sizeof(header));
    return header;
  }
  void look() {
    if (header().kind == wire::ReplyKind::kResult && header().request == kLastRequest) sawLast_ = true;
    if (header().kind == wire::ReplyKind::kChunk) {
      wire::ChunkReady ready;
      CHECK(chunkBusy_ != nullptr && frame_.size() >= sizeof(wire::ReplyHeader) + sizeof(ready));
      std::memcpy(&ready, frame_.data() + sizeof(wire::ReplyHeader), sizeof(ready));
      CHECK(ready.chunk < wire::kStagingChunks);
      chunkBusy_[ready.chunk].store(0);
    }
    frame_.clear();
  }

  std::vector<std::byte> frame_;
  std::atomic<uint32_t>* chunkBusy_;
  bool sawLast_ = false;
};

/// The client: sends its data, receives all replies, and leaves.
class Client {
 public:
  /// `memory`: shared memory, null over TCP.
  Client(UniqueFd socket, SessionMemory* memory, std::span<const std::byte> stream)
      : socket_(std::move(socket)),
        memory_(memory),
        stream_(stream.begin(), stream.end()),
        replies_(memory ? memory->control().chunkBusy : nullptr) {
    if (isWhole(stream_)) appendLast();
    if (memory_) {
      RingProducer commands(memory_->control().submit, memory_->submit(), wire::kSubmitBytes);
      std::memcpy(commands.place(), stream_.data(), stream_.size());
      commands.advance(stream_.size());
      commands.publish();
    }
  }
  /// Until the last reply has arrived, until `isOver`, or until none can be expected.
  void talk(const std::atomic<bool>& isOver) {
    const int64_t deadline = monotonicNs() + kPatienceNs;
    while (!isOver.load() && !isEnded_ && !replies_.sawLast() && monotonicNs() < deadline) step();
  }
  /// Reads the remaining data until the worker has left.
  void listen(const std::atomic<bool>& isOver) {
    while (!isOver.load() && !isEnded_) step();
    socket_.reset();
  }

 private:
  void appendLast() {
    const wire::CommandHeader last{sizeof(last), static_cast<uint16_t>(cmd::Op::kContextSync), 1, kLastRequest, 0};
    const auto bytes = std::as_bytes(std::span(&last, 1));
    stream_.insert(stream_.end(), bytes.begin(), bytes.end());
  }
  void step() {
    if (memory_) {
      RingConsumer ring(memory_->control().reply, memory_->reply(), wire::kReplyBytes);
      replies_.take({ring.data(), ring.available()});
      ring.skip(ring.available());
      ring.release(ring.position());
    }
    const bool hasMore = !memory_ && sent_ < stream_.size();
    pollfd look{socket_.get(), static_cast<short>(POLLIN | (hasMore ? POLLOUT : 0)), 0};
    if (::poll(&look, 1, 1) <= 0) return;
    if (look.revents & POLLOUT) send();
    if (look.revents & (POLLIN | POLLHUP | POLLERR)) receive();
  }
  void send() {
    const ssize_t n =
        ::send(socket_.get(), stream_.data() + sent_, stream_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent_ += static_cast<size_t>(n);
    if (sent_ == stream_.size() && !isWhole(stream_)) ::shutdown(socket_.get(), SHUT_WR);
  }
  void receive() {
    std::array<std::byte, 65536> bytes;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
    iovec data{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) isEnded_ = true;
    if (n <= 0) return;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(header), sizeof(file));
      UniqueFd{file}.reset();
    }
    if (!memory_) replies_.take(std::span(bytes).first(static_cast<size_t>(n)));
  }

  UniqueFd socket_;
  SessionMemory* memory_;
  std::vector<std::byte> stream_;
  size_t sent_ = 0;
  Replies replies_;
  bool isEnded_ = false;
};

void runSession(bool overTcp, uint32_t graceSeconds, std::span<const std::byte> stream) {
  OwnDriver& driver = OwnDriver::instance();
  static const Driver guarded = DriverGuard::before(driver.table());
  SessionDevices devices(guarded);
  CHECK(bool(devices.assign(OwnDriver::shares(driver.table()))));
  auto memory = SessionMemory::create();
  CHECK(bool(memory));
  std::array<int, 2> ends{};
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const void* const linkRuns[] = {memory->submitRun().data(), memory->stagingRun().data()};
  {
    auto seen = SessionMemory::map(UniqueFd(::fcntl(memory->file(), F_DUPFD_CLOEXEC, 0)));
    CHECK(bool(seen));
    Client client(UniqueFd(ends[1]), overTcp ? nullptr : &*seen, stream);
    ClaimAccounts accounts({}, devices.accounts());
    Executor executor(guarded, devices, accounts,
                      ServerLink(UniqueFd(ends[0]), std::move(*memory), overTcp, graceSeconds));
    std::atomic<bool> isOver{false};
    std::thread talking([&] {
      client.talk(isOver);
      // Running work must not delay the next input.
      executor.stop("the input is over", true);
      driver.cancel();
      client.listen(isOver);
    });
    const Executor::End end = executor.run();
    CHECK(!end.reason.empty());
    // No address of a client outside the session has reached the driver.
    for (const std::string& each : DriverGuard::takeViolations()) testing::fail(__FILE__, __LINE__, each);
    isOver.store(true);
    talking.join();
    driver.cancel();
    driver.quieten();
  }
  driver.reset(linkRuns);
}

}  // namespace
}  // namespace millpond::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millpond::worker;
  // Refusals are expected here.
  millpond::setLogLevel(millpond::LogLevel::Off);
  if (size == 0 || size > kMostBytes) return 0;
  const bool overTcp = data[0] & kOverTcp;
  const uint32_t grace = data[0] & kWithGrace ? 60 : 0;
  runSession(overTcp, grace, std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
