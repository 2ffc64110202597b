// SPDX-License-Identifier: Apache-2.0
// The outputs of the just-in-time compiler and of the linker, as received.
#pragma once

#include <string_view>

#include "client/call/jit_options.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

/// Passes the outputs in a reply to the program; does nothing without them.
template <typename Reply>
void deliverJit(std::span<const std::byte> answer, const JitOptions& options) {
  cmd::Decoded<Reply> reply;
  if (answer.empty() || !cmd::decode(answer, reply)) return;
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  options.deliver({.threadsPerBlock = reply.fixed.threadsPerBlock,
                   .wallTimeMs = reply.fixed.wallTimeMs,
                   .infoBytes = reply.fixed.infoLogBytes,
                   .errorBytes = reply.fixed.errorLogBytes,
                   .info = text(reply.tail[0]),
                   .error = text(reply.tail[1])});
}

}  // namespace millpond::client
