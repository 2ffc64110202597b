// SPDX-License-Identifier: Apache-2.0
// A client's end of a session, given arbitrary bytes from its worker: the reply to the hello, or the stream of replies.
//
// An input is one byte, which selects the content and the transport, and the worker's bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "protocol/client/opened_session.h"
#include "protocol/client/session_client.h"
#include "protocol/handshake/handshake.h"
#include "protocol/handshake/snapshot.h"
#include "protocol/rings/ring.h"
#include "protocol/wire.h"
#include "testing/check.h"

namespace millpond {
namespace {

/// Bits of the first byte.
constexpr uint8_t kOverTcp = 1;
constexpr uint8_t kWithGrace = 2;  ///< the link's own frames are understood
constexpr uint8_t kCanPark = 4;
constexpr uint8_t kGreeting = 8;    ///< the bytes are the reply to a hello
constexpr uint8_t kLyingHead = 16;  ///< the first eight bytes are the reported end of the replies

/// Memory at a fixed address in every run, so that a corpus can name it: a page in which bytes may land, between pages
/// that they must not touch.
class Landing {
 public:
  static constexpr uint64_t kPlace = uint64_t{1} << 45;  // no sanitizer has its own memory there
  static constexpr size_t kPage = 4096;

  Landing() {
    void* const got = ::mmap(reinterpret_cast<void*>(kPlace - kPage), 3 * kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(got == reinterpret_cast<void*>(kPlace - kPage));
  }
  static bool mayLand(uint64_t address, uint64_t bytes) {
    return address >= kPlace && bytes <= kPage && address - kPlace <= kPage - bytes;
  }
  static void check() {
    for (const uint64_t page : {kPlace - kPage, kPlace + kPage}) {
      const std::span bytes(reinterpret_cast<const std::byte*>(page), kPage);
      CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
    }
  }
};

void greet(std::span<const std::byte> bytes) {
  (void)Snapshot::decode(bytes);
  if (bytes.size() < kWelcomeFixedBytes) return;
  const auto rest = welcomeRest(bytes.first<kWelcomeFixedBytes>());
  if (!rest || *rest > bytes.size() - kWelcomeFixedBytes) return;
  const auto welcome = decodeWelcome(bytes.first(kWelcomeFixedBytes + *rest));
  if (welcome) (void)Snapshot::decode(welcome->snapshot);
}

/// The end of a session: nothing follows its last message.
std::vector<std::byte> withEnd(std::span<const std::byte> stream) {
  std::vector<std::byte> out(stream.begin(), stream.end());
  const wire::ReplyHeader end{sizeof(end), wire::ReplyKind::kEnd, 0, 0, 0};
  const auto bytes = std::as_bytes(std::span(&end, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

/// Sends a few requests, with exactly sized buffers for their replies.
void ask(Session& session) {
  for (const size_t room : {size_t{24}, size_t{300}, size_t{0}}) {
    std::vector<std::byte> body(room);
    std::vector<std::byte> data(room * 3);
    std::vector<std::byte> whole;
    Session::Answer answer;
    answer.body = body;
    answer.data = data;
    answer.whole = &whole;
    session.wait(
        1, {1, 1}, 8, [](std::byte* place) { std::memset(place, 0, 8); }, answer);
    CHECK(answer.dataBytes <= data.size());
    session.takeFailure();
  }
}

void runSession(uint8_t how, std::span<const std::byte> bytes) {
  const bool overTcp = how & kOverTcp;
  uint64_t lie = 0;
  const bool lies = (how & kLyingHead) && !overTcp && bytes.size() >= sizeof(lie);
  if (lies) {
    std::memcpy(&lie, bytes.data(), sizeof(lie));
    bytes = bytes.subspan(sizeof(lie));
  }
  const std::vector<std::byte> stream = withEnd(bytes);
  std::array<int, 2> ends{};
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  UniqueFd worker(ends[1]);
  OpenedSession opened;
  opened.channel = Channel(UniqueFd(ends[0]));
  opened.remote = overTcp;
  opened.welcome.graceSeconds = how & kWithGrace ? 60 : 0;
  opened.snapshot.devices.resize(1);
  if (!overTcp) {
    auto memory = SessionMemory::create();
    CHECK(bool(memory));
    opened.memory = UniqueFd(::fcntl(memory->file(), F_DUPFD_CLOEXEC, 0));
    std::memcpy(memory->reply(), stream.data(), stream.size());
    memory->control().reply.head.store(lies ? lie : stream.size());
  }
  Endpoint endpoint;
  endpoint.graceSeconds = opened.welcome.graceSeconds;
  endpoint.canPark = how & kCanPark;
  auto session = Session::of(std::move(opened), endpoint);
  CHECK(bool(session));
  (*session)->onLanding(&Landing::mayLand);
  (*session)->onLanded([](uint64_t) {});
  (*session)->onFailure([](int32_t, uint16_t, uint64_t) {});
  (*session)->onOutput([](wire::OutputStream, std::span<const std::byte> text) {
    (void)std::string(reinterpret_cast<const char*>(text.data()), text.size());
  });
  (*session)->onParked([](bool& mayAskAgain) -> Result<Endpoint> {
    mayAskAgain = false;
    return Error{"there is no other worker"};
  });
  // A lost connection is not restored.
  if (overTcp) (*session)->sayGoodbye();
  std::thread talking([&] {
    if (!overTcp) return;
    size_t sent = 0;
    while (sent < stream.size()) {
      const ssize_t n = ::send(worker.get(), stream.data() + sent, stream.size() - sent, MSG_NOSIGNAL);
      if (n > 0)
        sent += static_cast<size_t>(n);
      else if (errno != EAGAIN && errno != EINTR)
        return;
      else
        std::this_thread::yield();
    }
    ::shutdown(worker.get(), SHUT_WR);
  });
  // Over shared memory all data is available; the end of the worker ends waits that would never end.
  if (!overTcp) worker.reset();
  ask(**session);
  talking.join();
  worker.reset();
  session->reset();
  Landing::check();
}

}  // namespace
}  // namespace millpond

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millpond;
  static const Landing landing;
  if (size == 0 || size > wire::kReplyBytes / 2) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] & kGreeting)
    greet(bytes);
  else
    runSession(data[0], bytes);
  return 0;
}
