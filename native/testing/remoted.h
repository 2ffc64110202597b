// SPDX-License-Identifier: Apache-2.0
// Programs on the driver API as they meet it: the same case on the software GPU's own driver, through Millpond over
// shared memory, and over TCP; each in a process of its own, with a worker of its own.
#pragma once

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "testing/check.h"

namespace millpond::testing {

enum class Way { kDirect, kSharedMemory, kTcp };
inline constexpr std::array kWays = {Way::kDirect, Way::kSharedMemory, Way::kTcp};
inline const char* nameOf(Way way) {
  constexpr std::array names = {"direct", "shared memory", "TCP"};
  return names[static_cast<size_t>(way)];
}

/// In the case's process: the library under test.
inline std::string& libraryPath() {
  static std::string path;
  return path;
}
inline void* driverSymbol(const char* name) {
  static void* const library = [] {
    void* opened = ::dlopen(libraryPath().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened) fail(__FILE__, __LINE__, ::dlerror());
    return opened;
  }();
  void* found = ::dlsym(library, name);
  if (!found) fail(__FILE__, __LINE__, std::string("no symbol ") + name);
  return found;
}

/// A worker process with one session on two devices of the software GPU, 64 MiB of each.
class WorkerProcess {
 public:
  static constexpr unsigned kDevices = 2;

  /// `more`: additional command-line arguments. `linkSecret`: the secret of its TCP connections; empty: plain text.
  /// `parkAfterMs`: how long a session is idle before it is parked; 0: never. `claimHostBytes`: host memory of the
  /// claim; 0: half of the host's.
  explicit WorkerProcess(const std::string& directory, const std::vector<std::string>& more = {},
                         const std::string& linkSecret = "", unsigned parkAfterMs = 0, uint64_t claimHostBytes = 0)
      : directory_(directory) {
    int output[2];
    CHECK(::pipe(output) == 0);
    const std::string assign = assignment(linkSecret, parkAfterMs, claimHostBytes);
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(output[1], 2);
      ::close(output[0]);
      ::close(output[1]);
      ::setenv("MILLPOND_LOG", "info", 1);
      std::vector<std::string> arguments = {MILLPOND_WORKER_PROGRAM,
                                            "--driver",
                                            MILLPOND_SOFTGPU_LIBRARY,
                                            "--id",
                                            "w",
                                            "--control",
                                            directory_ + "/control",
                                            "--data",
                                            directory_ + "/data",
                                            "--tcp",
                                            "127.0.0.1",
                                            "--assign",
                                            assign};
      arguments.insert(arguments.end(), more.begin(), more.end());
      std::vector<char*> pointers;
      for (std::string& each : arguments) pointers.push_back(each.data());
      pointers.push_back(nullptr);
#ifdef __SANITIZE_THREAD__
      // It runs without randomised addresses, so programs and workers would use the same ones: where one registers
      // memory, the other must have nothing mapped. With a larger stack limit, workers use lower addresses.
      const rlimit stack{rlim_t{4} << 30, RLIM_INFINITY};
      ::setrlimit(RLIMIT_STACK, &stack);
#endif
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ::close(output[1]);
    log_ = ::fdopen(output[0], "r");
    // It reports when it is ready.
    char line[1024];
    while (port_.empty() && std::fgets(line, sizeof line, log_)) {
      said_ += line;
      if (const char* at = std::strstr(line, "TCP port ")) port_ = std::to_string(std::atoi(at + 9));
    }
    if (port_.empty()) fail(__FILE__, __LINE__, "the worker did not start:\n" + said_);
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess() { std::fclose(log_); }

  std::string address(Way way) const {
    return way == Way::kTcp ? "tcp:127.0.0.1:" + port_ : "unix:" + directory_ + "/data";
  }
  uint16_t port() const { return static_cast<uint16_t>(std::atoi(port_.c_str())); }
  pid_t pid() const { return pid_; }
  /// Waits for its end; its output from the start is in `said`. Returns 0 for a session that ended properly.
  int wait(std::string& said) {
    char line[1024];
    while (std::fgets(line, sizeof line, log_)) said_ += line;
    int status = 0;
    CHECK(::waitpid(pid_, &status, 0) == pid_);
    said = said_;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static std::string assignment(const std::string& linkSecret, unsigned parkAfterMs, uint64_t claimHostBytes) {
    std::string devices;
    for (const std::string& uuid : deviceUuids())
      devices +=
          (devices.empty() ? "" : ",") + ("{\"uuid\":\"" + uuid) + "\",\"memoryBytes\":67108864,\"computePercent\":50}";
    return "{\"session\":\"s\",\"ticket\":\"t\",\"expires\":4000000000,\"linkSecret\":\"" + linkSecret +
           "\",\"tenant\":\"" + std::string(64, 'a') + "\",\"parkAfterMs\":" + std::to_string(parkAfterMs) +
           (claimHostBytes == 0 ? "" : ",\"claimHostBytes\":" + std::to_string(claimHostBytes)) + ",\"devices\":[" +
           devices + "]}";
  }

 public:
  static std::vector<std::string> deviceUuids() {
    const std::string command =
        std::string(MILLPOND_WORKER_PROGRAM) + " --driver " + MILLPOND_SOFTGPU_LIBRARY + " --probe";
    FILE* probe = ::popen(command.c_str(), "r");
    CHECK(probe != nullptr);
    std::string text;
    std::array<char, 4096> piece;
    while (const size_t n = std::fread(piece.data(), 1, piece.size(), probe)) text.append(piece.data(), n);
    CHECK(::pclose(probe) == 0);
    std::vector<std::string> uuids;
    for (size_t at = text.find("\"uuid\":\""); at != std::string::npos; at = text.find("\"uuid\":\"", at + 1))
      uuids.push_back(text.substr(at + 8, text.find('"', at + 8) - at - 8));
    return uuids;
  }

 private:
  const std::string directory_;
  pid_t pid_ = -1;
  FILE* log_ = nullptr;
  std::string port_;
  std::string said_;
};

/// Runs a program to its end, in a process in which the library finds its device, or its worker. Returns the exit status.
inline int runProgram(Way way, const std::function<void()>& program,
                      const std::vector<std::string>& workerArguments = {}, uint64_t claimHostBytes = 0) {
  std::string pattern = (std::filesystem::temp_directory_path() / "millpond-remoted-XXXXXX").string();
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  ::setenv("MILLPOND_SOFTGPU_STATE", pattern.c_str(), 1);
  ::setenv("MILLPOND_SOFTGPU_SEED", "test", 1);
  ::setenv("MILLPOND_SOFTGPU_DEVICES", "2", 1);
  ::setenv("MILLPOND_SOFTGPU_MEMORY", "64Mi", 1);
  std::unique_ptr<WorkerProcess> worker;
  if (way != Way::kDirect) worker = std::make_unique<WorkerProcess>(pattern, workerArguments, "", 0, claimHostBytes);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    libraryPath() = way == Way::kDirect ? MILLPOND_SOFTGPU_LIBRARY : MILLPOND_CLIENT_LIBRARY;
    // Many calls fail on purpose.
    ::setenv("MILLPOND_LOG", "off", 0);
    if (worker) {
      ::setenv("MILLPOND_WORKER", worker->address(way).c_str(), 1);
      ::setenv("MILLPOND_TICKET", "t", 1);
    }
    program();
    std::fflush(nullptr);
    ::_exit(0);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (worker) {
    std::string said;
    const int ended = worker->wait(said);
    if (ended != 0 || result != 0) std::fprintf(stderr, "%s", said.c_str());
    if (ended != 0 && result == 0) result = ended;
  }
  std::error_code ignored;
  std::filesystem::remove_all(pattern, ignored);
  return result;
}

/// The program ends with status 0 in either case.
inline void everywhere(const std::function<void()>& program) {
  for (const Way way : kWays) {
    const int status = runProgram(way, program);
    if (status != 0) fail(__FILE__, __LINE__, std::string(nameOf(way)) + ": status " + std::to_string(status));
  }
}

}  // namespace millpond::testing

/// A driver function of the library under test, with the type from the header.
#define CU(name) reinterpret_cast<decltype(&::name)>(::millpond::testing::driverSymbol(#name))
#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define FAILS(code, call) CHECK_EQ(call, code)

namespace millpond::testing {

/// A module with a kernel that stores one word.
inline constexpr char kStoreWord[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 value) {
  .reg .u32 %r<2>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  ld.param.u32 %r1, [value];
  st.global.u32 [%p1], %r1;
  ret;
}
)";

/// Starts the driver and makes the primary context of the first device current.
inline void begin() {
  OK(CU(cuInit)(0));
  CUcontext context = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
}

}  // namespace millpond::testing
