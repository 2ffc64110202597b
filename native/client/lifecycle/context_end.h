// SPDX-License-Identifier: Apache-2.0
// Ends everything that lives in a context, here and at the worker.
#pragma once

#include "client/state/context.h"

namespace millpond::client {

/// As ContextTable::OnEnd.
void endContext(const Context& context);

}  // namespace millpond::client
