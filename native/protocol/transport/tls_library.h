// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "tls/tls.h"

namespace millpond {

/// Loads libmillpond-tls.so, which lies beside the library or program that this is part of. It stays loaded.
Result<const MillpondTlsFunctions*> tlsLibrary();

}  // namespace millpond
