// SPDX-License-Identifier: Apache-2.0
// A session that was parked is made again from its journal, with the images that this side has kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "client/addresses/kept_files.h"
#include "client/images/kept_images.h"
#include "protocol/client/session_client.h"
#include "protocol/commands/command_subject.h"

namespace millpond::client {

/// Makes `fresh` like the session that left the journal.
Status restore(Session& fresh, std::span<const std::byte> journal, const KeptImages& images, const KeptFiles& files);

/// The program ends these things of a session that is parked: they are not made again. False: it is not parked, and nothing
/// has happened.
bool endWhileParked(Session& session, std::span<const Subject> subjects);

}  // namespace millpond::client
