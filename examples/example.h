// SPDX-License-Identifier: Apache-2.0
// What all examples share: checked CUDA calls, the command line, and main().
//
// An example ends with EXAMPLE("name", ...), which enters it into a list. main() is weak and the list is one object
// however many files are linked, so `nvcc vectoradd.cu` makes a program of one example and `nvcc *.cu` makes one
// program of all of them, which picks by its own name or by its first argument.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

/// Ends the program with a message when a CUDA runtime call fails.
#define CHECK(call) example::check((call), #call, __FILE__, __LINE__)

/// Enters `run` into the list of examples; `usage` names its arguments, `summary` says what it does.
#define EXAMPLE(name, usage, summary, run) static const example::Entry this_example{name, usage, summary, run}

namespace example {

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s failed: %s (%s, %d)\n", file, line, call, cudaGetErrorString(status),
               cudaGetErrorName(status), static_cast<int>(status));
  std::exit(1);
}

/// The command line of one example. Options for all: --device N, --repeat N, --time.
class Arguments {
 public:
  Arguments(const char* program, int argc, char** argv) : program_(program) {
    for (int i = 0; i < argc; ++i) {
      if (std::strncmp(argv[i], "--", 2) != 0) {
        sizes_.push_back(number(argv[i], argv[i]));
      } else if (std::strcmp(argv[i], "--time") == 0) {
        time_ = true;
      } else if (i + 1 == argc) {
        refuse(std::string(argv[i]) + " needs a value or is unknown");
      } else if (std::strcmp(argv[i], "--device") == 0) {
        device_ = number(argv[i], argv[i + 1]), ++i;
      } else if (std::strcmp(argv[i], "--repeat") == 0) {
        repeat_ = number(argv[i], argv[i + 1]), ++i;
      } else if (std::strcmp(argv[i], "--out") == 0) {
        out_ = argv[++i];
      } else {
        refuse(std::string("unknown option ") + argv[i]);
      }
    }
  }

  /// The positional number `index`, or `fallback` when it is not given; ends the program when it is above `largest`.
  size_t size(size_t index, size_t fallback, size_t largest) const {
    const size_t value = index < sizes_.size() ? sizes_[index] : fallback;
    if (value < 1 || value > largest) {
      refuse("argument " + std::to_string(index + 1) + " is " + std::to_string(value) + ", must be 1 to " +
             std::to_string(largest));
    }
    return value;
  }
  /// The file of --out, or `fallback`.
  std::string out(const char* fallback) const { return out_.empty() ? fallback : out_; }
  int device() const { return static_cast<int>(device_); }
  size_t repeat() const { return repeat_; }
  bool time() const { return time_; }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    std::fprintf(stderr, "%s: %s\n", program_, why.c_str());
    std::exit(2);
  }
  size_t number(const char* name, const char* text) const {
    char* end = nullptr;
    const unsigned long long value = std::strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value > 0x7fffffffull) {
      refuse(std::string(name) + ": '" + text + "' is not a number from 0 to 2147483647");
    }
    return static_cast<size_t>(value);
  }

  const char* program_;
  std::vector<size_t> sizes_;
  std::string out_;
  size_t device_ = 0;
  size_t repeat_ = 1;
  bool time_ = false;
};

/// One example of the list. `run` prints its result and returns whether it was right.
struct Entry {
  const char* name;
  const char* usage;
  const char* summary;
  bool (*run)(const Arguments&);
  const Entry* next;

  Entry(const char* name_, const char* usage_, const char* summary_, bool (*run_)(const Arguments&));
};

inline const Entry* first = nullptr;

inline Entry::Entry(const char* name_, const char* usage_, const char* summary_, bool (*run_)(const Arguments&))
    : name(name_), usage(usage_), summary(summary_), run(run_), next(nullptr) {
  const Entry** last = &first;
  while (*last) last = const_cast<const Entry**>(&(*last)->next);
  *last = this;
}

inline const Entry* find(const char* name) {
  for (const Entry* entry = first; entry; entry = entry->next) {
    if (std::strcmp(entry->name, name) == 0) return entry;
  }
  return nullptr;
}

inline void help(const char* program, FILE* to) {
  std::fprintf(to, "usage: %s %s[ARGUMENT]... [--device N] [--repeat N] [--time]\n", program,
               first->next ? "EXAMPLE " : "");
  for (const Entry* entry = first; entry; entry = entry->next) {
    std::fprintf(to, "  %-12s %-26s %s\n", entry->name, entry->usage, entry->summary);
  }
}

/// Runs one example as often as it was asked to; its standard output depends on nothing but its arguments.
inline int run(const Entry& entry, int argc, char** argv) {
  const Arguments arguments(entry.name, argc, argv);
  CHECK(cudaSetDevice(arguments.device()));
  for (size_t i = 0; i < arguments.repeat(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    const bool right = entry.run(arguments);
    std::fflush(stdout);
    if (!right) return 1;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (arguments.time()) std::fprintf(stderr, "%s: %.3f ms\n", entry.name, took.count());
  }
  return 0;
}

inline int start(int argc, char** argv) {
  const char* slash = std::strrchr(argv[0], '/');
  const char* program = slash ? slash + 1 : argv[0];
  const Entry* entry = first->next ? find(program) : first;
  int used = 1;
  if (!entry && argc > 1) {
    entry = find(argv[1]);
    used = 2;
  }
  if (argc > 1 && std::strcmp(argv[argc - 1], "--help") == 0) {
    help(program, stdout);
    return 0;
  }
  if (!entry) {
    help(program, stderr);
    return 2;
  }
  return run(*entry, argc - used, argv + used);
}

}  // namespace example

__attribute__((weak)) int main(int argc, char** argv) { return example::start(argc, argv); }
