// SPDX-License-Identifier: Apache-2.0
#include "tls/record_key.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <cstring>

#include "tls/tls.h"

namespace {

constexpr size_t kTagBytes = WideGcm::kTagBytes;
/// Maximum payload of a record after its header: RFC 8446, 5.2.
constexpr size_t kMostSealed = kTlsRecordBytes + 256;

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

/// HKDF-Expand-Label of RFC 8446, 7.1, without a context, for results of up to one hash.
bool expandLabel(const unsigned char* secret, const char* label, unsigned char* out, size_t bytes) {
  constexpr char kPrefix[] = "tls13 ";
  unsigned char info[64];
  size_t used = 0;
  const size_t labelBytes = std::strlen(label);
  info[used++] = 0;
  info[used++] = static_cast<unsigned char>(bytes);
  info[used++] = static_cast<unsigned char>(sizeof(kPrefix) - 1 + labelBytes);
  std::memcpy(info + used, kPrefix, sizeof(kPrefix) - 1);
  used += sizeof(kPrefix) - 1;
  std::memcpy(info + used, label, labelBytes);
  used += labelBytes;
  info[used++] = 0;
  info[used++] = 1;  // the first, and only, block of HKDF-Expand
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned hashBytes = 0;
  const bool done =
      HMAC(EVP_sha256(), secret, kTrafficSecretBytes, info, used, hash, &hashBytes) != nullptr && hashBytes >= bytes;
  if (done) std::memcpy(out, hash, bytes);
  OPENSSL_cleanse(hash, sizeof(hash));
  return done;
}

void writeHeader(unsigned char* header, size_t sealed) {
  header[0] = RecordKey::kData;  // whatever its content
  header[1] = 3;
  header[2] = 3;
  header[3] = static_cast<unsigned char>(sealed >> 8);
  header[4] = static_cast<unsigned char>(sealed);
}

}  // namespace

RecordKey::~RecordKey() {
  EVP_CIPHER_CTX_free(cipher_);
  OPENSSL_cleanse(secret_, sizeof(secret_));
  OPENSSL_cleanse(iv_, sizeof(iv_));
}

bool RecordKey::begin(const unsigned char* secret, Cipher cipher) {
  std::memcpy(secret_, secret, sizeof(secret_));
  if (cipher == Cipher::kFastest && WideGcm::isSupported()) return setKey();
  cipher_ = EVP_CIPHER_CTX_new();
  return cipher_ && EVP_CipherInit_ex(cipher_, EVP_aes_128_gcm(), nullptr, nullptr, nullptr, 1) == 1 && setKey();
}

bool RecordKey::update() {
  unsigned char next[kTrafficSecretBytes];
  const bool done = expandLabel(secret_, "traffic upd", next, sizeof(next));
  if (done) std::memcpy(secret_, next, sizeof(next));
  OPENSSL_cleanse(next, sizeof(next));
  return done && setKey();
}

bool RecordKey::setKey() {
  unsigned char key[WideGcm::kKeyBytes];
  bool done = expandLabel(secret_, "key", key, sizeof(key)) && expandLabel(secret_, "iv", iv_, sizeof(iv_));
  if (cipher_)
    done = done && EVP_CipherInit_ex(cipher_, nullptr, nullptr, key, nullptr, -1) == 1;
  else
    wide_.setKey(key);
  OPENSSL_cleanse(key, sizeof(key));
  sequence_ = 0;
  return done;
}

void RecordKey::takeNonce(unsigned char* nonce) {
  std::memcpy(nonce, iv_, sizeof(iv_));
  const uint64_t number = sequence_++;
  for (size_t i = 0; i < sizeof(number); ++i)
    nonce[sizeof(iv_) - 1 - i] ^= static_cast<unsigned char>(number >> (8 * i));
}

size_t RecordKey::seal(Content content, const std::byte* in, size_t bytes, std::byte* out) {
  if (bytes > kTlsRecordBytes) return 0;
  const size_t sealed = bytes + 1 + kTagBytes;
  unsigned char* const header = raw(out);
  unsigned char* const to = header + kRecordHeaderBytes;
  writeHeader(header, sealed);
  unsigned char nonce[sizeof(iv_)];
  takeNonce(nonce);
  const unsigned char last = content;
  if (cipher_) return sealByOpenSsl(nonce, header, raw(in), bytes, last, to) ? kRecordHeaderBytes + sealed : 0;
  wide_.seal(nonce, header, raw(in), bytes, last, to);
  return kRecordHeaderBytes + sealed;
}

bool RecordKey::sealByOpenSsl(const unsigned char* nonce, const unsigned char* header, const unsigned char* in,
                              size_t bytes, unsigned char last, unsigned char* out) {
  int n = 0;
  return EVP_CipherInit_ex(cipher_, nullptr, nullptr, nullptr, nonce, 1) == 1 &&
         EVP_CipherUpdate(cipher_, nullptr, &n, header, kRecordHeaderBytes) == 1 &&
         (bytes == 0 || EVP_CipherUpdate(cipher_, out, &n, in, static_cast<int>(bytes)) == 1) &&
         EVP_CipherUpdate(cipher_, out + bytes, &n, &last, 1) == 1 &&
         EVP_CipherFinal_ex(cipher_, out + bytes + 1, &n) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, out + bytes + 1) == 1;
}

bool RecordKey::openByOpenSsl(const unsigned char* nonce, const unsigned char* header, unsigned char* text,
                              size_t bytes) {
  int n = 0;
  return EVP_CipherInit_ex(cipher_, nullptr, nullptr, nullptr, nonce, 0) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, text + bytes) == 1 &&
         EVP_CipherUpdate(cipher_, nullptr, &n, header, kRecordHeaderBytes) == 1 &&
         EVP_CipherUpdate(cipher_, text, &n, text, static_cast<int>(bytes)) == 1 &&
         EVP_CipherFinal_ex(cipher_, text + bytes, &n) == 1;
}

size_t RecordKey::length(const std::byte* in, size_t bytes) {
  if (bytes < kRecordHeaderBytes) return 0;
  const unsigned char* header = raw(in);
  const size_t sealed = size_t{header[3]} << 8 | header[4];
  const bool isRecord =
      header[0] == kData && header[1] == 3 && header[2] == 3 && sealed > kTagBytes && sealed <= kMostSealed;
  return isRecord ? kRecordHeaderBytes + sealed : kNoRecord;
}

RecordKey::Opened RecordKey::open(std::byte* record, size_t length) {
  unsigned char* const text = raw(record) + kRecordHeaderBytes;
  size_t bytes = length - kRecordHeaderBytes - kTagBytes;
  unsigned char nonce[sizeof(iv_)];
  takeNonce(nonce);
  const bool isWhole =
      cipher_ ? openByOpenSsl(nonce, raw(record), text, bytes) : wide_.open(nonce, raw(record), text, bytes);
  if (!isWhole) return {};
  // Zeros may follow the kind of the content.
  while (bytes > 0 && text[bytes - 1] == 0) --bytes;
  if (bytes == 0 || bytes - 1 > kTlsRecordBytes) return {};
  return {true, text[bytes - 1], record + kRecordHeaderBytes, bytes - 1};
}
