// SPDX-License-Identifier: Apache-2.0
// Restores a parked session from its journal, with the images that this side has kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "client/addresses/retained_files.h"
#include "client/images/retained_images.h"
#include "protocol/client/session_client.h"
#include "protocol/commands/command_subject.h"

namespace millpond::client {

/// Restores in `fresh` the state of the session that left the journal.
Status restore(Session& fresh, std::span<const std::byte> journal, const RetainedImages& images,
               const RetainedFiles& files);

/// The program destroys these objects of a parked session: they are not restored. Returns false, and does nothing, if
/// it is not parked.
bool endWhileParked(Session& session, std::span<const Subject> subjects);

}  // namespace millpond::client
