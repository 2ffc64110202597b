// SPDX-License-Identifier: Apache-2.0
// Programs as processes: they fork, load and unload libraries, have many threads and signal handlers, and end in
// unusual places.
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

/// Fills memory on a stream of its own, and checks it.
void work(unsigned value) {
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, 4096));
  OK(CU(cuMemsetD32Async)(memory, value, 1024, stream));
  std::vector<unsigned> back(1024);
  OK(CU(cuMemcpyDtoHAsync_v2)(back.data(), memory, 4096, stream));
  OK(CU(cuStreamSynchronize)(stream));
  CHECK(back == std::vector<unsigned>(1024, value));
  OK(CU(cuMemFree_v2)(memory));
  OK(CU(cuStreamDestroy_v2)(stream));
}

int inFork(const std::function<void()>& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::atomic<unsigned> signals{0};

}  // namespace

TEST("a child of a program that has not begun begins by itself") {
  everywhere([] {
    CHECK(driverSymbol("cuInit") != nullptr);
    CHECK_EQ(inFork([] {
               begin();
               work(1);
             }),
             0);
  });
}

TEST("a child of a program that has begun has no CUDA, and the program goes on") {
  everywhere([] {
    begin();
    work(2);
    CHECK_EQ(inFork([] {
               FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuInit)(0));
               FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuCtxSynchronize)());
               CUdeviceptr memory = 0;
               FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuMemAlloc_v2)(&memory, 16));
             }),
             0);
    work(3);
  });
}

TEST("a library that was closed is there again when it is opened") {
  everywhere([] {
    begin();
    work(4);
    void* again = ::dlopen(libraryPath().c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK(again != nullptr);
    CHECK_EQ(::dlclose(again), 0);
    CHECK_EQ(::dlclose(again), 0);  // the test's own, too
    again = ::dlopen(libraryPath().c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK(again != nullptr);
    work(5);
  });
}

TEST("five hundred threads at once") {
  everywhere([] {
    begin();
    CUcontext context = nullptr;
    OK(CU(cuCtxGetCurrent)(&context));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 500; ++i)
      threads.emplace_back([context, i] {
        OK(CU(cuCtxSetCurrent)(context));
        work(i);
      });
    for (std::thread& thread : threads) thread.join();
    work(6);
  });
}

TEST("signals of the program interrupt nothing") {
  everywhere([] {
    struct sigaction action {};
    action.sa_handler = [](int) { signals.fetch_add(1, std::memory_order_relaxed); };
    CHECK_EQ(::sigaction(SIGALRM, &action, nullptr), 0);  // without SA_RESTART
    const itimerval often{{0, 500}, {0, 500}};
    CHECK_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
    begin();
    for (unsigned i = 0; i < 300 || signals.load() < 20; ++i) work(i);
    const itimerval never{};
    CHECK_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
    struct sigaction now {};
    CHECK_EQ(::sigaction(SIGALRM, nullptr, &now), 0);
    CHECK(now.sa_handler == action.sa_handler);
  });
}

TEST("a program ends from any thread, whatever the others are doing") {
  everywhere([] {
    begin();
    CUcontext context = nullptr;
    OK(CU(cuCtxGetCurrent)(&context));
    std::atomic<unsigned> busy{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i)
      threads.emplace_back([context, &busy] {
        CU(cuCtxSetCurrent)(context);
        for (;;) {
          CU(cuCtxSynchronize)();
          busy.fetch_add(1);
        }
      });
    while (busy.load() < 100) std::this_thread::yield();
    std::thread([] { std::exit(0); }).join();
  });
}

TEST("a program that is killed takes nobody with it") {
  for (const Way way : {Way::kSharedMemory, Way::kTcp})
    CHECK_EQ(runProgram(way,
                        [] {
                          begin();
                          work(7);
                          ::raise(SIGKILL);
                        }),
             128 + SIGKILL);
}
