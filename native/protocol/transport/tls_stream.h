// SPDX-License-Identifier: Apache-2.0
// What is encrypted on a socket, in both directions.
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

/// Whom a client of HTTPS expects.
struct TlsServer {
  std::string host;                        ///< name or address, IPv6 without brackets
  std::string authorities;                 ///< a file of certificates or its content, PEM; empty: those of this machine
  std::optional<Fingerprint> fingerprint;  ///< the certificate itself, in place of both
};

/// One thread may receive while another sends.
class TlsStream {
 public:
  /// `rekeyBytes`: after how many the keys are changed; 0: as often as is good.
  static Result<std::unique_ptr<TlsStream>> ofLink(MillpondTlsSide side, const LinkSecret& secret,
                                                   uint64_t rekeyBytes = 0);
  static Result<std::unique_ptr<TlsStream>> toServer(const TlsServer& server);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  /// Goes on with the handshake as far as it can without waiting.
  MillpondTlsShake shake(int socket);
  /// Makes the whole handshake.
  Status shakeWithin(int socket, int timeoutMs);

  /// As recv(2) that does not wait. What breaks a rule, or was changed on its way, is EBADMSG.
  ssize_t receive(int socket, std::span<std::byte> to);
  /// As sendmsg(2) that does not wait. What it did not take has to come first again.
  ssize_t send(int socket, std::span<const iovec> runs);
  /// Whether `receive` may have something although the socket has not.
  bool holdsBytes() const { return holds_; }
  const std::string& why() const { return why_; }
  /// Whether the handshake failed because the server is not known to be the one that is meant.
  bool isUntrusted() const { return isUntrusted_; }

 private:
  TlsStream(const MillpondTlsFunctions* library, MillpondTls* tls, bool isLink);

  enum class Flushed { kAll, kPart, kFailed };
  Flushed flush(int socket);
  bool sealSome(std::span<const iovec> runs);
  ssize_t unseal(std::span<std::byte> to);
  /// As `unseal`, for links: from the records that have come.
  ssize_t openRecords(std::span<std::byte> to);

  const MillpondTlsFunctions* const library_;
  MillpondTls* const tls_;
  const bool isLink_;
  std::mutex mutex_;  // not of links; held only while bytes are turned into others
  std::string why_;
  bool isUntrusted_ = false;

  // Owned by the receiving thread
  std::unique_ptr<std::byte[]> in_;
  size_t inBegin_ = 0;
  size_t inEnd_ = 0;
  std::span<const std::byte> plain_;  // links only: opened there and not taken yet
  bool holds_ = false;

  // Owned by the sending thread
  std::unique_ptr<std::byte[]> out_;
  size_t outBegin_ = 0;
  size_t outEnd_ = 0;
  size_t outPlain_ = 0;  // how much of what was to be sent that is
};

}  // namespace millpond
