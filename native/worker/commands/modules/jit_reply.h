// SPDX-License-Identifier: Apache-2.0
// Output of the driver's compiler and linker, as replies.
#pragma once

#include "worker/core/session_core.h"
#include "worker/images/jit_options.h"

namespace millpond::worker {

template <typename R>
void replyJit(SessionCore& session, const JitOptions& options) {
  session.reply(R{.threadsPerBlock = options.threadsPerBlock(),
                  .wallTimeMs = options.wallTimeMs(),
                  .infoLogBytes = options.infoBytes(),
                  .errorLogBytes = options.errorBytes()},
                options.info(), options.error());
}

}  // namespace millpond::worker
