// SPDX-License-Identifier: Apache-2.0
// MILLPOND_LOG with a file: every call of a program, in lines of its own.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

struct Calls {
  std::vector<std::string> headers;
  std::vector<std::string> lines;

  bool has(const std::string& text) const {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(text) != line.npos; });
  }
  size_t count(const std::string& text) const {
    return static_cast<size_t>(
        std::ranges::count_if(lines, [&](const std::string& line) { return line.find(text) != line.npos; }));
  }
};

Calls read(const std::string& path) {
  Calls calls;
  std::ifstream file(path);
  CHECK(file.good());
  for (std::string line; std::getline(file, line);)
    (line.starts_with("# ") ? calls.headers : calls.lines).push_back(line);
  return calls;
}

/// A program through Millpond, over both transports, with a folder for its traces; `check` examines them.
void traced(const std::string& pattern, const std::function<void()>& program,
            const std::function<void(const std::string& folder)>& check, int status = 0) {
  for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
    std::string folder = (std::filesystem::temp_directory_path() / "millpond-trace-XXXXXX").string();
    CHECK(::mkdtemp(folder.data()) != nullptr);
    CHECK_EQ(runProgram(way,
                        [&] {
                          ::setenv("MILLPOND_LOG", ("off," + folder + "/" + pattern).c_str(), 1);
                          program();
                        }),
             status);
    check(folder);
    std::filesystem::remove_all(folder);
  }
}

}  // namespace

TEST("calls, their arguments, results and waits") {
  traced(
      "calls",
      [] {
        begin();
        CUdeviceptr memory = 0;
        OK(CU(cuMemAlloc_v2)(&memory, 4096));
        unsigned word = 5;
        OK(CU(cuMemcpyHtoD_v2)(memory, &word, sizeof word));
        OK(CU(cuMemcpyDtoH_v2)(&word, memory, sizeof word));
        FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemAlloc_v2)(nullptr, 4096));
        CUexternalMemory imported = nullptr;
        FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuImportExternalMemory)(&imported, nullptr));
        OK(CU(cuMemFree_v2)(memory));
      },
      [](const std::string& folder) {
        const Calls calls = read(folder + "/calls");
        CHECK_EQ(calls.headers.size(), 1u);
        CHECK(calls.headers[0].starts_with("# millpond trace 1, process "));
        CHECK_EQ(calls.lines.size(), 9u);
        CHECK(calls.lines[0].ends_with(" cuInit(Flags=0x0) = CUDA_SUCCESS"));
        CHECK(calls.has(" cuMemAlloc_v2(dptr=&0x"));
        CHECK(calls.has(", bytesize=4096) = CUDA_SUCCESS"));
        CHECK(calls.has("ByteCount=4) = CUDA_SUCCESS; waits 1"));
        CHECK(calls.has(" cuMemAlloc_v2(dptr=null, bytesize=4096) = CUDA_ERROR_INVALID_VALUE"));
        CHECK(calls.has(" cuImportExternalMemory(extMem_out=0x"));
      });
}

TEST("the failure of an earlier call is told from the call's own") {
  traced(
      "calls",
      [] {
        begin();
        CUstream stream = nullptr;
        OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        // Not something that the client knows: the driver refuses it, and the next call reports that.
        const uint64_t word = 7;
        OK(CU(cuMemcpyHtoDAsync_v2)(0x1000, &word, sizeof word, stream));
        FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamSynchronize)(stream));
        OK(CU(cuStreamSynchronize)(stream));
      },
      [](const std::string& folder) {
        const Calls calls = read(folder + "/calls");
        CHECK(calls.lines.back().find(" cuStreamSynchronize(") != std::string::npos);
        CHECK_EQ(calls.count("= CUDA_ERROR_INVALID_VALUE"), 1u);
        CHECK_EQ(calls.count("; of an earlier call"), 1u);
      });
}

TEST("lines of many threads are whole, and none is missing") {
  constexpr int kThreads = 16;
  constexpr int kCalls = 200;
  traced(
      "calls",
      [] {
        begin();
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t)
          threads.emplace_back([] {
            for (int i = 0; i < kCalls; ++i) {
              CUcontext current = nullptr;
              OK(CU(cuCtxGetCurrent)(&current));
            }
          });
        for (std::thread& each : threads) each.join();
      },
      [](const std::string& folder) {
        const Calls calls = read(folder + "/calls");
        CHECK_EQ(calls.lines.size(), static_cast<size_t>(3 + kThreads * kCalls));
        std::set<std::string> numbers;
        for (const std::string& line : calls.lines) {
          std::istringstream words(line);
          std::string start, took, thread, call;
          words >> start >> took >> thread >> call;
          CHECK(took.starts_with("+"));
          CHECK(call.starts_with("cu"));
          CHECK(line.ends_with(" = CUDA_SUCCESS"));
          numbers.insert(thread);
        }
        CHECK_EQ(numbers.size(), static_cast<size_t>(kThreads + 1));
      });
}

TEST("forked children have files of their own, or lines of their own in one") {
  for (const std::string pattern : {"%p", "calls"}) {
    traced(
        pattern,
        [] {
          begin();
          for (int i = 0; i < 3; ++i) {
            const pid_t child = ::fork();
            CHECK(child >= 0);
            if (child == 0) {
              FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuInit)(0));
              ::_exit(0);
            }
            int status = 0;
            CHECK(::waitpid(child, &status, 0) == child && status == 0);
          }
          OK(CU(cuCtxSynchronize)());
        },
        [&](const std::string& folder) {
          size_t files = 0, headers = 0, own = 0, children = 0;
          for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            const Calls calls = read(entry.path().string());
            ++files;
            headers += calls.headers.size();
            own += calls.count("= CUDA_SUCCESS");
            children += calls.count("cuInit(Flags=0x0) = CUDA_ERROR_NOT_INITIALIZED");
          }
          CHECK_EQ(files, pattern == "%p" ? 4u : 1u);
          CHECK_EQ(headers, 4u);
          CHECK_EQ(own, 4u);
          CHECK_EQ(children, 3u);
        });
  }
}

TEST("a program that is killed leaves every call that returned") {
  traced(
      "calls",
      [] {
        begin();
        OK(CU(cuCtxSynchronize)());
        ::raise(SIGKILL);
      },
      [](const std::string& folder) {
        const Calls calls = read(folder + "/calls");
        CHECK_EQ(calls.lines.size(), 4u);
        CHECK(calls.lines.back().find(" cuCtxSynchronize() = CUDA_SUCCESS; waits 1") != std::string::npos);
      },
      128 + SIGKILL);
}

TEST("a program that closes the file, and opens another one in its place, finds nothing of the trace in it") {
  traced(
      "calls",
      [] {
        begin();
        // The descriptor of the trace is found by the file that it refers to.
        const std::string trace = std::string(std::getenv("MILLPOND_LOG")).substr(4);
        const std::string own = trace + ".own";
        FILE* mine = std::fopen(own.c_str(), "w");
        CHECK(mine != nullptr);
        for (int fd = 3; fd < 256; ++fd) {
          std::error_code none;
          if (std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none) != trace) continue;
          CHECK(::dup2(::fileno(mine), fd) == fd);
        }
        OK(CU(cuCtxSynchronize)());
      },
      [](const std::string& folder) {
        CHECK_EQ(read(folder + "/calls").lines.size(), 3u);
        CHECK_EQ(std::filesystem::file_size(folder + "/calls.own"), 0u);
      });
}

TEST("a file that cannot be made is no reason to fail") {
  traced(
      "no/such/folder/calls", [] { begin(); },
      [](const std::string& folder) { CHECK(std::filesystem::is_empty(folder)); });
}
