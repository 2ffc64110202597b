// SPDX-License-Identifier: Apache-2.0
// A minimal HTTP/1.1 client, with and without TLS, for calls to the controller and to agents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/loopback_peer.h"
#include "protocol/transport/tls_stream.h"

namespace millpond::client {

/// A parsed base URL: `http[s]://host[:port][/path]`, and for an agent `https://host[:port][/path]#sha256=digits`.
struct Url {
  bool isSecure = false;
  std::optional<Fingerprint> fingerprint;  ///< of the only accepted certificate
  std::string host;                        ///< IPv6 addresses without brackets
  uint16_t port = 80;
  std::string path;  ///< without a trailing slash; often empty

  /// Refuses other schemes, user names, queries, other fragments and characters that do not belong in a URL.
  static Result<Url> parse(std::string_view text);
  /// `host:port`, with brackets around IPv6.
  std::string authority() const;
  /// The whole URL, without the fingerprint.
  std::string text() const;
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

/// The reason why there is no response.
struct HttpFailure {
  std::string message;
  bool isUntrusted = false;  ///< the server's identity could not be verified; a retry does not help
  bool isStranger = false;   ///< another user of this machine serves the port; a retry does not help
  bool lacksTls = false;     ///< this machine lacks the TLS library; a retry does not help
};

struct HttpResult {
  HttpAnswer answer;
  std::optional<HttpFailure> failure;

  explicit operator bool() const { return !failure; }
  const HttpAnswer* operator->() const { return &answer; }
};

/// Reads the answer to a request on that connection, within the limits.
Result<HttpAnswer> readAnswer(Channel& channel, const HttpLimits& limits);

/// Which servers to trust.
struct HttpTrust {
  std::string authorities;  ///< accepted issuers of a server's certificate, PEM or a file of it; empty: this machine's
  TrustedUsers users;       ///< users that may serve without TLS on loopback, in addition to those that always may
};

/// Posts a JSON body to `base` + `path` over a new connection and reads the whole response, whatever its status. Fails
/// if there is none: refused, timed out, cut short, not HTTP, or over the limits. Never raises SIGPIPE.
HttpResult httpPost(const Url& base, std::string_view path, std::string_view bearer, std::string_view body,
                    const HttpLimits& limits = {}, const HttpTrust& trust = {});

}  // namespace millpond::client
