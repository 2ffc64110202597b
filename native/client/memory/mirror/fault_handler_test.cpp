// SPDX-License-Identifier: Apache-2.0
// Each case runs in a process of its own: handlers are the whole process's.
#include "client/memory/mirror/fault_handler.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csetjmp>
#include <functional>
#include <thread>

#include "testing/check.h"

namespace millpond::client {
namespace {

constexpr size_t kPage = 4096;

/// Memory that faults until it is served.
std::byte* closedPages(size_t count) {
  void* got = ::mmap(nullptr, count * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(got != MAP_FAILED);
  const auto address = reinterpret_cast<uint64_t>(got);
  FaultHandler::cover(address, address + count * kPage);
  return static_cast<std::byte*>(got);
}

bool openPage(void*, const FaultHandler::Fault& fault) {
  const uint64_t page = fault.address / kPage * kPage;
  return ::mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE) == 0;
}
bool refuse(void*, const FaultHandler::Fault&) { return false; }

/// Exit status of a process that runs this; 1000 + signal if a signal ended it.
int inProcess(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  CHECK_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

sigjmp_buf back;
volatile int caught = 0;
void jumpBack(int, siginfo_t*, void*) {
  caught = caught + 1;
  siglongjmp(back, 1);
}
struct sigaction former;
void forwardToFormer(int signal, siginfo_t* info, void* context) {
  caught = caught + 100;
  if (former.sa_flags & SA_SIGINFO) former.sa_sigaction(signal, info, context);
}
void install(void (*handler)(int, siginfo_t*, void*), struct sigaction* before = nullptr) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, before);
}
void touch(volatile std::byte* at) { *at = std::byte{1}; }
/// Faults that are not ours, in succession at the same place.
int faultsElsewhere(int times) {
  void* closed = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  caught = 0;
  for (int i = 0; i < times; ++i)
    if (sigsetjmp(back, 1) == 0) touch(static_cast<std::byte*>(closed));
  return caught;
}

TEST("touches of many threads are served, and the program goes on where it was") {
  CHECK_EQ(inProcess([] {
             std::byte* pages = closedPages(64);
             if (!FaultHandler::start(&openPage, nullptr)) ::_exit(1);
             std::thread threads[4];
             for (int t = 0; t < 4; ++t)
               threads[t] = std::thread([&, t] {
                 for (int page = 0; page < 64; ++page) touch(pages + page * kPage + static_cast<size_t>(t));
               });
             for (std::thread& thread : threads) thread.join();
             for (int page = 0; page < 64; ++page)
               for (int t = 0; t < 4; ++t)
                 if (pages[page * kPage + static_cast<size_t>(t)] != std::byte{1}) ::_exit(2);
           }),
           0);
}

TEST("other faults go to the program's handler, one set before and one set later") {
  CHECK_EQ(inProcess([] {
             install(&jumpBack);
             std::byte* pages = closedPages(4);
             if (!FaultHandler::start(&openPage, nullptr)) ::_exit(1);
             touch(pages);
             if (faultsElsewhere(3) != 3) ::_exit(2);
             install(&jumpBack);
             FaultHandler::keepInstalled();
             touch(pages + kPage);
             if (faultsElsewhere(3) != 3) ::_exit(3);
           }),
           0);
}

TEST("a handler that passes on what is not its own comes to the one before ours, not back to itself") {
  CHECK_EQ(inProcess([] {
             install(&jumpBack);
             std::byte* pages = closedPages(4);
             if (!FaultHandler::start(&openPage, nullptr)) ::_exit(1);
             install(&forwardToFormer, &former);
             FaultHandler::keepInstalled();
             touch(pages);
             if (faultsElsewhere(1) != 101) ::_exit(2);
           }),
           0);
}

TEST("without a handler of the program's, a fault that is not ours ends it as ever") {
  CHECK_EQ(inProcess([] {
             ::signal(SIGSEGV, SIG_DFL);
             std::byte* pages = closedPages(1);
             if (!FaultHandler::start(&refuse, nullptr)) ::_exit(1);
             touch(pages);
           }),
           1000 + SIGSEGV);
}

TEST("a forked child's faults are its own") {
  CHECK_EQ(inProcess([] {
             ::signal(SIGSEGV, SIG_DFL);
             std::byte* pages = closedPages(2);
             if (!FaultHandler::start(&openPage, nullptr)) ::_exit(1);
             touch(pages);
             const int child = inProcess([&] {
               FaultHandler::abandon();
               touch(pages + kPage);
             });
             if (child != 1000 + SIGSEGV) ::_exit(2);
             touch(pages + kPage);
           }),
           0);
}

}  // namespace
}  // namespace millpond::client
