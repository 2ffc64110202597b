// SPDX-License-Identifier: Apache-2.0
#include "client/memory/data_scans.h"

#include <algorithm>

#include "client/memory/named_places.h"

namespace millpond::client {

DataScans::Scan::Scan(DataScans& scans, uint64_t address, std::span<const std::byte> data, size_t pieceBytes)
    : scans_(scans) {
  if (!scans.memory_.hasLocal()) [[likely]]
    return;
  // std::make_shared needs a part of the C++ library that throws.
  state_.reset(new State());
  state_->address = address;
  state_->data = data;
  state_->pieceBytes = pieceBytes;
  state_->isDone.resize((data.size() + pieceBytes - 1) / pieceBytes);
  const std::lock_guard lock(scans.mutex_);
  scans.states_.push_back(state_);
}

DataScans::Scan::~Scan() {
  if (!state_) return;
  const std::lock_guard lock(scans_.mutex_);
  scans_.states_.remove(state_);
}

std::vector<uint64_t> DataScans::Scan::finish() {
  if (!state_) return {};
  for (size_t piece = 0; piece < state_->isDone.size(); ++piece) {
    bool isDone = false;
    {
      const std::lock_guard lock(state_->mutex);
      isDone = state_->isDone[piece];
    }
    if (!isDone) scans_.lookAt(*state_, piece);
  }
  const std::lock_guard lock(state_->mutex);
  return std::move(state_->found);
}

void DataScans::look(std::span<const std::byte> piece) {
  std::shared_ptr<State> state;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(states_.begin(), states_.end(), [&](const auto& each) {
      return piece.data() >= each->data.data() && piece.data() < each->data.data() + each->data.size();
    });
    if (found == states_.end()) return;
    state = *found;
  }
  lookAt(*state, static_cast<size_t>(piece.data() - state->data.data()) / state->pieceBytes);
}

void DataScans::lookAt(State& state, size_t piece) const {
  const size_t at = piece * state.pieceBytes;
  // A word at the end of the piece may have its last bytes in the next one.
  const size_t bytes = std::min(state.pieceBytes + sizeof(uint64_t) - 1, state.data.size() - at);
  std::vector<uint64_t> found;
  memory_.eachLocalAddress(state.address + at, state.data.subspan(at, bytes),
                           [&](uint64_t each) { addPlaces(found, each); });
  const std::lock_guard lock(state.mutex);
  state.isDone[piece] = true;
  state.found.insert(state.found.end(), found.begin(), found.end());
}

}  // namespace millpond::client
