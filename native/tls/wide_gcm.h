// SPDX-License-Identifier: Apache-2.0
// AES-128-GCM (NIST SP 800-38D) with the instructions that take four blocks at a time. OpenSSL has that from 3.2 on, and
// distributions are older; there a record costs three times as much.
#pragma once

#include <cstddef>

/// A key, for records of TLS 1.3: what is authenticated beside the text is the five bytes of a header. No branch and no address
/// depends on the key or the text.
class WideGcm {
 public:
  static constexpr size_t kKeyBytes = 16, kNonceBytes = 12, kHeaderBytes = 5, kTagBytes = 16;

  /// Whether this processor can, with registers of 512 bits.
  static bool isSupported();

  WideGcm() = default;
  WideGcm(const WideGcm&) = delete;
  WideGcm& operator=(const WideGcm&) = delete;
  ~WideGcm();

  void setKey(const unsigned char* key);
  /// Encrypts `bytes` at `in`, and `last` behind them, to `out`; the tag follows there.
  void seal(const unsigned char* nonce, const unsigned char* header, const unsigned char* in, size_t bytes,
            unsigned char last, unsigned char* out) const;
  /// Decrypts `bytes` at `text`, behind which the tag lies, in place. False: it was not sealed like that; `text` has no
  /// meaning then.
  bool open(const unsigned char* nonce, const unsigned char* header, unsigned char* text, size_t bytes) const;

 private:
  static constexpr size_t kRounds = 11, kPowers = 16;

  alignas(64) unsigned char roundKeys_[kRounds][16] = {};
  /// The hash's key to the power of 16, 15, … 1, in the form in which it multiplies.
  alignas(64) unsigned char powers_[kPowers][16] = {};
};
