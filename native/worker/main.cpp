// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string>

#include "base/log.h"
#include "names/readable_name.h"
#include "worker/core/device_output.h"
#include "worker/device/driver.h"
#include "worker/device/probe.h"
#include "worker/device/sanitizer.h"
#include "worker/memory/address_layout.h"
#include "worker/options.h"
#include "worker/process/containment.h"
#include "worker/process/health.h"
#include "worker/process/supervisor.h"

namespace {

int fail(const millpond::Error& error, int status) {
  std::fprintf(stderr, "millpond-worker: %s\n", error.message.c_str());
  return status;
}

std::string folderOf(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

/// Copies lines from standard input to standard output, with mangled names of C++ as in the source. For `millpond trace`,
/// because the program that has a demangler is not installed everywhere.
int demangleLines() {
  for (std::string line; std::getline(std::cin, line);) std::cout << millpond::readableName(line) << '\n';
  return std::cout.flush() ? 0 : 1;
}

/// Opens the gates of the node's devices, while this process still may.
millpond::Result<millpond::worker::gate::Gates> openGates(const millpond::worker::Options& options) {
  using namespace millpond;
  worker::gate::Gates gates(options.gates);
  std::vector<std::string> devices = options.gateDevices;
  if (options.assignment)
    for (const worker::DeviceShare& device : options.assignment->devices) devices.push_back(device.uuid);
  for (const std::string& uuid : devices)
    if (auto made = gates.prepare(uuid); !made) return made.error();
  return gates;
}

/// Drops rights that a worker does not need, before the driver is initialised. Logs protections that this host lacks.
millpond::Status giveUp(const millpond::worker::Options& options, const millpond::worker::DriverLibrary& library) {
  using namespace millpond;
  if (options.user)
    if (auto changed = worker::becomeUser(*options.user); !changed) return changed;
  worker::FileAccess files = worker::systemFiles(options.driver);
  for (const std::string& path : {options.controlPath, options.dataPath, options.peersPath})
    if (!path.empty()) files.write.push_back(folderOf(path));
  if (!options.imageCache.empty()) files.write.push_back(options.imageCache);
  if (!options.cupti.empty()) files.read.push_back(folderOf(options.cupti));
  if (!options.claims.empty()) files.unlisted.push_back(options.claims);
  if (options.assignment && !options.assignment->claimDirectory.empty())
    files.write.push_back(options.assignment->claimDirectory);
  if (library.stateDirectory)
    if (const char* state = library.stateDirectory()) files.write.emplace_back(state);
  if (const char* compiled = std::getenv("CUDA_CACHE_PATH")) files.write.emplace_back(compiled);
  if (const char* findings = std::getenv("MILLPOND_SOFTGPU_FINDINGS")) files.write.push_back(folderOf(findings));
  auto missing = worker::contain(files);
  if (!missing) return missing.error();
  for (const std::string& each : *missing) log(LogLevel::Debug, "not contained in full: %s", each.c_str());
  return Done{};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace millpond;
  if (argc == 2 && std::strcmp(argv[1], "--demangle") == 0) return demangleLines();
  worker::leaveTopToPrograms(argv);
  auto options = worker::Options::parse(std::span(argv, static_cast<size_t>(argc)));
  if (!options) return fail(options.error(), 2);
  std::signal(SIGPIPE, SIG_IGN);
  if (const char* key = std::getenv("MILLPOND_CONTROL_KEY")) options->controlKey = key;
  ::unsetenv("MILLPOND_CONTROL_KEY");
  if (const char* cupti = std::getenv("MILLPOND_CUPTI")) options->cupti = cupti;
  auto library = worker::openDriver(options->driver);
  if (!library) return fail(library.error(), 1);
  auto gates = openGates(*options);
  if (!gates) return fail(gates.error(), 1);
  if (options->isContained)
    if (auto given = giveUp(*options, *library); !given) return fail(given.error(), 1);
  options->countsDriverMemory = !library->stateDirectory;
  const worker::Driver& driver = library->driver;
  if (auto started = worker::startDriver(driver, options->driver); !started) return fail(started.error(), 1);
  if (options->probe) {
    auto text = worker::probeDevices(driver);
    if (!text) return fail(text.error(), 1);
    std::printf("%s\n", text->c_str());
    return 0;
  }
  if (options->costs) {
    auto text = worker::measureDevices(driver);
    if (!text) return fail(text.error(), 1);
    std::printf("%s\n", text->c_str());
    return 0;
  }
  if (options->health) {
    worker::Nvml nvml;
    const Status watched = worker::watchHealth(driver, nvml);
    return watched ? 0 : fail(watched.error(), 1);
  }
  const bool isContained = options->isContained;
  auto output = worker::DeviceOutput::capture();
  if (!output) return fail(output.error(), 1);
  worker::Supervisor supervisor(driver, std::move(*options), *output, std::move(*gates));
  if (auto ready = supervisor.prepare(); !ready) return fail(ready.error(), 1);
  if (isContained)
    if (auto sealed = worker::seal(); !sealed) return fail(sealed.error(), 1);
  const int status = supervisor.run();
  worker::Sanitizer(driver).ended();
  // The driver is not torn down: a kernel that never ends would keep this process alive, and with it the memory of a
  // client that is long gone. The driver frees everything when the process ends.
  std::_Exit(status);
}
