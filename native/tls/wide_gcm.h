// SPDX-License-Identifier: Apache-2.0
// AES-128-GCM (NIST SP 800-38D) with the instructions that process four blocks at a time. OpenSSL uses them from 3.2
// on, but distributions have older versions; there a record costs three times as much.
#pragma once

#include <cstddef>

/// A key, for records of TLS 1.3: the additional authenticated data is the five bytes of a header. No branch and no
/// address depends on the key or the text.
class WideGcm {
 public:
  static constexpr size_t kKeyBytes = 16, kNonceBytes = 12, kHeaderBytes = 5, kTagBytes = 16;

  /// Whether this processor can do this with 512-bit registers.
  static bool isSupported();

  WideGcm() = default;
  WideGcm(const WideGcm&) = delete;
  WideGcm& operator=(const WideGcm&) = delete;
  ~WideGcm();

  void setKey(const unsigned char* key);
  /// Encrypts `bytes` at `in`, followed by `last`, to `out`, followed by the tag.
  void seal(const unsigned char* nonce, const unsigned char* header, const unsigned char* in, size_t bytes,
            unsigned char last, unsigned char* out) const;
  /// Decrypts `bytes` at `text`, which the tag follows, in place. Returns false if it is not authentic; then `text` is
  /// undefined.
  bool open(const unsigned char* nonce, const unsigned char* header, unsigned char* text, size_t bytes) const;

 private:
  static constexpr size_t kRounds = 11, kPowers = 16;

  alignas(64) unsigned char roundKeys_[kRounds][16] = {};
  /// The hash's key to the power of 16, 15, … 1, in the form in which it multiplies.
  alignas(64) unsigned char powers_[kPowers][16] = {};
};
