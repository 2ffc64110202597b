// SPDX-License-Identifier: Apache-2.0
// The commands that memory and the bounds of streams send on behalf of a driver call. The call implements this: it adds its
// thread, its context and the rules of all calls, and these layers need not know it.
#pragma once

#include <cstdint>

#include "cuda/gen/cuda_api.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

class CommandSink {
 public:
  /// Number of the context that owns objects created by the call.
  virtual uint16_t context() const noexcept = 0;
  /// Makes the call act in another context.
  virtual void useContext(uint16_t context) const noexcept = 0;
  /// Number of the stream's context.
  virtual uint16_t streamContext(uint64_t stream) const noexcept = 0;
  /// Whether work for the stream is executed, not recorded.
  virtual bool isDoneNow(uint64_t stream) const noexcept = 0;

  virtual CUresult post(const cmd::MemFree& command) const noexcept = 0;
  virtual CUresult wait(const cmd::MemAlloc& command, cmd::MemAllocReply& reply) const noexcept = 0;
  virtual CUresult wait(const cmd::HostAlloc& command, cmd::HostAllocReply& reply) const noexcept = 0;
  virtual CUresult wait(const cmd::HostFree& command, cmd::HostFreeReply& reply) const noexcept = 0;
  virtual CUresult wait(const cmd::HostMirror& command, cmd::HostMirrorReply& reply) const noexcept = 0;
  virtual CUresult wait(const cmd::LandingAwait& command, cmd::LandingAwaitReply& reply) const noexcept = 0;
  virtual CUresult wait(const cmd::StreamQuery& command, cmd::StreamQueryReply& reply) const noexcept = 0;
  virtual CUresult wait(const cmd::StreamSync& command, cmd::StreamSyncReply& reply) const noexcept = 0;

 protected:
  ~CommandSink() = default;
};

}  // namespace millpond::client
