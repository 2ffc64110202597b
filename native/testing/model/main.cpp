// SPDX-License-Identifier: Apache-2.0
// Runs random programs on the libcuda.so.1 that it finds: model [--seed S] [--first N] [--programs N] [--without FEATURE,…]
// [--seconds N] [--only OP,…] [--patience SECONDS] [--pause MS] [--describe | --check]. It prints "program N" before each, and ends with 0 when all compute
// what the oracle says, 1 after a difference or an error, 2 when it cannot run, 3 when a program hangs. --only takes the
// named ops of one program, and ends with 77 when they are not a valid program: their outcome is open, or they hang by
// themselves.
// --check runs nothing.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "testing/model/generator.h"
#include "testing/model/oracle.h"
#include "testing/model/order.h"
#include "testing/model/print.h"
#include "testing/model/runner.h"

using namespace millpond::model;

namespace {

struct Options {
  uint64_t seed = 1;
  uint64_t first = 0;
  uint64_t programs = 1;
  int64_t seconds = 0;  ///< after which no other program begins; 0: none
  unsigned patienceSeconds = 20;
  unsigned pauseMs = 0;  ///< between two programs, in which the session may be parked
  Features without;
  std::optional<std::vector<size_t>> only;
  bool describe = false;
  bool check = false;
};

std::vector<std::string> parts(const char* list) {
  std::vector<std::string> all;
  std::istringstream stream(list);
  for (std::string each; std::getline(stream, each, ',');) all.push_back(each);
  return all;
}

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "model: %s\n", why.c_str());
  std::exit(2);
}

Options readOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) refuse(name + " needs a value");
      return argv[++i];
    };
    if (name == "--seed") {
      options.seed = std::strtoull(value(), nullptr, 10);
    } else if (name == "--first") {
      options.first = std::strtoull(value(), nullptr, 10);
    } else if (name == "--programs") {
      options.programs = std::strtoull(value(), nullptr, 10);
    } else if (name == "--patience") {
      options.patienceSeconds = static_cast<unsigned>(std::strtoul(value(), nullptr, 10));
    } else if (name == "--pause") {
      options.pauseMs = static_cast<unsigned>(std::strtoul(value(), nullptr, 10));
    } else if (name == "--seconds") {
      options.seconds = std::strtoll(value(), nullptr, 10);
    } else if (name == "--without") {
      for (const std::string& each : parts(value())) {
        if (std::find(kFeatures.begin(), kFeatures.end(), each) == kFeatures.end())
          refuse("there is no feature " + each);
        options.without.insert(each);
      }
    } else if (name == "--only") {
      options.only.emplace();
      for (const std::string& each : parts(value())) options.only->push_back(std::strtoull(each.c_str(), nullptr, 10));
    } else if (name == "--describe") {
      options.describe = true;
    } else if (name == "--check") {
      options.check = true;
    } else {
      refuse("there is no option " + name);
    }
  }
  return options;
}

std::atomic<int64_t> deadlineMs = 0;

int64_t nowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const Program* underWay = nullptr;

/// Ends the process when a program takes too long.
void watch(unsigned patienceSeconds) {
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const int64_t deadline = deadlineMs.load(std::memory_order_acquire);
    if (deadline == 0 || nowMs() < deadline) continue;
    std::printf("hang: not done after %u s; the program %s\n", patienceSeconds, stage.load());
    for (uint8_t i = 0; i < underWay->threads; ++i) {
      const size_t at = progress[i];
      std::printf("  %s\n",
                  at < underWay->ops.size()
                      ? ("at op " + std::to_string(at) + ", " + describe(*underWay, underWay->ops[at])).c_str()
                      : "a thread is done");
    }
    std::fflush(stdout);
    ::_exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = readOptions(argc, argv);
  bool isStarted = false;
  const int64_t endMs = options.seconds == 0 ? INT64_MAX : nowMs() + 1000 * options.seconds;
  for (uint64_t number = options.first; number < options.first + options.programs && nowMs() < endMs; ++number) {
    Program program = generate(options.seed, number, options.without);
    if (options.only) {
      std::vector<Op> ops;
      for (const size_t each : *options.only)
        if (each < program.ops.size()) ops.push_back(program.ops[each]);
      program.ops = std::move(ops);
    }
    size_t at = 0;
    if (const Refusal refusal = check(program, &at); refusal != Refusal::none) {
      // An invalid op in a complete program is a bug of the generator.
      std::printf("program %llu is none: op %zu, reason %d\n", static_cast<unsigned long long>(number), at,
                  static_cast<int>(refusal));
      return options.only ? 77 : 2;
    }
    if (options.describe) {
      std::printf("%zu\n%s", program.ops.size(), printProgram(program).c_str());
      continue;
    }
    if (options.check) continue;
    std::printf("program %llu\n", static_cast<unsigned long long>(number));
    std::fflush(stdout);
    if (!isStarted) {
      startDriver(!options.without.contains("peer"));
      std::thread(watch, options.patienceSeconds).detach();
      isStarted = true;
    } else if (options.pauseMs != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options.pauseMs));
    }
    const Outcome outcome = evaluate(program);
    underWay = &program;
    deadlineMs = nowMs() + int64_t{1000} * options.patienceSeconds;
    run(program, outcome);
    deadlineMs = 0;
  }
  return 0;
}
