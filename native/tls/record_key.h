// SPDX-License-Identifier: Apache-2.0
// The records of one direction of a link after its handshake (RFC 8446, sections 5 and 7), encrypted and decrypted
// without OpenSSL's copies and without a lock that both directions share.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>

#include "tls/wide_gcm.h"

/// A traffic secret of TLS_AES_128_GCM_SHA256.
inline constexpr size_t kTrafficSecretBytes = 32;
inline constexpr size_t kRecordHeaderBytes = 5;

/// The key of the secret in use, and the number of the next record. One thread at a time.
class RecordKey {
 public:
  enum Content : unsigned char { kAlert = 21, kHandshake = 22, kData = 23 };

  RecordKey() = default;
  RecordKey(const RecordKey&) = delete;
  RecordKey& operator=(const RecordKey&) = delete;
  ~RecordKey();

  enum class Cipher { kFastest, kOpenSsl };
  /// False: out of memory.
  bool begin(const unsigned char* secret, Cipher cipher = Cipher::kFastest);
  /// Updates to the next secret: record numbers start from 0 again.
  bool update();
  /// Records since `begin` or `update`.
  uint64_t records() const { return sequence_; }

  /// Writes one record of up to kTlsRecordBytes to `out`, which has room for kTlsRecordOverhead bytes more. Returns its
  /// length; 0: failed.
  size_t seal(Content content, const std::byte* in, size_t bytes, std::byte* out);

  /// The total length of the record at the start of `in`: 0 if its header is incomplete, `kNoRecord` if it is invalid.
  static constexpr size_t kNoRecord = ~size_t{0};
  static size_t length(const std::byte* in, size_t bytes);
  struct Opened {
    bool isWhole = false;  ///< the record is authentic
    unsigned char content = 0;
    std::byte* plain = nullptr;
    size_t bytes = 0;
  };
  /// Decrypts a record of that length in place.
  Opened open(std::byte* record, size_t length);

 private:
  bool setKey();
  bool sealByOpenSsl(const unsigned char* nonce, const unsigned char* header, const unsigned char* in, size_t bytes,
                     unsigned char last, unsigned char* out);
  bool openByOpenSsl(const unsigned char* nonce, const unsigned char* header, unsigned char* text, size_t bytes);
  /// The nonce of the next record; increments the record number.
  void takeNonce(unsigned char* nonce);

  WideGcm wide_;
  EVP_CIPHER_CTX* cipher_ = nullptr;  // for processors without these instructions
  unsigned char secret_[kTrafficSecretBytes] = {};
  unsigned char iv_[12] = {};
  uint64_t sequence_ = 0;
};
