// SPDX-License-Identifier: Apache-2.0
// The interface of libmillpond-tls.so: TLS on bytes, without sockets. It is a separate library so that
// programs without TLS do not load OpenSSL, which is not exposed by any other library.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

/// One end of one connection. Its functions may be called from any thread, one at a time; once the handshake of a link
/// is done, one thread may call `openRecord` while another calls `seal`.
struct MillpondTls;

enum MillpondTlsSide : int { kTlsClient = 0, kTlsServer = 1 };

/// Length of a shared secret, and of a SHA-256.
inline constexpr size_t kTlsSecretBytes = 32;
/// Maximum payload of a record.
inline constexpr size_t kTlsRecordBytes = size_t{16} << 10;
/// Upper bound of the bytes that a record adds to its payload.
inline constexpr size_t kTlsRecordOverhead = 256;
/// Maximum output of `take`, which `seal` also puts before its own.
inline constexpr size_t kTlsMostUnsent = size_t{20} << 10;

/// Results of `unseal` other than a number of bytes.
inline constexpr ptrdiff_t kTlsFailed = -1;
inline constexpr ptrdiff_t kTlsClosed = -2;  ///< the other side has closed the stream

enum MillpondTlsShake : int {
  kTlsShakeUntrusted = -2,  ///< the server's identity could not be verified
  kTlsShakeFailed = -1,
  kTlsShakeMore = 0,
  kTlsShakeDone = 1,
};

struct MillpondTlsFunctions {
  /// A link between two ends that share a secret: TLS 1.3, ephemeral keys for each connection, no
  /// certificates. Keys are updated after `rekeyBytes` in one direction; 0: the default interval. Null: out
  /// of memory.
  MillpondTls* (*openLink)(MillpondTlsSide side, const std::byte* secret, uint64_t rekeyBytes);
  /// A client of the server `host`, whose certificate has that SHA-256; without one the certificate must be for `host`
  /// and signed by one of `authorities` (a file or its content, PEM), or, without them, by one of this machine's. Null:
  /// `why` has the reason.
  MillpondTls* (*openClient)(const char* host, const char* authorities, const std::byte* fingerprint, char* why,
                             size_t whyBytes);
  void (*close)(MillpondTls* tls);
  /// Continues the handshake with received bytes. Its output, including an alert after a failure, is returned
  /// by `take`.
  MillpondTlsShake (*shake)(MillpondTls* tls, const std::byte* in, size_t bytes, size_t* used);
  /// Bytes to send besides `seal`ed ones.
  size_t (*take)(MillpondTls* tls, std::byte* out, size_t room);
  /// Not for links: the content of received records; 0 if more bytes are needed. If `room` is filled, there may be more
  /// without further input.
  ptrdiff_t (*unseal)(MillpondTls* tls, const std::byte* in, size_t bytes, size_t* used, std::byte* out, size_t room);
  /// Links: decrypts the record at the start of `in`, in place. `used`: its length, 0 if it is incomplete. Returns the
  /// number of bytes at `plain`, which may be 0; kTlsFailed if `in` is not authentic.
  ptrdiff_t (*openRecord)(MillpondTls* tls, std::byte* in, size_t bytes, size_t* used, const std::byte** plain);
  /// Encrypts one record of up to kTlsRecordBytes, after the output of `take`. `room` must hold all of that; 0: failed.
  size_t (*seal)(MillpondTls* tls, const std::byte* in, size_t bytes, std::byte* out, size_t room);
  /// The reason of a failure, for display.
  const char* (*why)(const MillpondTls* tls);
};

/// The version number of the interface.
const MillpondTlsFunctions* millpond_tls_2();
}
