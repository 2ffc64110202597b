// SPDX-License-Identifier: Apache-2.0
// The TLS stream of a socket, in both directions.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "tls/tls.h"

namespace millpond {

/// The secret that only the two ends of a session's TCP connection share.
using LinkSecret = std::array<std::byte, kTlsSecretBytes>;
/// SHA-256 of a certificate.
using Fingerprint = std::array<std::byte, kTlsSecretBytes>;

/// Reads 32 bytes, written as 64 hexadecimal digits.
std::optional<std::array<std::byte, kTlsSecretBytes>> parseHex32(std::string_view text);

/// The server that an HTTPS client expects.
struct TlsServer {
  std::string host;                        ///< name or address, IPv6 without brackets
  std::string authorities;                 ///< a file of certificates or its content, PEM; empty: the system's
  std::optional<Fingerprint> fingerprint;  ///< the certificate itself, in place of both
};

/// One thread may receive while another sends.
class TlsStream {
 public:
  /// `rekeyBytes`: number of bytes after which keys change; 0: the default.
  static Result<std::unique_ptr<TlsStream>> ofLink(MillpondTlsSide side, const LinkSecret& secret,
                                                   uint64_t rekeyBytes = 0);
  static Result<std::unique_ptr<TlsStream>> toServer(const TlsServer& server);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  /// Continues the handshake as far as possible without waiting.
  MillpondTlsShake shake(int socket);
  /// Performs the whole handshake.
  Status shakeWithin(int socket, int timeoutMs);

  /// Like non-blocking recv(2). Data that violates the protocol or was changed in transit fails with EBADMSG.
  ssize_t receive(int socket, std::span<std::byte> to);
  /// Like non-blocking sendmsg(2). Unsent bytes must come first in the next call.
  ssize_t send(int socket, std::span<const iovec> runs);
  /// Whether `receive` may return data although the socket has none.
  bool holdsBytes() const { return holds_; }
  const std::string& why() const { return why_; }
  /// Whether the handshake failed because the server's identity could not be verified.
  bool isUntrusted() const { return isUntrusted_; }

 private:
  TlsStream(const MillpondTlsFunctions* library, MillpondTls* tls, bool isLink);

  enum class Flushed { kAll, kPart, kFailed };
  Flushed flush(int socket);
  bool sealSome(std::span<const iovec> runs);
  ssize_t unseal(std::span<std::byte> to);
  /// Like `unseal`, for links: from the received records.
  ssize_t openRecords(std::span<std::byte> to);

  const MillpondTlsFunctions* const library_;
  MillpondTls* const tls_;
  const bool isLink_;
  std::mutex mutex_;  // not for links; held only while bytes are converted
  std::string why_;
  bool isUntrusted_ = false;

  // Owned by the receiving thread
  std::unique_ptr<std::byte[]> in_;
  size_t inBegin_ = 0;
  size_t inEnd_ = 0;
  std::span<const std::byte> plain_;  // links only: decrypted there and not taken yet
  bool holds_ = false;

  // Owned by the sending thread
  std::unique_ptr<std::byte[]> out_;
  size_t outBegin_ = 0;
  size_t outEnd_ = 0;
  size_t outPlain_ = 0;  // unencrypted bytes that this represents
};

}  // namespace millpond
