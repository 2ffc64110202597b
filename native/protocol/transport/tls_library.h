// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "tls/tls.h"

namespace millpond {

/// Loads libmillpond-tls.so from the folder of this library or program. It stays loaded.
Result<const MillpondTlsFunctions*> tlsLibrary();

}  // namespace millpond
