// SPDX-License-Identifier: Apache-2.0
// The state of the process: whether it is initialised, its session, its devices and contexts.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "client/state/context.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/handshake/snapshot.h"

namespace millpond {
class Session;
}

namespace millpond::client {

/// One for the whole process, created at its first use and never destroyed: other libraries call the driver while the
/// process exits.
///
/// A child that was forked off an initialised process has no CUDA any more: every call in it answers
/// CUDA_ERROR_NOT_INITIALIZED, as on the real driver. A child of a process that had not called cuInit starts from the
/// beginning.
class Client {
 public:
  static Client& instance() {
    // Every call reads this several times.
    if (Client* known = current_.load(std::memory_order_acquire)) [[likely]]
      return *known;
    return first();
  }

  /// The first check of every call except the few that work before cuInit: success, or CUDA_ERROR_NOT_INITIALIZED.
  static CUresult check() {
    return state_.load(std::memory_order_acquire) == State::Ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  }

  /// The following are valid once `check` has succeeded.

  Session& session() { return *session_; }
  const Snapshot& snapshot() const;
  ContextTable& contexts() { return *contexts_; }
  /// Number of devices that the program sees.
  int deviceCount() const { return static_cast<int>(devices_.size()); }
  /// nullptr when there is no such device.
  const DeviceSnapshot* device(CUdevice device) const {
    const auto index = static_cast<size_t>(device);
    return device >= 0 && index < devices_.size() ? devices_[index] : nullptr;
  }

  /// Name of the claim to which the process is attached; empty before that, and if a worker was configured. Never
  /// freed.
  const char* claim() const { return knowsErrors() ? claim_.c_str() : ""; }

  /// Name and text of a code as the worker's driver has them; nullptr when it does not know the code, or when the process is
  /// not attached. Lives as long as the process.
  const ErrorText* errorText(CUresult code) const;
  /// Whether `errorText` knows them all.
  bool knowsErrors() const { return state_.load(std::memory_order_acquire) >= State::Attached; }

 private:
  friend struct std::default_delete<Client>;
  friend class Initialisation;
  enum class State { Fresh, Forked, Attached, Ready };

  Client() = default;
  ~Client();
  static Client& first();
  static std::unique_ptr<Client> make();

  static inline std::atomic<Client*> current_{nullptr};
  static inline std::atomic<State> state_{State::Fresh};

  std::unique_ptr<Session> session_;
  std::unique_ptr<ContextTable> contexts_;
  std::vector<const DeviceSnapshot*> devices_;
  std::vector<const ErrorText*> errors_;  ///< by code
  std::string claim_;
};

/// The context for a number in a frame; nullptr for 0 and for one that has ended.
inline Context* contextOf(uint16_t wireContext) noexcept { return Client::instance().contexts().byNumber(wireContext); }

}  // namespace millpond::client
