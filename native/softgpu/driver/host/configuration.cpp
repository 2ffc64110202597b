// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/host/configuration.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

namespace millpond::softgpu {
namespace {

constexpr unsigned kMostDevices = 64;
constexpr uint64_t kLeastMemory = uint64_t{64} << 20;
constexpr uint64_t kMostMemory = uint64_t{1} << 40;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

std::optional<ptx::Checks> parseChecks(std::string_view text) {
  ptx::Checks checks;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view name = text.substr(0, comma);
    if (name == "memcheck")
      checks.memory = true;
    else if (name == "racecheck")
      checks.races = true;
    else if (name == "initcheck")
      checks.initialisation = true;
    else if (name == "synccheck")
      checks.barriers = true;
    else
      return std::nullopt;
    if (comma == text.size()) return checks;
    text.remove_prefix(comma + 1);
  }
}

/// "context=524Mi,printf=64Mi"
std::optional<Overhead> parseOverhead(std::string_view text) {
  Overhead overhead;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    uint64_t* const member = name == "context"  ? &overhead.context
                             : name == "printf" ? &overhead.prints
                             : name == "malloc" ? &overhead.allocates
                                                : nullptr;
    if (!member || equals == part.size()) return std::nullopt;
    const Result<uint64_t> bytes = parseSize(std::string(part.substr(equals + 1)));
    if (!bytes || *bytes > kMostMemory) return std::nullopt;
    *member = *bytes;
    if (comma == text.size()) return overhead;
    text.remove_prefix(comma + 1);
  }
}

// The identity of this machine: its machine ID, or else its host name.
std::string machineIdentity() {
  std::ifstream file("/etc/machine-id");
  std::string identity;
  if (file && std::getline(file, identity) && !identity.empty()) return identity;
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0) return name;
  return "localhost";
}

}  // namespace

std::string stateDirectory() {
  if (std::optional<std::string> state = variable("MILLPOND_SOFTGPU_STATE")) return *state;
  if (std::optional<std::string> runtime = variable("XDG_RUNTIME_DIR")) return *runtime + "/millpond-softgpu";
  return "/tmp/millpond-softgpu-" + std::to_string(::getuid());
}

Result<uint64_t> parseSize(const std::string& text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  const Error bad{"\"" + text + "\" is not a size like 512Mi or 4Gi"};
  if (error != std::errc()) return bad;
  std::string_view unit(next, static_cast<size_t>(end - next));
  if (unit.empty()) return number;
  const size_t exponent = std::string_view("KMGT").find(unit.front());
  unit.remove_prefix(1);
  if (exponent == std::string_view::npos || (unit != "" && unit != "i" && unit != "iB" && unit != "B")) return bad;
  const size_t shift = 10 * (exponent + 1);
  if (number > (UINT64_MAX >> shift)) return bad;
  return number << shift;
}

Result<Configuration> readConfiguration() {
  Configuration configuration;
  if (std::optional<std::string> devices = variable("MILLPOND_SOFTGPU_DEVICES")) {
    const char* end = devices->data() + devices->size();
    const auto [next, error] = std::from_chars(devices->data(), end, configuration.devices);
    if (error != std::errc() || next != end || configuration.devices > kMostDevices) {
      return Error{"MILLPOND_SOFTGPU_DEVICES is \"" + *devices + "\"; set it to a number from 0 to " +
                   std::to_string(kMostDevices)};
    }
  }
  if (std::optional<std::string> memory = variable("MILLPOND_SOFTGPU_MEMORY")) {
    Result<uint64_t> bytes = parseSize(*memory);
    if (!bytes) return Error{"MILLPOND_SOFTGPU_MEMORY: " + bytes.error().message};
    if (*bytes < kLeastMemory || *bytes > kMostMemory) {
      return Error{"MILLPOND_SOFTGPU_MEMORY is \"" + *memory + "\"; set it to a size from 64Mi to 1Ti"};
    }
    // Whole pages of the virtual-memory calls, so that all of the memory can be allocated.
    configuration.memoryBytes = *bytes & ~((uint64_t{2} << 20) - 1);
  }
  if (std::optional<std::string> tools = variable("MILLPOND_SOFTGPU_SANITIZE")) {
    std::optional<ptx::Checks> checks = parseChecks(*tools);
    std::optional<std::string> findings = variable("MILLPOND_SOFTGPU_FINDINGS");
    if (!checks)
      return Error{"MILLPOND_SOFTGPU_SANITIZE is \"" + *tools +
                   "\"; set it to names of memcheck, racecheck, initcheck and synccheck, with a comma between"};
    if (!findings) return Error{"MILLPOND_SOFTGPU_SANITIZE is set, and MILLPOND_SOFTGPU_FINDINGS names no file"};
    configuration.checks = *checks;
    configuration.findings = *findings;
  }
  if (std::optional<std::string> queue = variable("MILLPOND_SOFTGPU_QUEUE")) {
    const char* end = queue->data() + queue->size();
    const auto [next, error] = std::from_chars(queue->data(), end, configuration.queueDepth);
    if (error != std::errc() || next != end || configuration.queueDepth == 0)
      return Error{"MILLPOND_SOFTGPU_QUEUE is \"" + *queue + "\"; set it to a number from 1 on"};
  }
  if (std::optional<std::string> overhead = variable("MILLPOND_SOFTGPU_OVERHEAD")) {
    std::optional<Overhead> sizes = parseOverhead(*overhead);
    if (!sizes)
      return Error{"MILLPOND_SOFTGPU_OVERHEAD is \"" + *overhead +
                   "\"; set it to sizes of context, printf and malloc, like context=524Mi,printf=64Mi"};
    configuration.overhead = *sizes;
  }
  if (std::optional<std::string> chaos = variable("MILLPOND_SOFTGPU_CHAOS")) {
    uint64_t seed = 0;
    const char* end = chaos->data() + chaos->size();
    const auto [next, error] = std::from_chars(chaos->data(), end, seed);
    if (error != std::errc() || next != end)
      return Error{"MILLPOND_SOFTGPU_CHAOS is \"" + *chaos + "\"; set it to a number, the seed of the disorder"};
    configuration.chaos = seed;
  }
  configuration.seed = variable("MILLPOND_SOFTGPU_SEED").value_or(machineIdentity());
  configuration.stateDirectory = stateDirectory();
  return configuration;
}

// Only this user's own directory is accepted: another user could fill or falsify the ledgers of a shared one.
Status makeStateDirectory(const std::string& path) {
  // If its parents cannot be created, creating the directory itself reports why.
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error{"cannot make the directory " + path + ": " + std::strerror(errno) +
                 "; set MILLPOND_SOFTGPU_STATE to one that can be written to"};
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    return Error{path + " is not a directory of this user; set MILLPOND_SOFTGPU_STATE to one that is"};
  }
  return Done{};
}

}  // namespace millpond::softgpu
