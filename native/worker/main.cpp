// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "worker/address_layout.h"
#include "worker/device_output.h"
#include "worker/driver.h"
#include "worker/health.h"
#include "worker/options.h"
#include "worker/probe.h"
#include "worker/sanitizer.h"
#include "worker/supervisor.h"

namespace {

int fail(const millpond::Error& error, int status) {
  std::fprintf(stderr, "millpond-worker: %s\n", error.message.c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace millpond;
  worker::leaveTopToPrograms(argv);
  auto options = worker::Options::parse(std::span(argv, static_cast<size_t>(argc)));
  if (!options) return fail(options.error(), 2);
  std::signal(SIGPIPE, SIG_IGN);
  auto driver = worker::loadDriver(options->driver);
  if (!driver) return fail(driver.error(), 1);
  if (options->probe) {
    auto text = worker::probeDevices(*driver);
    if (!text) return fail(text.error(), 1);
    std::printf("%s\n", text->c_str());
    return 0;
  }
  if (options->health) {
    worker::Nvml nvml;
    const Status watched = worker::watchHealth(*driver, nvml);
    return watched ? 0 : fail(watched.error(), 1);
  }
  auto output = worker::DeviceOutput::capture();
  if (!output) return fail(output.error(), 1);
  worker::Supervisor supervisor(*driver, std::move(*options), *output);
  if (auto ready = supervisor.prepare(); !ready) return fail(ready.error(), 1);
  const int status = supervisor.run();
  worker::Sanitizer(*driver).ended();
  // Nothing of the driver is torn down: a kernel that never ends would keep this process, and with it the memory of a
  // client that is long gone. The driver takes everything back with the process.
  std::_Exit(status);
}
