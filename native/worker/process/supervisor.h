// SPDX-License-Identifier: Apache-2.0
// The worker's main thread: serves the agent's connection and the listening sockets, and controls the life of the one
// session.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "protocol/handshake/process_watch.h"
#include "worker/claim/claim_accounts.h"
#include "worker/device/driver.h"
#include "worker/device/session_devices.h"
#include "worker/ipc/peer_sharing.h"
#include "worker/options.h"
#include "worker/process/acceptor.h"
#include "worker/process/control_channel.h"
#include "worker/session/executor.h"

namespace millpond::worker {

class Supervisor {
 public:
  /// `output`: output of kernels. `gates`: of the node's devices.
  Supervisor(const Driver& driver, Options options, DeviceOutput& output, gate::Gates gates);

  /// Creates the sockets and initialises the device.
  Status prepare();
  /// Serves until the session is over; returns the process's exit status.
  int run();

 private:
  enum class State { kWarm, kAssigned, kConnected, kClosing };
  static const char* name(State state);

  void greetAgent();
  void handle(const Json& message);
  void assign(Assignment assignment);
  void resize(const Json& message);
  /// Applies all of it or nothing.
  Status applySizes(Resizing wanted);
  Welcome authorize(const Hello& hello, bool remote);
  /// The session that a reconnecting client names, and its proof that the session is its own.
  Welcome judgeReturn(const Resumption& resumption, Welcome out);
  Welcome judgeLane(const LaneClaim& claim, bool remote, Welcome out);
  void admit(Acceptor::Admitted admitted);
  /// Tells a client over TCP how to reconnect, and how both ends detect the end of the other's process.
  void grantReturn(const Acceptor::Admitted& admitted, Welcome& welcome);
  uint64_t memoryUsed() const;
  /// The charge for a device: the memory that the session holds, and its context unless that is beside the claim's
  /// limit.
  uint64_t memoryUsed(size_t device) const;
  void sendStats();
  void watchClient();
  /// Whether the session outlives its connection: then the link handles reconnection, and only the end of the client's
  /// process, where it can be detected, ends the session.
  bool outlivesConnection() const { return graceSeconds_ != 0; }
  void finish(const std::string& reason, bool ok, bool isParked = false);

  const Driver& driver_;
  Options options_;
  DeviceOutput& output_;
  gate::Gates gates_;
  ControlChannel control_;
  Acceptor acceptor_;
  SessionDevices devices_;
  std::unique_ptr<ClaimAccounts> accounts_;  ///< of the session
  ImageCache imageCache_;
  State state_ = State::kWarm;
  Assignment assignment_;
  std::unique_ptr<Sharing> sharing_;
  Snapshot snapshot_;
  std::unique_ptr<Executor> executor_;
  std::thread thread_;
  UniqueFd finished_;  ///< readable when the executor has ended
  Executor::End end_{"", true};
  uint32_t graceSeconds_ = 0;  ///< as granted
  SessionSecret secret_{};
  uint32_t lastAttempt_ = 0;  ///< for the client to reconnect
  ProcessWatch clientProcess_;
  uint64_t reportedMemory_ = 0;  ///< a change is worth reporting before the next second
  bool clientGone_ = false;
  bool over_ = false;
  int exitStatus_ = 0;
};

}  // namespace millpond::worker
