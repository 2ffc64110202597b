// SPDX-License-Identifier: Apache-2.0
// The beginning and the end of the process as a user of GPUs: cuInit attaches it, and connects the parts of this library with
// the session.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/process/client.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client {

struct AttachConfig;

/// One for the process; a forked child has another one.
class Initialisation {
 public:
  static Initialisation& instance();

  /// cuInit: attaches, unless that is already done. A failure is written to standard error, and the call may be
  /// repeated.
  CUresult initialise();

  /// The result of cuDriverGetVersion, which programs query before cuInit: the version of the worker's driver, for
  /// which the process attaches if necessary; if that fails, the version of the API from which this library was
  /// generated.
  int driverVersion();

  /// The process is ending, so its worker need not wait for it to reconnect.
  static void leave();

 private:
  explicit Initialisation(Client& client) : client_(client) {}
  static void afterForkInChild();

  // All of these are called with mutex_ held.
  CUresult attachOnce();
  CUresult fail(CUresult code, const std::string& message);
  std::unique_ptr<Session> connect(const AttachConfig& config, std::string& problem);
  void adopt(std::unique_ptr<Session> session, const std::vector<uint16_t>& visible, const AttachConfig& config);
  void connectParts(Session& session, const AttachConfig& config);

  static inline std::atomic<Initialisation*> current_{nullptr};

  Client& client_;
  std::mutex mutex_;
  std::optional<CUresult> failureForInit_;  ///< of an attempt for cuDriverGetVersion, which cuInit reports
  std::string lastMessage_;
};

}  // namespace millpond::client
