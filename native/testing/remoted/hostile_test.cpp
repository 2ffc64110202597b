// SPDX-License-Identifier: Apache-2.0
// A host with two sessions, one of which breaks the rules: its worker refuses, gives the reason and ends; the other
// continues.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "protocol/client/session_client.h"
#include "protocol/gen/command_layouts.h"
#include "protocol/transport/socket.h"
#include "testing/remoted.h"

using namespace millpond;
using namespace millpond::testing;

namespace {

/// A separate worker beside that of the program, with the directory that it needs.
class OtherWorker {
 public:
  OtherWorker() {
    CHECK(::mkdtemp(directory_.data()) != nullptr);
    worker_ = std::make_unique<WorkerProcess>(directory_);
  }
  ~OtherWorker() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Endpoint endpoint(Way way) const {
    Endpoint e;
    if (way == Way::kTcp) {
      e.tcpHost = "127.0.0.1";
      e.tcpPort = worker_->port();
    } else {
      e.unixPath = directory_ + "/data";
    }
    e.ticket = "t";
    e.program = "hostile";
    return e;
  }
  UniqueFd call(Way way) const {
    auto socket =
        way == Way::kTcp ? connectTcp("127.0.0.1", worker_->port(), 60'000) : connectUnix(directory_ + "/data");
    CHECK(bool(socket));
    return std::move(*socket);
  }
  std::unique_ptr<Session> connect(Way way) const {
    auto session = Session::connect(endpoint(way));
    if (!session) fail(__FILE__, __LINE__, session.error().message);
    return std::move(*session);
  }
  int wait(std::string& said) { return worker_->wait(said); }

 private:
  std::string directory_ = (std::filesystem::temp_directory_path() / "millpond-hostile-XXXXXX").string();
  std::unique_ptr<WorkerProcess> worker_;
};

/// The session that must not be affected: it has memory with contents, and keeps using it.
class Neighbour {
 public:
  Neighbour() {
    begin();
    OK(CU(cuMemAlloc_v2)(&memory_, kWords * sizeof(uint32_t)));
    OK(CU(cuMemsetD32_v2)(memory_, value_, kWords));
  }
  void goOn() {
    std::vector<uint32_t> words(kWords);
    OK(CU(cuMemcpyDtoH_v2)(words.data(), memory_, kWords * sizeof(uint32_t)));
    for (const uint32_t word : words) CHECK_EQ(word, value_);
    OK(CU(cuMemsetD32_v2)(memory_, ++value_, kWords));
    OK(CU(cuCtxSynchronize)());
  }

 private:
  static constexpr size_t kWords = 100'000;
  CUdeviceptr memory_ = 0;
  uint32_t value_ = 7;
};

struct Frame {
  cmd::Op op;
  uint16_t context;
  std::vector<std::byte> body;
  std::string reason;
};

std::vector<Frame> forbidden() {
  std::vector<std::byte> launch(cmd::Launch::kFixedBytes);
  launch[1] = std::byte{0x77};
  return {
      {cmd::Op{0xfff0}, 1, {}, "there is no command 65520"},
      {cmd::Op::kMarker, 77, {}, "the session has no context 77"},
      {cmd::Op::kMemAlloc, 1, std::vector<std::byte>(8), "a command has the wrong length"},
      {cmd::Op::kMemAlloc, 1, std::vector<std::byte>(24), "a command has the wrong length"},
      {cmd::Op::kLaunch, 1, launch, "unknown function"},
      {cmd::Op::kCallbackDone, 1, std::vector<std::byte>(8, std::byte{9}), "no such function is running"},
  };
}

/// Whether the worker closes the connection without sending anything.
bool isShutOut(const UniqueFd& socket) {
  char byte;
  for (;;) {
    pollfd look{socket.get(), POLLIN, 0};
    if (::poll(&look, 1, 60'000) != 1) return false;
    const ssize_t n = ::recv(socket.get(), &byte, 1, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    return n == 0 || (n < 0 && errno == ECONNRESET);
  }
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST("a frame that a session may not send ends that session with a logged reason, and nothing else") {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    CHECK_EQ(runProgram(way,
                        [way] {
                          Neighbour neighbour;
                          for (const Frame& frame : forbidden()) {
                            OtherWorker other;
                            auto session = other.connect(way);
                            std::string lost;
                            session->onLost([&](const std::string& reason) { lost = reason; });
                            Session::Answer answer;
                            session->wait(
                                static_cast<uint16_t>(frame.op), {frame.context, 1}, frame.body.size(),
                                [&](std::byte* place) { std::copy(frame.body.begin(), frame.body.end(), place); },
                                answer);
                            CHECK(session->lost());
                            CHECK(lost.ends_with(frame.reason));
                            session.reset();
                            std::string said;
                            CHECK(other.wait(said) != 0);
                            CHECK(said.find("protocol violation in command 1 (") != std::string::npos);
                            CHECK(said.find(frame.reason) != std::string::npos);
                            neighbour.goOn();
                          }
                        }),
             0);
  }
}

TEST("every command in place of a greeting is turned away, and the session that is due comes about") {
  CHECK_EQ(runProgram(Way::kSharedMemory,
                      [] {
                        Neighbour neighbour;
                        OtherWorker other;
                        for (const cmd::CommandLayout& layout : cmd::kCommandLayouts) {
                          // At least a greeting's fixed part.
                          const uint32_t bytes = 64 + (layout.fixedBytes + 7u) / 8 * 8;
                          std::vector<std::byte> frame(bytes);
                          const wire::CommandHeader header{bytes, static_cast<uint16_t>(layout.op), 1, 1, 1};
                          std::memcpy(frame.data(), &header, sizeof(header));
                          const UniqueFd socket = other.call(header.op % 2 ? Way::kTcp : Way::kSharedMemory);
                          // It may have been refused before the last byte.
                          if (auto sent = sendAll(socket.get(), frame); !sent) continue;
                          CHECK(isShutOut(socket));
                        }
                        neighbour.goOn();
                        auto session = other.connect(Way::kTcp);
                        Session::Answer answer;
                        CHECK_EQ(session->wait(
                                     static_cast<uint16_t>(cmd::Op::kMarker), {1, 1}, 0, [](std::byte*) {}, answer),
                                 0);
                        session.reset();
                        std::string said;
                        CHECK_EQ(other.wait(said), 0);
                        CHECK_EQ(count(said, "a connection was rejected: "), std::size(cmd::kCommandLayouts));
                        neighbour.goOn();
                      }),
           0);
}
