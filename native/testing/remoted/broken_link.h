// SPDX-License-Identifier: Apache-2.0
// A worker, a program, and a link between them that can break.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "testing/remoted.h"
#include "testing/servers/cutting_proxy.h"

namespace millpond::testing {

/// Messages between the program and the test.
struct Shared {
  std::atomic<uint32_t> cuts{0};
  std::atomic<uint32_t> step{0};
};

inline Shared& makeShared() {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return *::new (memory) Shared();
}

/// A worker, a link to it that can break, and a program at the other end.
class Broken {
 public:
  explicit Broken(uint32_t seed = 1, const std::vector<std::string>& workerArguments = {},
                  const std::string& linkSecret = "")
      : shared(makeShared()), linkSecret_(linkSecret) {
    CHECK(::mkdtemp(directory_.data()) != nullptr);
    ::setenv("MILLPOND_SOFTGPU_STATE", directory_.c_str(), 1);
    ::setenv("MILLPOND_SOFTGPU_SEED", "test", 1);
    ::setenv("MILLPOND_SOFTGPU_DEVICES", "2", 1);
    ::setenv("MILLPOND_SOFTGPU_MEMORY", "64Mi", 1);
    worker = std::make_unique<WorkerProcess>(directory_, workerArguments, linkSecret);
    proxy = std::make_unique<CuttingProxy>(seed, shared.cuts);
  }
  ~Broken() {
    proxy.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
    ::munmap(&shared, 4096);
  }
  Broken(const Broken&) = delete;
  Broken& operator=(const Broken&) = delete;

  /// Starts the program, and then the link, which is cut that number of times.
  void start(uint32_t cuts, const char* graceSeconds, const std::function<void()>& program) {
    std::fflush(nullptr);
    const std::string log = logPath();
    child_ = ::fork();
    CHECK(child_ >= 0);
    if (child_ == 0) {
      CHECK(std::freopen(log.c_str(), "w", stderr) != nullptr);
      libraryPath() = MILLPOND_CLIENT_LIBRARY;
      ::setenv("MILLPOND_LOG", "error", 1);
      ::setenv("MILLPOND_RECONNECT_GRACE", graceSeconds, 1);
      ::setenv("MILLPOND_WORKER", ("tcp:127.0.0.1:" + std::to_string(proxy->port())).c_str(), 1);
      ::setenv("MILLPOND_TICKET", "t", 1);
      ::setenv("MILLPOND_LINK_SECRET", linkSecret_.c_str(), 1);
      program();
      std::fflush(nullptr);
      std::exit(0);
    }
    proxy->start(worker->port(), cuts);
  }
  pid_t child() const { return child_; }
  /// Waits for the program; its output is in `said`.
  int wait(std::string& said) {
    int status = 0;
    CHECK(::waitpid(child_, &status, 0) == child_);
    if (FILE* log = std::fopen(logPath().c_str(), "r")) {
      char line[1024];
      while (std::fgets(line, sizeof line, log)) said += line;
      std::fclose(log);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void waitForStep(uint32_t step) const {
    while (shared.step.load() < step) ::usleep(1000);
  }

  Shared& shared;
  std::unique_ptr<WorkerProcess> worker;
  std::unique_ptr<CuttingProxy> proxy;

 private:
  std::string logPath() const { return directory_ + "/program.log"; }

  const std::string linkSecret_;
  std::string directory_ = (std::filesystem::temp_directory_path() / "millpond-links-XXXXXX").string();
  pid_t child_ = -1;
};

inline size_t timesIn(const std::string& text, const std::string& what) {
  size_t times = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

}  // namespace millpond::testing
