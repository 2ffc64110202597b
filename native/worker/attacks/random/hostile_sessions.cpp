// SPDX-License-Identifier: Apache-2.0
// Several workers of one claim, whose clients send random commands at the same time and are killed at random, run beside a worker
// of another claim whose program computes. Each worker is a process with the real session on the software GPU, behind a guard that
// checks addresses. They share the device, its gates and, within a claim, its accounts, as the workers of a node do.
//
// hostile_sessions [SECONDS [SEED]]: the program starts itself in the other roles. A failure names the command that repeats
// one session alone.
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "softgpu/driver/host/ledger.h"
#include "worker/attacks/random/counted_driver.h"
#include "worker/attacks/random/random_commands.h"
#include "worker/attacks/random/raw_client.h"
#include "worker/ipc/peer_sharing.h"
#include "worker/testing/canary.h"
#include "worker/testing/own_session.h"

extern char** environ;

namespace millpond::worker {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kSlower = 6;
#else
constexpr int64_t kSlower = 1;
#endif
constexpr size_t kHostile = 4;
constexpr size_t kNeighbour = kHostile;  ///< its place on the board
constexpr uint64_t kMiB = uint64_t{1} << 20;
/// The two claims have all memory of the device, so each byte that one takes too much is missing for the other.
constexpr uint64_t kDeviceBytes = 64 * kMiB, kContextBytes = 4 * kMiB;
constexpr uint64_t kHostileBytes = 40 * kMiB, kNeighbourBytes = 16 * kMiB;
static_assert(kHostileBytes + kNeighbourBytes + 2 * kContextBytes == kDeviceBytes);
constexpr uint64_t kHostBytes = 192 * kMiB, kSessionHostBytes = 16 * kMiB;
constexpr uint64_t kMostContexts = 5, kMostStreams = 16, kMostEvents = 24, kMostNodes = 512;
/// Objects of a worker's own for each session: streams for copies and output, and events that mark places in streams.
constexpr uint64_t kOwnStreams = 1, kOwnEvents = 32;
constexpr int64_t kSecond = 1'000'000'000;
/// Time within which a session ends, whatever was sent.
constexpr int64_t kPatienceNs = 20 * kSecond * kSlower;
constexpr int64_t kSessionNs = kSecond / 2 * kSlower;
constexpr uint64_t kWorkerHostBytes = 1024 * kMiB;

struct Role {
  std::string folder;
  size_t place = 0;
  uint32_t seed = 0;
  uint32_t sessions = 0;  ///< 0: no limit, until the process is killed
};

ClaimPlace placeOf(const Role& role, const char* claim) {
  ClaimPlace place;
  place.directory = role.folder + "/" + claim;
  place.limits.most = {kMostContexts, kMostStreams, kMostEvents, kMostNodes, kHostBytes, 64 * kMiB};
  place.sessionHostBytes = kSessionHostBytes;
  return place;
}

std::vector<DeviceShare> shares(uint64_t bytes) {
  std::vector<DeviceShare> all = OwnDriver::shares(OwnSession::guarded());
  for (DeviceShare& each : all) {
    each.memoryBytes = bytes;
    each.contextBytes = kContextBytes;
    each.printsBytes = kMiB;
    each.allocatesBytes = 2 * kMiB;
  }
  return all;
}

/// Answers requests for shared objects from other sessions, on a thread of its own.
class Answering {
 public:
  explicit Answering(Sharing& sharing) {
    CHECK(bool(sharing.listen()));
    thread_ = std::thread([this, &sharing] {
      while (!isOver_.load()) {
        std::vector<int> sockets;
        sharing.collect(sockets);
        std::vector<pollfd> looks;
        for (const int socket : sockets) looks.push_back({socket, POLLIN, 0});
        ::poll(looks.data(), looks.size(), 10);
        sharing.serve();
      }
    });
  }
  ~Answering() {
    isOver_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> isOver_{false};
  std::thread thread_;
};

class HostileWorker {
 public:
  explicit HostileWorker(const Role& role)
      : role_(role),
        board_(Board::at(role.folder + "/board")),
        place_(board_.places[role.place]),
        driver_(counted(OwnSession::guarded(), board_, role.place)) {}

  void run() {
    for (uint32_t i = 0; role_.sessions == 0 || i < role_.sessions; ++i) {
      place_.session.store(i);
      place_.aliveAt.store(monotonicNs());
      runSession(role_.seed + i);
    }
  }

 private:
  void runSession(uint32_t seed) {
    SessionDevices devices(driver_);
    devices.countDriverMemory();
    std::optional<ClaimAccounts> accounts;
    const std::vector<DeviceShare> wanted = shares(kHostileBytes);
    const Status assigned = devices.assign(wanted, [&]() -> Status {
      accounts.emplace(placeOf(role_, "hostile"), devices.accounts());
      return accounts->enter({kSecond / 10, kSecond});
    });
    if (!assigned) {
      // The claim's other sessions have its memory.
      CHECK(accounts && accounts->isFull());
      place_.refused.fetch_add(1);
      return;
    }
    place_.sessions.fetch_add(1);
    const bool overTcp = seed % 3 == 0;
    auto memory = SessionMemory::create();
    CHECK(bool(memory));
    auto seen = SessionMemory::map(UniqueFd(::fcntl(memory->file(), F_DUPFD_CLOEXEC, 0)));
    CHECK(bool(seen));
    const void* const linkRuns[] = {memory->submitRun().data(), memory->stagingRun().data()};
    std::array<int, 2> ends{};
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    {
      const std::string id = "w" + std::to_string(role_.place);
      Sharing sharing(role_.folder + "/" + id + "/peers.sock", id, {});
      const Answering answering(sharing);
      Executor executor(driver_, devices, *accounts, ServerLink(UniqueFd(ends[0]), std::move(*memory), overTcp),
                        nullptr, nullptr, gate::Gates(role_.folder + "/gates"), &sharing);
      Executor::End end;
      std::atomic<bool> isOver{false};
      std::thread worker([&] {
        end = executor.run();
        isOver.store(true);
      });
      talk(seed, UniqueFd(ends[1]), overTcp ? nullptr : &*seen, executor, isOver);
      executor.stop("the client is gone", true);
      // A process that ends takes its work with it.
      OwnDriver::instance().cancel();
      worker.join();
      OwnDriver::instance().quieten();
      check(end);
    }
    OwnDriver::instance().reset(linkRuns);
    recount();
  }

  /// Sends commands until the worker ends the session or all commands are sent.
  void talk(uint32_t seed, UniqueFd socket, SessionMemory* memory, const Executor& executor,
            const std::atomic<bool>& isOver) {
    RandomCommands commands(seed, [&](std::span<std::byte> place) { takeHandle(seed, place); });
    RawClient client(std::move(socket), memory, [&](const wire::ReplyHeader& header, std::span<const std::byte> body) {
      if (header.kind != wire::ReplyKind::kResult) return;
      place_.replies.fetch_add(1);
      // Replies of this size begin with a handle that other sessions can open.
      if (header.result == 0 && body.size() >= 64) giveHandle(body.first(64));
      commands.learn(header.request, header.result, body);
    });
    const int64_t until = monotonicNs() + kSessionNs;
    const auto goesOn = [&] { return !isOver.load() && !client.isEnded() && monotonicNs() < until; };
    for (const std::vector<std::byte>& each : commands.beginning()) {
      while (goesOn() && !client.send(each)) client.step(1);
      client.step(0);
    }
    // A failure of the device before the session is set up would end it.
    while (executor.counters().commands.load() == 0 && !isOver.load()) client.step(1);
    for (int i = 0; i < 50 && goesOn(); ++i) client.step(1);
    const uint32_t count = 50 + seed % 400;
    for (uint32_t i = 0; i < count && goesOn(); ++i) {
      const std::vector<std::byte> frame = commands.next();
      while (goesOn() && !client.send(frame)) client.step(1);
      place_.commands.fetch_add(1);
      client.step(i % 8 == 7 ? 1 : 0);
    }
    for (int i = 0; i < 20 && goesOn(); ++i) client.step(1);
  }
  void giveHandle(std::span<const std::byte> bytes) {
    lockRobust(board_.mutex);
    const uint32_t next = board_.handlesUsed.fetch_add(1) % kMostHandles;
    std::copy(bytes.begin(), bytes.end(), board_.handles[next].begin());
    ::pthread_mutex_unlock(&board_.mutex);
  }
  void takeHandle(uint32_t seed, std::span<std::byte> place) {
    lockRobust(board_.mutex);
    const auto& handle = board_.handles[(seed * 7919u + board_.handlesUsed.load()) % kMostHandles];
    std::copy_n(handle.begin(), std::min(place.size(), handle.size()), place.begin());
    ::pthread_mutex_unlock(&board_.mutex);
  }
  void check(const Executor::End& end) {
    CHECK(!end.reason.empty());
    if (!end.ok) {
      place_.ended.fetch_add(1);
      if (role_.sessions != 0) std::fprintf(stderr, "%s\n", end.reason.c_str());
      if (!end.reason.starts_with("protocol violation")) testing::fail(__FILE__, __LINE__, end.reason);
    }
    for (const std::string& each : DriverGuard::takeViolations()) testing::fail(__FILE__, __LINE__, each);
    CHECK(canary_.isUnchanged());
  }

  const Role role_;
  Board& board_;
  Board::Place& place_;
  const Driver driver_;
  Canary canary_;
};

/// A program of another claim. Its results must be right, and it must get all its memory at any time.
class Neighbour {
 public:
  explicit Neighbour(const Role& role) : role_(role), place_(Board::at(role.folder + "/board").places[role.place]) {}

  void run() {
    place_.pid = ::getpid();
    OwnSession::Place where{placeOf(role_, "neighbour"), shares(kNeighbourBytes), role_.folder + "/gates"};
    OwnSession session(Carrier::kSharedMemory, std::move(where));
    const uint64_t fill = loadKernel(session);
    for (uint32_t round = 0;; ++round) {
      place_.aliveAt.store(monotonicNs());
      compute(session, fill, round);
      if (round % 8 == 0) takeAll(session);
      place_.checks.fetch_add(1);
    }
  }

 private:
  static uint64_t loadKernel(OwnSession& session) {
    const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); };
    cmd::ImagePart part{};
    part.handle = handle::make(HandleKind::kModule, 1, 1);
    part.total = kRandomModule.size();
    session.run(part, bytes(kRandomModule));
    cmd::ModuleLoad load{};
    load.handle = part.handle;
    cmd::ModuleLoadReply loaded{};
    CHECK_EQ(session.run(loaded, load, std::span<const std::byte>{}, std::span<const std::byte>{}), 0);
    cmd::GetFunction get{};
    get.owner = part.handle;
    get.handle = handle::make(HandleKind::kFunction, 2, 1);
    cmd::GetFunctionReply got{};
    const int32_t rc = session.run(got, get, bytes("fill"));
    if (rc) testing::fail(__FILE__, __LINE__, session.isLost() ? session.finish().reason : std::to_string(rc));
    session.makeStream(3);
    return get.handle;
  }
  static void compute(OwnSession& session, uint64_t function, uint32_t round) {
    constexpr uint32_t kWords = 4096;
    const CUdeviceptr from = session.allocate(4 * kWords), to = session.allocate(4 * kWords);
    struct {
      uint64_t address;
      uint32_t words, value;
    } const arguments{from, kWords, 0x1234'5678 ^ (round * 2654435761u)};
    cmd::Launch launch{};
    launch.function = function;
    launch.stream = OwnSession::stream(3);
    launch.gridX = kWords / 128;
    launch.blockX = 128;
    launch.gridY = launch.gridZ = launch.blockY = launch.blockZ = 1;
    session.run(launch, std::span<const std::byte>{}, std::as_bytes(std::span(&arguments, 1)));
    cmd::MemcpyDtoDAsyncV2 copy{};
    copy.dstDevice = to;
    copy.srcDevice = from;
    copy.ByteCount = 4 * kWords;
    copy.hStream = OwnSession::stream(3);
    session.run(copy);
    cmd::StreamSync sync{};
    sync.stream = OwnSession::stream(3);
    CHECK_EQ(session.run(sync), 0);
    CHECK_EQ(session.session().takeFailure(), 0);
    const std::vector<std::byte> bytes = session.download(to, 4 * kWords);
    for (size_t at = 0; at < bytes.size(); at += 4) CHECK(std::memcmp(bytes.data() + at, &arguments.value, 4) == 0);
    for (const CUdeviceptr each : {from, to}) free(session, each);
  }
  static void takeAll(OwnSession& session) {
    constexpr uint64_t kPiece = 2 * kMiB;
    std::vector<CUdeviceptr> all;
    cmd::MemAlloc command{};
    command.bytes = kPiece;
    cmd::MemAllocReply reply{};
    session.synchronise();
    while (session.run(reply, command) == 0) all.push_back(reply.address);
    // The rest is used by the arena of small allocations and charged for module and stream.
    CHECK(all.size() * kPiece >= kNeighbourBytes - 8 * kMiB && all.size() * kPiece <= kNeighbourBytes);
    for (const CUdeviceptr each : all) free(session, each);
    session.settle();
    CHECK(!session.isLost());
  }
  static void free(OwnSession& session, CUdeviceptr address) {
    cmd::MemFree command{};
    command.address = address;
    session.run(command);
  }

  const Role role_;
  Board::Place& place_;
};

/// Starts this program in another role.
pid_t start(const char* kind, const Role& role) {
  std::vector<std::string> words{
      "hostile_sessions",           kind, role.folder, std::to_string(role.place), std::to_string(role.seed),
      std::to_string(role.sessions)};
  std::vector<char*> arguments;
  for (std::string& each : words) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  CHECK_EQ(::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ), 0);
  return pid;
}

int serve(const std::string& kind, const Role& role) {
  // The process must not outlive the test, nor use more memory than a worker needs.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setenv("MILLPOND_SOFTGPU_OVERHEAD", "context=4Mi,printf=1Mi,malloc=2Mi", 1);
  OwnDriver::share(role.folder + "/device", 2);
  setLogLevel(LogLevel::Off);
  if (kind == "--session")
    HostileWorker(role).run();
  else
    Neighbour(role).run();
  return 0;
}

class Test {
 public:
  Test(int64_t seconds, uint32_t seed) : seconds_(seconds), random_(seed) {
    CHECK(::mkdtemp(folder_.data()) != nullptr);
    for (const char* name : {"device", "hostile", "neighbour", "gates"})
      std::filesystem::create_directory(folder_ + "/" + name);
    std::filesystem::permissions(folder_ + "/device", std::filesystem::perms::owner_all);
    for (size_t i = 0; i < kHostile; ++i) std::filesystem::create_directory(folder_ + "/w" + std::to_string(i));
    board_ = &Board::at(folder_ + "/board");
  }
  ~Test() { std::filesystem::remove_all(folder_); }

  int run() {
    neighbour_ = start("--neighbour", {folder_, kNeighbour, 0, 0});
    for (size_t i = 0; i < kHostile; ++i) begin(i);
    const int64_t until = monotonicNs() + seconds_ * kSecond;
    int64_t nextKill = monotonicNs() + kSecond;
    while (monotonicNs() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      look();
      if (monotonicNs() < nextKill) continue;
      nextKill = monotonicNs() + kSecond / 4 + static_cast<int64_t>(random_() % 1000) * 1'000'000;
      killOne();
    }
    for (const pid_t pid : {workers_[0], workers_[1], workers_[2], workers_[3], neighbour_}) ::kill(pid, SIGKILL);
    for (const pid_t pid : {workers_[0], workers_[1], workers_[2], workers_[3], neighbour_}) reap(pid, true);
    return report();
  }

 private:
  void begin(size_t place) {
    seeds_[place] = static_cast<uint32_t>(random_());
    board_->places[place].aliveAt.store(monotonicNs());
    workers_[place] = start("--session", {folder_, place, seeds_[place], 0});
  }
  void killOne() {
    const size_t place = random_() % kHostile;
    ::kill(workers_[place], SIGKILL);
    reap(workers_[place], true);
    begin(place);
  }
  /// Whether it has ended; a process that was not killed has failed.
  void reap(pid_t pid, bool isKilled) {
    int status = 0;
    rusage used{};
    const pid_t got = ::wait4(pid, &status, isKilled ? 0 : WNOHANG, &used);
    if (got == 0) return;
    if (!isKilled || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
      fail("process " + std::to_string(pid) + " ended with status " + std::to_string(status));
    mostHostBytes_ = std::max<uint64_t>(mostHostBytes_, static_cast<uint64_t>(used.ru_maxrss) << 10);
  }
  void look() {
    for (const pid_t each : workers_) reap(each, false);
    reap(neighbour_, false);
    for (size_t i = 0; i <= kHostile; ++i)
      if (const int64_t at = board_->places[i].aliveAt.load(); at && monotonicNs() - at > kPatienceNs)
        fail("the session of place " + std::to_string(i) + " does not end");
    for (const auto& each : std::filesystem::directory_iterator(folder_ + "/device")) {
      if (each.path().extension() != ".memory") continue;
      auto& ledger = ledgers_[each.path().string()];
      if (!ledger) {
        auto opened = softgpu::Ledger::open(each.path().string());
        CHECK(bool(opened));
        ledger = std::move(*opened);
      }
      mostBytes_ = std::max(mostBytes_, ledger->used());
    }
  }
  [[noreturn]] void fail(const std::string& what) {
    for (size_t i = 0; i < kHostile; ++i)
      std::fprintf(stderr, "place %zu: hostile_sessions --session %s %zu %u 1\n", i, folder_.c_str(), i,
                   seeds_[i] + board_->places[i].session.load());
    for (const pid_t each : workers_) ::kill(each, SIGKILL);
    ::kill(neighbour_, SIGKILL);
    testing::fail(__FILE__, __LINE__, what);
  }
  int report() {
    uint64_t sessions = 0, commands = 0, replies = 0, ended = 0, refused = 0;
    for (const Board::Place& each : board_->places) {
      sessions += each.sessions.load();
      commands += each.commands.load();
      replies += each.replies.load();
      ended += each.ended.load();
      refused += each.refused.load();
    }
    const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf("%llu sessions (%llu refused), %llu commands, %llu answers, %llu sessions ended by their worker\n",
                number(sessions), number(refused), number(commands), number(replies), number(ended));
    std::printf(
        "at most %llu contexts, %llu streams, %llu events, %llu MiB of a device, %llu MiB of host memory each\n",
        number(board_->most[0]), number(board_->most[1]), number(board_->most[2]), number(mostBytes_ / kMiB),
        number(mostHostBytes_ / kMiB));
    std::printf("%llu rounds of the neighbour\n", number(board_->places[kNeighbour].checks.load()));
    CHECK(sessions > 8 && commands > 500 && replies > 100 && ended > 0);
    CHECK(board_->places[kNeighbour].checks.load() > 0);
    CHECK(board_->most[0] <= kMostContexts);
    CHECK(board_->most[1] <= kMostStreams + kHostile * kOwnStreams);
    CHECK(board_->most[2] <= kMostEvents + kHostile * kOwnEvents);
    CHECK(mostBytes_ <= kDeviceBytes);
#if !defined(__SANITIZE_ADDRESS__)
    CHECK(mostHostBytes_ <= kWorkerHostBytes);
#endif
    return 0;
  }

  const int64_t seconds_;
  std::minstd_rand random_;
  std::string folder_ = "/tmp/millpond-hostile-XXXXXX";
  Board* board_ = nullptr;
  std::array<pid_t, kHostile> workers_{};
  std::array<uint32_t, kHostile> seeds_{};
  pid_t neighbour_ = 0;
  std::map<std::string, std::unique_ptr<softgpu::Ledger>> ledgers_;
  uint64_t mostBytes_ = 0;
  uint64_t mostHostBytes_ = 0;
};

}  // namespace
}  // namespace millpond::worker

int main(int argc, char** argv) {
  using namespace millpond::worker;
  const auto number = [&](int at, uint32_t otherwise) {
    return at < argc ? static_cast<uint32_t>(std::strtoul(argv[at], nullptr, 10)) : otherwise;
  };
  if (argc > 2 && argv[1][0] == '-') return serve(argv[1], {argv[2], number(3, 0), number(4, 0), number(5, 1)});
  const uint32_t seed = number(2, 13);
  std::printf("seed %u\n", seed);
  return Test(number(1, 4), seed).run();
}
