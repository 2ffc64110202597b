// SPDX-License-Identifier: Apache-2.0
// The driver in several processes of one machine. The program runs itself in other roles, named by its first
// argument.
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "softgpu/driver/tests/loaded_driver.h"

extern char** environ;

namespace millpond::softgpu::testing {
namespace {

constexpr size_t kHeldBytes = size_t{200} << 20;

/// Runs this program in another role; returns its standard output.
class Role {
 public:
  Role(const char* name, std::vector<std::string> environment = {}) {
    configure();
    int ends[2];
    CHECK(::pipe(ends) == 0);
    output_.reset(ends[0]);
    UniqueFd input(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addclose(&actions, output_.get());
    std::vector<char*> variables;
    for (std::string& variable : environment) variables.push_back(variable.data());
    for (char** inherited = environ; *inherited; ++inherited) {
      // For getenv, the first of two assignments counts.
      variables.push_back(*inherited);
    }
    variables.push_back(nullptr);
    std::string self = "/proc/self/exe";
    std::string role = name;
    char* arguments[] = {self.data(), role.data(), nullptr};
    CHECK(::posix_spawn(&pid_, self.c_str(), &actions, nullptr, arguments, variables.data()) == 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~Role() {
    if (pid_ > 0) wait();
  }
  std::string line() {
    std::string text;
    char c = 0;
    while (::read(output_.get(), &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  void kill() { ::kill(pid_, SIGKILL); }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_ = 0;
  UniqueFd output_;
};

void say(const std::string& text) {
  const std::string line = text + "\n";
  CHECK(::write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

std::string uuidOf(int ordinal) {
  OK(CU(cuInit)(0));
  CUuuid uuid;
  OK(CU(cuDeviceGetUuid_v2)(&uuid, ordinal));
  std::string text;
  for (char c : uuid.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += digits;
  }
  return text;
}

void hold() {
  PrimaryContext context;
  CUdeviceptr pointer = 0;
  OK(CU(cuMemAlloc_v2)(&pointer, kHeldBytes));
  say("held");
  while (true) ::pause();
}

TEST("memory that one process holds is missing to the others until it dies") {
  PrimaryContext context;
  CHECK_EQ(freeBytes(), kMemoryBytes);
  Role holder("hold");
  CHECK_EQ(holder.line(), std::string("held"));
  CHECK_EQ(freeBytes(), kMemoryBytes - kHeldBytes);
  CUdeviceptr pointer = 0;
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2)(&pointer, kHeldBytes));
  {
    PrimaryContext other(1);
    CHECK_EQ(freeBytes(), kMemoryBytes);
  }
  holder.kill();
  holder.wait();
  CHECK_EQ(freeBytes(), kMemoryBytes);
  OK(CU(cuMemAlloc_v2)(&pointer, kHeldBytes));
  OK(CU(cuMemFree_v2)(pointer));
}

TEST("another seed makes other devices with memory of their own") {
  const std::string here = uuidOf(0);
  CHECK(here != uuidOf(1));
  Role same("uuid");
  CHECK_EQ(same.line(), here);
  Role other("uuid", {"MILLPOND_SOFTGPU_SEED=elsewhere"});
  CHECK(other.line() != here);
  PrimaryContext context;
  Role holder("hold", {"MILLPOND_SOFTGPU_SEED=elsewhere"});
  CHECK_EQ(holder.line(), std::string("held"));
  CHECK_EQ(freeBytes(), kMemoryBytes);
  holder.kill();
}

TEST("a wrong environment fails cuInit, and none at all is no device") {
  Role wrong("init", {"MILLPOND_SOFTGPU_MEMORY=plenty"});
  CHECK_EQ(wrong.line(), std::to_string(CUDA_ERROR_INVALID_VALUE));
  Role none("init", {"MILLPOND_SOFTGPU_DEVICES=0"});
  CHECK_EQ(none.line(), std::to_string(CUDA_ERROR_NO_DEVICE));
  Role unwritable("init", {"MILLPOND_SOFTGPU_STATE=/proc/nothing"});
  CHECK_EQ(unwritable.line(), std::to_string(CUDA_ERROR_OPERATING_SYSTEM));
}

TEST("a child of fork cannot use its parent's driver") {
  Role forker("fork");
  CHECK_EQ(forker.line(), std::to_string(CUDA_ERROR_NOT_INITIALIZED));
  CHECK_EQ(forker.wait(), 0);
}

TEST("a process may end with work under way") {
  Role leaver("leave");
  CHECK_EQ(leaver.wait(), 0);
}

void forkAfterInit() {
  OK(CU(cuInit)(0));
  const pid_t pid = ::fork();
  if (pid == 0) {
    int count = 0;
    say(std::to_string(CU(cuDeviceGetCount)(&count)));
    ::_exit(0);
  }
  CHECK(::waitpid(pid, nullptr, 0) == pid);
}

void leaveBusy() {
  OK(CU(cuInit)(0));
  CUcontext context = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
  CUdeviceptr pointer = 0;
  OK(CU(cuMemAlloc_v2)(&pointer, kHeldBytes));
  for (int i = 0; i < 50; ++i) OK(CU(cuMemsetD8Async)(pointer, 1, kHeldBytes / 8, nullptr));
}

}  // namespace

int runRole(std::string_view role) {
  // A failed check of the parent must not leave this process behind.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (role == "hold") hold();
  if (role == "uuid") say(uuidOf(0));
  if (role == "init") say(std::to_string(CU(cuInit)(0)));
  if (role == "fork") forkAfterInit();
  if (role == "leave") leaveBusy();
  return 0;
}

}  // namespace millpond::softgpu::testing

int main(int argc, char** argv) {
  if (argc > 1) return millpond::softgpu::testing::runRole(argv[1]);
  return millpond::testing::run(argc, argv);
}
