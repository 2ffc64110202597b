// SPDX-License-Identifier: Apache-2.0
// The configuration of the software devices, from the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "softgpu/ptx/inspection.h"

namespace millpond::softgpu {

/// See MILLPOND_SOFTGPU_OVERHEAD.
struct Overhead {
  uint64_t context = 0;
  uint64_t prints = 0;
  uint64_t allocates = 0;
};

/// - MILLPOND_SOFTGPU_DEVICES: number of devices, 0 to 64; 2 by default.
/// - MILLPOND_SOFTGPU_MEMORY: memory of each device, 64Mi to 1Ti; 4Gi by default. A bare number is in bytes;
///   the units Ki, Mi, Gi, Ti, K, M, G, T are all powers of two.
/// - MILLPOND_SOFTGPU_SEED: from which the UUIDs are made; by default what tells this machine from others.
///   Nodes of one machine need different seeds, or they show the same devices.
/// - MILLPOND_SOFTGPU_STATE: directory of the files in which processes share the use of memory; by default
///   $XDG_RUNTIME_DIR/millpond-softgpu, without that variable /tmp/millpond-softgpu-<uid>. A device of which there is a
///   file `<UUID without dashes>.lost` there has fallen off its bus, for as long as the file is there.
/// - MILLPOND_SOFTGPU_SANITIZE: what programs are checked for, of memcheck, racecheck, initcheck and synccheck, with a
///   comma between; nothing by default.
/// - MILLPOND_SOFTGPU_FINDINGS: file that gets what the checks find, a line of JSON for each; needed with them.
/// - MILLPOND_SOFTGPU_QUEUE: how many launches, copies and fills a stream takes before a call for the next one waits, from 1
///   on; 1021 by default, as on an H200.
/// - MILLPOND_SOFTGPU_OVERHEAD: memory that a driver takes of a device beside what programs ask for, as a card's does:
///   `context=524Mi,printf=64Mi,malloc=138Mi`, each for a context, the last two from the first module on whose kernels call
///   these functions; nothing by default.
/// - MILLPOND_SOFTGPU_CHAOS: a number; with it, work runs in any order that CUDA allows, after random delays. For tests.
struct Configuration {
  unsigned devices = 2;
  uint64_t memoryBytes = uint64_t{4} << 30;
  std::string seed;
  std::string stateDirectory;
  ptx::Checks checks;
  std::string findings;
  size_t queueDepth = 1021;  ///< of each stream
  Overhead overhead;
  std::optional<uint64_t> chaos;  ///< seed
};

/// Reads the environment. Fails with the variable's name and its valid values.
Result<Configuration> readConfiguration();

/// The directory of the devices' state, according to the environment and the present user.
std::string stateDirectory();

/// Creates the directory of the devices' state if it is missing. Fails if it does not belong to this user.
Status makeStateDirectory(const std::string& path);

/// The bytes of a size like "512Mi"; a bare number is in bytes.
Result<uint64_t> parseSize(const std::string& text);

}  // namespace millpond::softgpu
