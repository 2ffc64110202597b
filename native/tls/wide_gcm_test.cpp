// SPDX-License-Identifier: Apache-2.0
#include "tls/wide_gcm.h"

#include <openssl/evp.h>

#include <cstring>
#include <random>
#include <vector>

#include "testing/check.h"

namespace {

using Octets = std::vector<unsigned char>;

void fill(Octets& bytes, std::minstd_rand& random) {
  for (auto& each : bytes) each = static_cast<unsigned char>(random() >> 8);
}

/// OpenSSL's result.
Octets expected(const Octets& key, const Octets& nonce, const Octets& header, const Octets& text) {
  EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
  Octets out(text.size() + WideGcm::kTagBytes);
  int n = 0;
  CHECK_EQ(EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nullptr, key.data(), nonce.data()), 1);
  CHECK_EQ(EVP_EncryptUpdate(cipher, nullptr, &n, header.data(), static_cast<int>(header.size())), 1);
  CHECK_EQ(EVP_EncryptUpdate(cipher, out.data(), &n, text.data(), static_cast<int>(text.size())), 1);
  CHECK_EQ(EVP_EncryptFinal_ex(cipher, out.data() + text.size(), &n), 1);
  CHECK_EQ(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, WideGcm::kTagBytes, out.data() + text.size()), 1);
  EVP_CIPHER_CTX_free(cipher);
  return out;
}

TEST("a wide processor seals as OpenSSL does, whatever the length, and opens that alone") {
  if (!WideGcm::isSupported()) return;
  std::minstd_rand random(1);
  WideGcm gcm;
  Octets key(WideGcm::kKeyBytes), nonce(WideGcm::kNonceBytes), header(WideGcm::kHeaderBytes);
  for (size_t round = 0; round < 1500; ++round) {
    if (round % 10 == 0) {
      fill(key, random);
      gcm.setKey(key.data());
    }
    fill(nonce, random);
    fill(header, random);
    // All lengths up to more than two iterations of its loop, and some random ones.
    const size_t bytes = round < 600 ? round : round % 40 == 0 ? 16384 - random() % 600 : random() % 3000;
    // No byte before or after it is changed.
    const size_t shift = random() % 64;
    Octets text(bytes + 1), place(shift + bytes + 1 + WideGcm::kTagBytes + 64, 0xa5);
    fill(text, random);
    gcm.seal(nonce.data(), header.data(), text.data(), bytes, text.back(), place.data() + shift);
    const Octets whole = expected(key, nonce, header, text);
    CHECK(std::memcmp(place.data() + shift, whole.data(), whole.size()) == 0);
    for (size_t i = 0; i < place.size(); ++i)
      if (i < shift || i >= shift + whole.size()) CHECK_EQ(int{place[i]}, 0xa5);

    Octets sealed = place;
    CHECK(gcm.open(nonce.data(), header.data(), sealed.data() + shift, bytes + 1));
    CHECK(std::memcmp(sealed.data() + shift, text.data(), text.size()) == 0);
    for (size_t i = 0; i < sealed.size(); ++i)
      if (i < shift || i >= shift + text.size()) CHECK_EQ(int{sealed[i]}, int{place[i]});

    sealed = place;
    sealed[shift + random() % whole.size()] ^= static_cast<unsigned char>(1 << random() % 8);
    CHECK(!gcm.open(nonce.data(), header.data(), sealed.data() + shift, bytes + 1));
    Octets other = header;
    other[random() % other.size()] ^= 1;
    sealed = place;
    CHECK(!gcm.open(nonce.data(), other.data(), sealed.data() + shift, bytes + 1));
  }
}

}  // namespace
