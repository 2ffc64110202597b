// SPDX-License-Identifier: Apache-2.0
// The address layout of workers.
#include <fstream>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

/// The address above which a program's libraries, stacks and large allocations are.
constexpr uint64_t kTop = 0x7000'0000'0000;

/// Mappings of a process in the address range that programs use for theirs.
std::vector<std::string> mappingsAtTop(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::vector<std::string> found;
  size_t lines = 0;
  for (std::string line; std::getline(maps, line); ++lines) {
    // The kernel maps these in every process: some pages.
    const bool isOfKernel = line.find(" [") != std::string::npos;
    if (!isOfKernel && std::stoull(line, nullptr, 16) >= kTop) found.push_back(line);
  }
  CHECK(lines > 10);
  return found;
}

}  // namespace

TEST("a worker maps nothing where programs have what they may register") {
  std::string directory = (std::filesystem::temp_directory_path() / "millpond-addresses-XXXXXX").string();
  CHECK(::mkdtemp(directory.data()) != nullptr);
  WorkerProcess worker(directory);
  for (const std::string& line : mappingsAtTop(worker.pid())) fail(__FILE__, __LINE__, line);
  ::kill(worker.pid(), SIGKILL);
  std::string said;
  worker.wait(said);
  std::filesystem::remove_all(directory);
}
