// SPDX-License-Identifier: Apache-2.0
// A program whose session is parked whenever it may be, and goes on with another worker at its next call.
#pragma once

#include <sys/stat.h>

#include <csignal>
#include <ctime>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "testing/remoted.h"
#include "testing/servers/http_server.h"

namespace millpond::testing {

inline constexpr unsigned kParkAfterMs = 1;
/// TCP is encrypted here.
inline const std::string kParkingSecret(64, '5');

inline std::string bootId() {
  std::array<char, 64> text{};
  FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r");
  CHECK(file != nullptr);
  CHECK(std::fgets(text.data(), text.size(), file) != nullptr);
  std::fclose(file);
  return {text.data(), 36};
}

inline void nap(long us) {
  const timespec time{0, us * 1000};
  ::nanosleep(&time, nullptr);
}

/// A controller and an agent in one, for a claim that is always bound: each session has a separate worker process, in a
/// directory of its own.
class ParkingPool {
 public:
  /// `killSeed`: some workers, except the first one, are killed soon after they were assigned.
  explicit ParkingPool(std::string directory, std::optional<unsigned> killSeed = {})
      : directory_(std::move(directory)),
        random_(killSeed.value_or(0)),
        kills_(killSeed.has_value()),
        server_([this](const HttpTestServer::Request& request) { return answer(request); }) {}

  std::string url() const { return server_.url(); }
  size_t killed() const {
    const std::lock_guard lock(mutex_);
    return killers_.size();
  }
  size_t sessions() const {
    const std::lock_guard lock(mutex_);
    return workers_.size();
  }
  /// Whether all ended in order. Their output follows.
  bool ended(std::string& said) {
    const std::lock_guard lock(mutex_);
    bool isOrderly = true;
    for (std::thread& killer : killers_) killer.join();
    for (auto& worker : workers_) {
      std::string words;
      isOrderly = worker->wait(words) == 0 && isOrderly;
      said += words;
    }
    return isOrderly;
  }

 private:
  std::string answer(const HttpTestServer::Request& request) {
    const auto is = [&](const char* method) { return request.path.ends_with(method); };
    if (is("/WaitClaim"))
      return HttpTestServer::json(200, R"({"claim":{"name":"c","state":"CLAIM_STATE_BOUND","version":"1"}})");
    if (is("/CreateTicket"))
      return HttpTestServer::json(200, R"({"ticket":"t","session":"s","agentUrl":")" + url() + "\"}");
    CHECK(is("/OpenSession"));
    const std::lock_guard lock(mutex_);
    const std::string own = directory_ + "/w" + std::to_string(workers_.size());
    CHECK(::mkdir(own.c_str(), 0700) == 0);
    workers_.push_back(std::make_unique<WorkerProcess>(own, std::vector<std::string>{}, kParkingSecret, kParkAfterMs));
    if (kills_ && workers_.size() > 1 && random_() % 2 == 0)
      killers_.emplace_back([pid = workers_.back()->pid(), us = static_cast<long>(random_() % 5000)] {
        nap(us);
        // The process has not been reaped, so its pid cannot have been reused.
        ::kill(pid, SIGKILL);
      });
    return HttpTestServer::json(200, R"({"session":"s","unixPath":")" + own + R"(/data","bootId":")" + bootId() +
                                         R"(","linkSecret":")" + kParkingSecret +
                                         R"(","tcpHost":"127.0.0.1","tcpPort":)" +
                                         std::to_string(workers_.back()->port()) + "}");
  }

  const std::string directory_;
  std::minstd_rand random_;
  const bool kills_;
  std::vector<std::thread> killers_;
  mutable std::mutex mutex_;  // guards what both the server's thread and, after the program has ended, the test access
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  HttpTestServer server_;
};

inline std::string& directory() {
  static std::string path;
  return path;
}
inline Way currentWay = Way::kDirect;

inline size_t sessionsSoFar() {
  size_t count = 0;
  while (std::filesystem::exists(directory() + "/w" + std::to_string(count))) ++count;
  return count;
}

/// Waits until the session is parked: its worker has ended.
inline void rest() {
  if (currentWay == Way::kDirect) return;
  const std::string socket = directory() + "/w" + std::to_string(sessionsSoFar() - 1) + "/data";
  while (std::filesystem::exists(socket)) nap(1000);
}

/// Long enough for it to be parked, if that were allowed.
inline void stay(const std::function<void()>& use) {
  const size_t before = sessionsSoFar();
  for (int i = 0; i < 3; ++i) {
    nap(120'000);
    use();
  }
  if (currentWay != Way::kDirect) CHECK_EQ(sessionsSoFar(), before);
}

/// The result of a program in such a pool.
struct Outcome {
  int status = 0;
  bool endedInOrder = true;
  size_t sessions = 0;
  size_t killed = 0;
  std::string said;
};

inline Outcome runParked(Way way, const std::function<void()>& program, std::optional<unsigned> killSeed = {}) {
  std::string pattern = (std::filesystem::temp_directory_path() / "millpond-parking-XXXXXX").string();
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  ::setenv("MILLPOND_SOFTGPU_STATE", pattern.c_str(), 1);
  int addresses[2];
  CHECK(::pipe(addresses) == 0);
  std::fflush(nullptr);
  // Before the pool has a thread: the thread sanitizer does not support a child of a process with threads.
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    std::array<char, 128> url{};
    CHECK(::read(addresses[0], url.data(), url.size() - 1) > 0);
    libraryPath() = MILLPOND_CLIENT_LIBRARY;
    directory() = pattern;
    currentWay = way;
    ::setenv("MILLPOND_LOG", "off", 0);
    ::setenv("MILLPOND_CONTROLLER", url.data(), 1);
    ::setenv("MILLPOND_CLAIM", "c", 1);
    ::setenv("MILLPOND_TRANSPORT", way == Way::kTcp ? "tcp" : "shm", 1);
    program();
    std::fflush(nullptr);
    ::_exit(0);
  }
  ParkingPool pool(pattern, killSeed);
  CHECK(::write(addresses[1], pool.url().data(), pool.url().size()) == static_cast<ssize_t>(pool.url().size()));
  for (const int end : addresses) ::close(end);
  Outcome outcome;
  CHECK(::waitpid(child, &outcome.status, 0) == child);
  outcome.endedInOrder = pool.ended(outcome.said);
  outcome.sessions = pool.sessions();
  outcome.killed = pool.killed();
  std::error_code ignored;
  std::filesystem::remove_all(pattern, ignored);
  return outcome;
}

/// The program succeeds over both transports, with at least `sessions` sessions.
inline void runParkedOverBoth(const std::function<void()>& program, size_t sessions) {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    const Outcome outcome = runParked(way, program);
    if (outcome.status != 0 || !outcome.endedInOrder)
      fail(__FILE__, __LINE__, std::string(nameOf(way)) + ":\n" + outcome.said);
    if (outcome.sessions < sessions)
      fail(__FILE__, __LINE__,
           std::string(nameOf(way)) + ": only " + std::to_string(outcome.sessions) + " sessions:\n" + outcome.said);
  }
}

/// Like `everywhere`, with sessions of a pool that parks, at least `sessions` of them.
inline void everywhereParked(const std::function<void()>& program, size_t sessions) {
  CHECK_EQ(runProgram(Way::kDirect, program), 0);
  runParkedOverBoth(program, sessions);
}

}  // namespace millpond::testing
