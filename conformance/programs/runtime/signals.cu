// SPDX-License-Identifier: Apache-2.0
#include <sys/time.h>

#include <csignal>

#include "conformance.h"

static __global__ void add(int* cell, int value) { *cell += value; }

static volatile sig_atomic_t alarms = 0, faults = 0;
static void onAlarm(int) { alarms = alarms + 1; }
static void onFault(int) {
  faults = faults + 1;
  signal(SIGSEGV, SIG_DFL);
  _exit(33);
}

PROGRAM("signals", "handlers of the program stay its own, and calls go on when a signal comes") {
  if (conformance::isPart("fault")) {
    signal(SIGSEGV, onFault);
    conformance::Device<int> cell(1);
    cell.clear();
    *reinterpret_cast<volatile int*>(8) = 1;
    return;
  }
  struct sigaction before[4], after[4];
  const int watched[4] = {SIGSEGV, SIGINT, SIGTERM, SIGPIPE};
  for (int i = 0; i < 4; ++i) sigaction(watched[i], nullptr, &before[i]);
  conformance::Device<int> cell(1);
  cell.clear();
  add<<<1, 1>>>(cell, 1);
  CHECK(cudaDeviceSynchronize());
  int changed = 0;
  for (int i = 1; i < 4; ++i) {
    sigaction(watched[i], nullptr, &after[i]);
    changed += before[i].sa_handler != after[i].sa_handler;
  }
  say("handlers of interruptions changed: %d", changed);
  struct sigaction action = {};
  action.sa_handler = onAlarm;  // without SA_RESTART: system calls are interrupted
  sigaction(SIGALRM, &action, nullptr);
  itimerval timer = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  std::vector<char> host(1 << 20, 1);
  conformance::Device<char> memory(1 << 20);
  for (int i = 0; i < 100; ++i) {
    add<<<1, 1>>>(cell, 1);
    CHECK(cudaMemcpy(memory, host.data(), host.size(), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(host.data(), memory, host.size(), cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
  }
  timer = {};
  setitimer(ITIMER_REAL, &timer, nullptr);
  say("counted %d under alarms, some came: %s", cell.take()[0], alarms > 0 ? "yes" : "no");
  sigset_t all, now;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  add<<<1, 1>>>(cell, 1);
  CHECK(cudaDeviceSynchronize());
  sigprocmask(SIG_BLOCK, nullptr, &now);
  say("with all signals blocked: %d, still blocked: %s", cell.take()[0], sigismember(&now, SIGUSR1) ? "yes" : "no");
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  conformance::child("fault");
}
