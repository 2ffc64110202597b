// SPDX-License-Identifier: Apache-2.0
// A client's session against a worker's end in the same process: order, replies, and data.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "testing/servers/session_server.h"

namespace millpond {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kScale = 1;
#else
constexpr uint64_t kScale = 8;
#endif

/// The beginning of the test's commands.
struct Body {
  uint64_t thread;
  uint64_t sequence;
  uint64_t dataBytes;
};

enum TestOp : uint16_t { kPlain = 1, kDownload = 2, kLand = 3, kEcho = 4 };

Body bodyOf(const ServerLink::Frame& frame) {
  Body body;
  CHECK(frame.body().size() >= sizeof(body));
  std::memcpy(&body, frame.body().data(), sizeof(body));
  return body;
}

auto filling(const Body& body) {
  return [body](std::byte* place) { std::memcpy(place, &body, sizeof(body)); };
}

uint64_t answerTo(const Body& body) { return body.thread * 1'000'003 + body.sequence; }

bool replyWith(ServerLink& link, uint32_t request, uint64_t value, int32_t result = 0) {
  return link.reply(wire::ReplyKind::kResult, 0, request, result, std::as_bytes(std::span(&value, 1)));
}

/// Commands of many threads, some of which wait; replies come in any order. The commands of each thread must arrive in
/// its order, and each reply must reach its request.
void mixture(Carrier carrier, unsigned threads, uint64_t operations, size_t largest) {
  std::vector<uint64_t> seen(threads, 0);
  uint64_t arrived = 0;
  SessionTestServer server(carrier, [&](ServerLink& link) {
    std::minstd_rand random(99);
    std::vector<std::pair<uint32_t, Body>> open;
    const auto answerOne = [&] {
      const size_t at = random() % open.size();
      std::swap(open[at], open.back());
      const auto [request, body] = open.back();
      open.pop_back();
      CHECK(replyWith(link, request, answerTo(body), static_cast<int32_t>(body.sequence % 3)));
    };
    SessionTestServer::loop(
        link,
        [&](const ServerLink::Frame& frame) {
          const Body body = bodyOf(frame);
          CHECK(body.thread < threads);
          CHECK_EQ(frame.header.thread, body.thread + 1);
          CHECK_EQ(frame.header.context, body.thread % 7);
          CHECK_EQ(body.sequence, seen[body.thread]);
          ++seen[body.thread];
          ++arrived;
          CHECK_EQ(frame.body().size(), sizeof(Body) + wire::padded(body.dataBytes));
          const std::byte* data = frame.body().data() + sizeof(Body);
          for (uint64_t i = 0; i < body.dataBytes; i += 1 + body.dataBytes / 97)
            CHECK(data[i] == testByte(body.sequence, i));
          for (uint64_t i = body.dataBytes; i < wire::padded(body.dataBytes); ++i) CHECK(data[i] == std::byte{0});
          if (frame.header.request) open.emplace_back(frame.header.request, body);
          while (open.size() > 24) answerOne();
          return true;
        },
        [&] {
          if (open.empty()) return false;
          answerOne();
          return true;
        });
    CHECK(open.empty());
  });

  auto session = server.connect();
  CHECK_EQ(session->remote(), carrier == Carrier::kTcp);
  std::vector<std::thread> callers;
  for (unsigned t = 0; t < threads; ++t) {
    callers.emplace_back([&, t] {
      std::minstd_rand random(1000 + t);
      std::vector<std::byte> data;
      const Session::Caller caller{static_cast<uint16_t>(t % 7), t + 1};
      for (uint64_t i = 0; i < operations; ++i) {
        const uint32_t dice = static_cast<uint32_t>(random() % 100);
        Body body{t, i, 0};
        if (dice < 86) {
          CHECK(session->post(kPlain, caller, sizeof(body), filling(body)));
        } else if (dice < 88) {
          body.dataBytes = dice == 87 ? random() % largest : random() % 300;
          data.resize(body.dataBytes);
          for (size_t k = 0; k < data.size(); ++k) data[k] = testByte(i, k);
          CHECK(session->postWithData(kPlain, caller, sizeof(body), filling(body), data));
          // The memory belongs to the caller again.
          std::fill(data.begin(), data.end(), std::byte{0xee});
        } else {
          uint64_t value = 0;
          Session::Answer answer;
          answer.body = std::as_writable_bytes(std::span(&value, 1));
          CHECK_EQ(session->wait(kPlain, caller, sizeof(body), filling(body), answer), static_cast<int32_t>(i % 3));
          CHECK_EQ(value, answerTo(body));
          CHECK_EQ(answer.bodyBytes, sizeof(value));
        }
      }
    });
  }
  for (auto& caller : callers) caller.join();
  Session::Answer answer;
  Body last{0, operations, 0};
  CHECK_EQ(session->wait(kPlain, {0, 1}, sizeof(last), filling(last), answer), static_cast<int32_t>(operations % 3));
  CHECK(!session->lost());
  session.reset();
}

TEST("64 threads that post and wait are seen in order, and get their own answers, over shared memory") {
  mixture(Carrier::kSharedMemory, 64, 500 * kScale, 300'000);
}

TEST("64 threads that post and wait are seen in order, and get their own answers, over TCP") {
  mixture(Carrier::kTcp, 64, 250 * kScale, 300'000);
}

TEST("one thread alone is seen in order") {
  for (const Carrier carrier : kCarriers) mixture(carrier, 1, 20'000 * kScale, 1000);
}

TEST("64 threads that only wait hand the reading over") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, [&](ServerLink& link) {
      std::deque<std::pair<uint32_t, Body>> open;
      SessionTestServer::loop(
          link,
          [&](const ServerLink::Frame& frame) {
            open.emplace_back(frame.header.request, bodyOf(frame));
            return true;
          },
          [&] {
            if (open.empty()) return false;
            // The newest first, so that the thread that reads for all is done last.
            CHECK(replyWith(link, open.back().first, answerTo(open.back().second)));
            open.pop_back();
            return true;
          });
    });
    auto session = server.connect();
    std::vector<std::thread> callers;
    for (unsigned t = 0; t < 64; ++t)
      callers.emplace_back([&, t] {
        for (uint64_t i = 0; i < 50 * kScale; ++i) {
          const Body body{t, i, 0};
          uint64_t value = 0;
          Session::Answer answer;
          answer.body = std::as_writable_bytes(std::span(&value, 1));
          CHECK_EQ(session->wait(kPlain, {1, t}, sizeof(body), filling(body), answer), 0);
          CHECK_EQ(value, answerTo(body));
        }
      });
    for (auto& caller : callers) caller.join();
  }
}

// Data from the worker

struct DownloadJob {
  uint32_t request;
  uint64_t seed;
  uint64_t bytes;
  uint64_t sent = 0;
};

/// Sends a piece of a download like a worker; false while no staging chunk is free.
bool sendPiece(ServerLink& link, DownloadJob& job, uint32_t& nextChunk, size_t piece) {
  const size_t n = std::min<uint64_t>({piece, job.bytes - job.sent, wire::kChunkBytes});
  if (link.remote()) {
    std::vector<std::byte> data(n);
    for (size_t i = 0; i < n; ++i) data[i] = testByte(job.seed, job.sent + i);
    CHECK(link.reply(wire::ReplyKind::kData, static_cast<uint16_t>(wire::padded(n) - n), job.request, 0,
                     std::span<const std::byte>(data)));
  } else {
    auto& busy = link.memory().control().chunkBusy[nextChunk];
    if (busy.load() != 0) return false;
    busy.store(1);
    std::byte* to = link.memory().chunk(nextChunk);
    for (size_t i = 0; i < n; ++i) to[i] = testByte(job.seed, job.sent + i);
    const wire::ChunkReady ready{nextChunk, static_cast<uint32_t>(n)};
    CHECK(link.reply(wire::ReplyKind::kChunk, 0, job.request, 0, std::as_bytes(std::span(&ready, 1))));
    nextChunk = (nextChunk + 1) % wire::kStagingChunks;
  }
  job.sent += n;
  return true;
}

TEST("data of many downloads at once arrives byte for byte") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, [&](ServerLink& link) {
      std::vector<DownloadJob> jobs;
      std::minstd_rand random(3);
      uint32_t nextChunk = 0;
      SessionTestServer::loop(
          link,
          [&](const ServerLink::Frame& frame) {
            const Body body = bodyOf(frame);
            jobs.push_back({frame.header.request, body.sequence, body.dataBytes});
            return true;
          },
          [&] {
            if (jobs.empty()) return false;
            const size_t at = random() % jobs.size();
            DownloadJob& job = jobs[at];
            if (job.sent < job.bytes && !sendPiece(link, job, nextChunk, 1 + random() % wire::kChunkBytes)) {
              link.sleep(1'000'000);  // a chunk that becomes free also wakes the worker
              return true;
            }
            if (job.sent < job.bytes) return true;
            CHECK(replyWith(link, job.request, job.sent));
            jobs.erase(jobs.begin() + static_cast<ptrdiff_t>(at));
            return true;
          });
    });
    auto session = server.connect();
    std::vector<std::thread> callers;
    for (unsigned t = 0; t < 8; ++t)
      callers.emplace_back([&, t] {
        std::minstd_rand random(50 + t);
        for (uint64_t i = 0; i < 3 * kScale; ++i) {
          const Body body{t, 100 * t + i, 1 + random() % (i % 3 ? 5000 : 2'000'000)};
          std::vector<std::byte> to(body.dataBytes + 64, std::byte{0x77});
          uint64_t sent = 0;
          Session::Answer answer;
          answer.body = std::as_writable_bytes(std::span(&sent, 1));
          answer.data = std::span(to).first(body.dataBytes);
          CHECK_EQ(session->wait(kDownload, {1, t}, sizeof(body), filling(body), answer), 0);
          CHECK_EQ(sent, body.dataBytes);
          CHECK_EQ(answer.dataBytes, body.dataBytes);
          for (size_t k = 0; k < body.dataBytes; ++k) CHECK(to[k] == testByte(body.sequence, k));
          for (size_t k = body.dataBytes; k < to.size(); ++k) CHECK(to[k] == std::byte{0x77});
        }
      });
    for (auto& caller : callers) caller.join();
  }
}

struct LandBody {
  uint64_t address;
  uint64_t bytes;
  uint64_t seed;
};

bool land(ServerLink& link, const LandBody& body, size_t piece) {
  std::vector<std::byte> data;
  for (uint64_t at = 0; at < body.bytes; at += data.size()) {
    data.resize(std::min<uint64_t>(piece, body.bytes - at));
    for (size_t i = 0; i < data.size(); ++i) data[i] = testByte(body.seed, at + i);
    const wire::Landing header{body.address + at, data.size(), 0, 0};
    if (!link.reply(wire::ReplyKind::kLanding, 0, 0, 0, std::as_bytes(std::span(&header, 1)),
                    std::span<const std::byte>(data)))
      return false;
  }
  return true;
}

TEST("what lands by itself is there before the wait behind it returns") {
  SessionTestServer server(Carrier::kTcp, [&](ServerLink& link) {
    std::minstd_rand random(4);
    SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
      if (frame.header.op != kLand) return replyWith(link, frame.header.request, 0);
      LandBody body;
      std::memcpy(&body, frame.body().data(), sizeof(body));
      return land(link, body, 1 + random() % wire::kChunkBytes);
    });
  });
  auto session = server.connect();
  std::vector<std::byte> memory(3'000'000);
  session->onLanding([&](uint64_t address, uint64_t bytes) {
    const auto start = reinterpret_cast<uint64_t>(memory.data());
    return address >= start && bytes <= memory.size() && address - start <= memory.size() - bytes;
  });
  std::minstd_rand random(5);
  for (uint64_t round = 0; round < 10 * kScale; ++round) {
    std::fill(memory.begin(), memory.end(), std::byte{0x11});
    const size_t from = random() % 1'000'000;
    const size_t bytes = 1 + random() % (memory.size() - from);
    const LandBody body{reinterpret_cast<uint64_t>(memory.data()) + from, bytes, round};
    CHECK(session->post(kLand, {}, sizeof(body), [&](std::byte* place) { std::memcpy(place, &body, sizeof(body)); }));
    Session::Answer answer;
    const Body end{};
    CHECK_EQ(session->wait(kPlain, {}, sizeof(end), filling(end), answer), 0);
    for (size_t i = 0; i < memory.size(); ++i)
      if (memory[i] != (i < from || i >= from + bytes ? std::byte{0x11} : testByte(round, i - from)))
        CHECK_EQ(i, size_t{0});
  }
}

TEST("nothing lands where no memory waits for it, and the session goes on") {
  SessionTestServer server(Carrier::kTcp, [&](ServerLink& link) {
    SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
      if (frame.header.op != kLand) return replyWith(link, frame.header.request, 5);
      LandBody body;
      std::memcpy(&body, frame.body().data(), sizeof(body));
      return land(link, body, 100'003);
    });
  });
  auto session = server.connect();
  std::vector<std::byte> memory(400'000, std::byte{0x22});
  const auto start = reinterpret_cast<uint64_t>(memory.data());
  // Without a callback that allows it no landing is written; with one, only where it allows.
  for (int asked = 0; asked < 2; ++asked) {
    if (asked) session->onLanding([](uint64_t address, uint64_t) { return address == 64; });
    for (const uint64_t address : {start, uint64_t{8}, ~uint64_t{0} - 16}) {
      const LandBody body{address, 350'001, 1};
      CHECK(session->post(kLand, {}, sizeof(body), [&](std::byte* place) { std::memcpy(place, &body, sizeof(body)); }));
      uint64_t value = 0;
      Session::Answer answer;
      answer.body = std::as_writable_bytes(std::span(&value, 1));
      const Body end{};
      CHECK_EQ(session->wait(kPlain, {}, sizeof(end), filling(end), answer), 0);
      CHECK_EQ(value, 5u);
    }
  }
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0x22}; }));
}

TEST("an answer of any length comes whole where that is asked, and cut to its room where not") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, [&](ServerLink& link) {
      SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
        const Body body = bodyOf(frame);
        std::vector<std::byte> data(body.dataBytes);
        for (size_t i = 0; i < data.size(); ++i) data[i] = testByte(body.sequence, i);
        return link.reply(wire::ReplyKind::kResult, 0, frame.header.request, 7, std::span<const std::byte>(data));
      });
    });
    auto session = server.connect();
    std::minstd_rand random(6);
    for (uint64_t i = 0; i < 300 * kScale; ++i) {
      // Bodies travel padded to 8, and the longest ones just fit.
      const Body body{
          0, i, i % 10 ? 8 * (random() % 64) : wire::kMaxReplyBytes - sizeof(wire::ReplyHeader) - 8 * (random() % 3)};
      std::vector<std::byte> whole;
      std::array<std::byte, 40> room;
      room.fill(std::byte{0x33});
      Session::Answer answer;
      answer.whole = &whole;
      answer.body = std::span(room).first(24);
      CHECK_EQ(session->wait(kEcho, {}, sizeof(body), filling(body), answer), 7);
      CHECK_EQ(answer.bodyBytes, body.dataBytes);
      CHECK_EQ(whole.size(), body.dataBytes);
      for (size_t k = 0; k < whole.size(); ++k) CHECK(whole[k] == testByte(i, k));
      for (size_t k = 0; k < room.size(); ++k)
        CHECK(room[k] == (k < std::min<size_t>(24, body.dataBytes) ? testByte(i, k) : std::byte{0x33}));
    }
  }
}

TEST("a full ring towards a worker that waits for its own replies to be taken is no deadlock") {
  for (const Carrier carrier : kCarriers) {
    std::atomic<uint64_t> reported{0};
    const uint64_t commands = carrier == Carrier::kTcp ? 300 : 150'000;
    std::vector<std::byte> sink(wire::kChunkBytes);
    SessionTestServer server(carrier, [&](ServerLink& link) {
      const std::vector<std::byte> data(sink.size());
      SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
        if (frame.header.request) return replyWith(link, frame.header.request, 0);
        // More comes back than is sent, and no thread waits for it.
        if (link.remote()) {
          const wire::Landing header{reinterpret_cast<uint64_t>(sink.data()), data.size(), 0, 0};
          CHECK(link.reply(wire::ReplyKind::kLanding, 0, 0, 0, std::as_bytes(std::span(&header, 1)),
                           std::span<const std::byte>(data)));
        }
        const wire::FailureReport report{1, 1, 0};
        return link.reply(wire::ReplyKind::kFailure, 0, 0, 1, std::as_bytes(std::span(&report, 1)));
      });
    });
    auto session = server.connect();
    session->onLanding([](uint64_t, uint64_t) { return true; });
    session->onFailure([&](int32_t, uint16_t, uint64_t) { ++reported; });
    const std::vector<std::byte> data(200'000);
    const Body body{};
    for (uint64_t i = 0; i < commands; ++i) {
      if (carrier == Carrier::kTcp)
        CHECK(session->postWithData(kPlain, {}, sizeof(body), filling(body), data));
      else
        CHECK(session->post(kPlain, {}, sizeof(body), filling(body)));
    }
    Session::Answer answer;
    CHECK_EQ(session->wait(kPlain, {}, sizeof(body), filling(body), answer), 0);
    CHECK_EQ(reported.load(), commands);
  }
}

TEST("the failure of a command that nobody waited for is told once, with its name and place") {
  for (const Carrier carrier : kCarriers) {
    SessionTestServer server(carrier, [&](ServerLink& link) {
      SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
        if (frame.header.request) return replyWith(link, frame.header.request, 0);
        const Body body = bodyOf(frame);
        const auto result = static_cast<int32_t>(body.sequence);
        const auto context = static_cast<uint16_t>(frame.header.context);
        if (!link.remote() && !link.memory().control().failures.keep(result, context)) return true;
        const wire::FailureReport report{body.sequence * 10, context, 0};
        return link.reply(wire::ReplyKind::kFailure, frame.header.op, 0, result, std::as_bytes(std::span(&report, 1)));
      });
    });
    auto session = server.connect();
    std::vector<std::array<uint64_t, 3>> told;
    session->onFailure([&](int32_t code, uint16_t op, uint64_t position) {
      told.push_back({static_cast<uint64_t>(code), op, position});
    });
    CHECK_EQ(session->failure(), 0);
    Session::Answer answer;
    const auto sync = [&] { CHECK_EQ(session->wait(kPlain, {}, sizeof(Body), filling({}), answer), 0); };
    CHECK(session->post(kPlain, {1, 1}, sizeof(Body), filling({0, 700, 0})));
    CHECK(session->post(kEcho, {1, 1}, sizeof(Body), filling({0, 1, 0})));  // hidden behind the first failure
    sync();
    CHECK_EQ(session->failure(), 700);
    CHECK_EQ(session->takeFailure(), 700);
    CHECK_EQ(session->failure(), 0);
    CHECK(session->post(kEcho, {1, 1}, sizeof(Body), filling({0, 719, 0})));
    sync();
    CHECK_EQ(session->takeFailure(), 719);
    CHECK_EQ(session->takeFailure(), 0);
    // The failure of another context is kept beside it.
    CHECK(session->post(kEcho, {1, 1}, sizeof(Body), filling({0, 719, 0})));
    CHECK(session->post(kEcho, {2, 1}, sizeof(Body), filling({0, 1, 0})));
    sync();
    uint16_t first = 0, second = 0;
    const int32_t codes = session->takeFailure(&first) + session->takeFailure(&second);
    CHECK_EQ(codes, 720);
    CHECK_EQ(first + second, 3);
    CHECK_EQ(session->failure(), 0);
    CHECK_EQ(session->takeFailure(), 0);
    CHECK(session->post(kEcho, {1, 1}, sizeof(Body), filling({0, 719, 0})));
    sync();
    CHECK_EQ(session->takeFailure(), 719);
    CHECK(told.size() >= 2);
    CHECK(told.front() == (std::array<uint64_t, 3>{700, kPlain, 7000}));
    CHECK(told.back() == (std::array<uint64_t, 3>{719, kEcho, 7190}));
  }
}

TEST("files come in the order of the answers that announce them") {
  SessionTestServer server(Carrier::kSharedMemory, [&](ServerLink& link) {
    SessionTestServer::loop(link, [&](const ServerLink::Frame& frame) {
      int ends[2];
      CHECK_EQ(::pipe2(ends, 0), 0);
      UniqueFd out(ends[0]);
      UniqueFd in(ends[1]);
      const uint64_t sequence = bodyOf(frame).sequence;
      CHECK_EQ(::write(in.get(), &sequence, sizeof(sequence)), static_cast<ssize_t>(sizeof(sequence)));
      CHECK(bool(sendFile(link.socket(), out.get())));
      return replyWith(link, frame.header.request, 0);
    });
  });
  auto session = server.connect();
  for (uint64_t i = 0; i < 50; ++i) {
    Session::Answer answer;
    CHECK_EQ(session->wait(kPlain, {}, sizeof(Body), filling({0, i, 0}), answer), 0);
    auto file = session->receiveFile();
    CHECK(bool(file));
    uint64_t sequence = 0;
    CHECK_EQ(::read(file->get(), &sequence, sizeof(sequence)), static_cast<ssize_t>(sizeof(sequence)));
    CHECK_EQ(sequence, i);
  }
}

}  // namespace
}  // namespace millpond
