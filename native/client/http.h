// SPDX-License-Identifier: Apache-2.0
// The little HTTP/1.1 that the client library needs to talk to the controller and to agents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millpond::client {

/// A base URL taken apart: `http://host[:port][/path]`.
struct Url {
  std::string host;  ///< IPv6 addresses without brackets
  uint16_t port = 80;
  std::string path;  ///< without a slash at the end; often empty

  /// Refuses other schemes, user names, queries, fragments and characters that do not belong in a URL. https
  /// is refused with a message of its own: this client cannot do TLS.
  static Result<Url> parse(std::string_view text);
  /// `host:port`, the host in brackets where it needs them.
  std::string authority() const;
};

struct HttpAnswer {
  int status = 0;  ///< 200…599
  std::string body;
};

struct HttpLimits {
  int connectMs = 5'000;  ///< for the connection to each address of the host
  int answerMs = 30'000;  ///< from the connection to the last byte
  size_t bodyBytes = size_t{1} << 20;
};

/// Posts a JSON body to `base` + `path` over a connection of its own and reads the whole answer, whatever its
/// status. Fails when there is none: refused, timed out, cut short, not HTTP, or over the limits. Never
/// raises SIGPIPE.
Result<HttpAnswer> httpPost(const Url& base, std::string_view path, std::string_view bearer,
                            std::string_view body, const HttpLimits& limits = {});

}  // namespace millpond::client
