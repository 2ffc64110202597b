// SPDX-License-Identifier: Apache-2.0
#include "client/process/client.h"

#include <algorithm>

#include "protocol/client/session_client.h"

namespace millpond::client {

Client::~Client() = default;

std::unique_ptr<Client> Client::make() { return std::unique_ptr<Client>(new Client()); }

Client& Client::first() {
  std::unique_ptr<Client> made = make();
  Client* expected = nullptr;
  if (current_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *expected;
}

const Snapshot& Client::snapshot() const { return session_->snapshot(); }

const ErrorText* Client::errorText(CUresult code) const {
  if (!knowsErrors()) return nullptr;
  const auto found = std::lower_bound(errors_.begin(), errors_.end(), code,
                                      [](const ErrorText* text, CUresult wanted) { return text->code < wanted; });
  return found != errors_.end() && (*found)->code == code ? *found : nullptr;
}

}  // namespace millpond::client
