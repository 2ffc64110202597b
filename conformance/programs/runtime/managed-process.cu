// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <csetjmp>
#include <csignal>

#include "conformance.h"

static __global__ void twice(int* data, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] *= 2;
}

constexpr int kMany = 200000;
constexpr int kFew = 4000;

static int* managed(int n) {
  int* data = nullptr;
  CHECK(cudaMallocManaged(&data, static_cast<size_t>(n) * sizeof(int)));
  for (int i = 0; i < n; ++i) data[i] = i;
  return data;
}

static void turn(int* data, int n) {
  twice<<<(n + 255) / 256, 256>>>(data, n);
  CHECK(cudaDeviceSynchronize());
}

static sigjmp_buf back;
static int caught = 0;
static void onFault(int, siginfo_t*, void*) {
  ++caught;
  siglongjmp(back, 1);
}
static void install() {
  struct sigaction action = {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}
static void faultOften(void* at) {
  for (int i = 0; i < 3; ++i)
    if (sigsetjmp(back, 1) == 0) *static_cast<volatile int*>(at) = 1;
}

static void handlers(const char* when) {
  void* closed = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  caught = 0;
  faultOften(closed);
  faultOften(reinterpret_cast<void*>(16));
  say("%s: caught %d faults", when, caught);
  munmap(closed, 4096);
}

// System calls read and write managed memory like other memory.
static void systemCalls() {
  int* data = managed(kFew);
  turn(data, kFew);
  int ends[2];
  if (pipe(ends) != 0) return;
  const size_t bytes = kFew * sizeof(int);
  const ssize_t written = write(ends[1], data, bytes);
  turn(data, kFew);
  const ssize_t taken = read(ends[0], data, bytes / 2);
  say("written %zd, read %zd: %d %d", written, taken, data[100], data[kFew - 1]);
  turn(data, kFew);
  say("and on the device: %d %d", data[100], data[kFew - 1]);
  close(ends[0]);
  close(ends[1]);
  CHECK(cudaFree(data));
}

// The first use of large managed memory is often to read a file into it.
static void file() {
  FILE* temporary = std::tmpfile();
  std::vector<int> values(kMany);
  for (int i = 0; i < kMany; ++i) values[static_cast<size_t>(i)] = 3 * i;
  std::fwrite(values.data(), sizeof(int), values.size(), temporary);
  std::rewind(temporary);
  int* data = nullptr;
  CHECK(cudaMallocManaged(&data, kMany * sizeof(int)));
  const size_t got = std::fread(data, sizeof(int), kMany, temporary);
  std::fclose(temporary);
  turn(data, kMany);
  long long sum = 0;
  for (int i = 0; i < kMany; ++i) sum += data[i];
  say("read from a file: %zu, on the device: %lld", got, sum);
  CHECK(cudaFree(data));
}

static void childBeside() {
  int* data = managed(kMany);
  turn(data, kMany);
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) _exit(7);
  int status = 0;
  waitpid(pid, &status, 0);
  turn(data, kMany);
  say("a child ended with %d, and here: %d %d", WEXITSTATUS(status), data[1], data[kMany - 1]);
  CHECK(cudaFree(data));
}

PROGRAM("managed-process", "managed memory beside what a process does: handlers of faults, system calls, files, children") {
  if (!conformance::attribute(cudaDevAttrManagedMemory)) conformance::skip("no managed memory");
  if (conformance::isPart("fault")) {
    int* data = managed(kMany);
    turn(data, kMany);
    *reinterpret_cast<volatile int*>(24) = data[1];
    return;
  }
  install();
  handlers("before");
  int* data = managed(kMany);
  turn(data, kMany);
  long long sum = 0;
  for (int i = 0; i < kMany; ++i) sum += data[i];
  say("touched under a handler: %lld", sum);
  handlers("with managed memory");
  install();
  turn(data, kMany);
  data[7] = 1;
  sum = 0;
  for (int i = 0; i < kMany; ++i) sum += data[i];
  say("under a handler that was set later: %lld", sum);
  handlers("after that");
  CHECK(cudaFree(data));
  systemCalls();
  file();
  childBeside();
  signal(SIGSEGV, SIG_DFL);
  conformance::child("fault");
}
