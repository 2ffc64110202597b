// SPDX-License-Identifier: Apache-2.0
// Common code of the programs in CUDA C++. A program prints its observations, line by line, and nothing that depends on
// time, addresses, processes or the amount of free memory; it ends with status 0.
//
// Each file ends in one PROGRAM, which enters itself into a list, so that all files of a form make one binary, which
// runs the program that its first argument names.
#pragma once

#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

/// Defines a program; its body follows in braces.
#define PROGRAM(name, summary)                                              \
  static void program();                                                    \
  static const conformance::Entry this_program{(name), (summary), program}; \
  static void program()

/// Ends the program with a message when a runtime call fails that must succeed.
#define CHECK(call) conformance::check((call), #call, __LINE__)
/// Prints the call and the name of its result.
#define SEE(call) conformance::see((call), #call)

namespace conformance {

struct Entry {
  const char* name;
  const char* summary;
  void (*run)();
  const Entry* next;
  Entry(const char* name_, const char* summary_, void (*run_)());
};

inline const Entry* first = nullptr;
inline Entry::Entry(const char* name_, const char* summary_, void (*run_)())
    : name(name_), summary(summary_), run(run_), next(first) {
  first = this;
}

/// The part of a program that this process plays: "" for the whole, otherwise the argument of child().
inline const char* part = "";
inline const char* name = "";

/// Prints a line.
__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(stdout);
}

inline void check(cudaError_t status, const char* call, int line) {
  if (status == cudaSuccess) return;
  say("line %d: %s failed: %s (%s)", line, call, cudaGetErrorName(status), cudaGetErrorString(status));
  std::exit(1);
}

inline cudaError_t see(cudaError_t status, const char* call) {
  say("%s: %s", call, cudaGetErrorName(status));
  return status;
}

/// Ends the program because the device lacks something that it needs.
[[noreturn]] inline void skip(const char* why) {
  say("skipped: %s", why);
  std::exit(0);
}

inline int attribute(cudaDeviceAttr which) {
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

/// Ends the program on devices that are older than compute capability major.minor.
inline void needCapability(int major, int minor) {
  const int capability = attribute(cudaDevAttrComputeCapabilityMajor) * 10 + attribute(cudaDevAttrComputeCapabilityMinor);
  if (capability >= major * 10 + minor) return;
  static char why[80];
  std::snprintf(why, sizeof why, "needs compute capability %d.%d", major, minor);
  skip(why);
}

/// Runs another part of this program in a separate process, and prints how that ended.
inline int child(const char* which) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "conformance", name, which, static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) {
    say("cannot run the part %s", which);
    std::exit(1);
  }
  if (WIFSIGNALED(status)) say("%s: ended by signal %d", which, WTERMSIG(status));
  else say("%s: exit status %d", which, WEXITSTATUS(status));
  return status;
}

inline bool isPart(const char* which) { return std::strcmp(part, which) == 0; }

/// FNV-1a over bytes, for a result that is too long to print.
inline uint64_t digest(const void* data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
  return hash;
}

/// Device memory for `count` values, freed at the end of its scope; copies are synchronous.
template <class T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) { CHECK(cudaMalloc(&data_, count * sizeof(T))); }
  explicit Device(const std::vector<T>& values) : Device(values.size()) { put(values); }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  T* get() const { return data_; }
  operator T*() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  void put(const std::vector<T>& values) {
    CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  void clear() { CHECK(cudaMemset(data_, 0, bytes())); }
  std::vector<T> take() const {
    std::vector<T> values(count_);
    CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

/// Prints values on one line after a title.
template <class T>
void list(const char* title, const std::vector<T>& values) {
  std::printf("%s:", title);
  for (const T& value : values) {
    if constexpr (std::is_floating_point_v<T>) std::printf(" %.9g", static_cast<double>(value));
    else if constexpr (std::is_signed_v<T>) std::printf(" %lld", static_cast<long long>(value));
    else std::printf(" %llu", static_cast<unsigned long long>(value));
  }
  std::putchar('\n');
  std::fflush(stdout);
}

inline int start(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Entry* entry = first; entry; entry = entry->next) std::printf("%s\t%s\n", entry->name, entry->summary);
    return 0;
  }
  for (const Entry* entry = first; entry && argc > 1; entry = entry->next) {
    if (std::strcmp(entry->name, argv[1]) != 0) continue;
    name = entry->name;
    part = argc > 2 ? argv[2] : "";
    entry->run();
    return 0;
  }
  std::fprintf(stderr, "usage: %s PROGRAM | --list\n", argv[0]);
  return 2;
}

}  // namespace conformance

using conformance::say;

__attribute__((weak)) int main(int argc, char** argv) { return conformance::start(argc, argv); }
