// SPDX-License-Identifier: Apache-2.0
#include "tls/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "tls/link_records.h"

namespace {

/// An AES key may encrypt some 2^24 full records; this limit is much lower.
constexpr uint64_t kRekeyBytes = uint64_t{64} << 30;
/// The identity of the secret on the wire. A port has one secret at a time.
constexpr char kIdentity[] = "millpond";
/// TLS_AES_128_GCM_SHA256
constexpr unsigned char kSuite[] = {0x13, 0x01};

/// Places of the machine's certificate authorities on common distributions.
constexpr const char* kAuthorities[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

struct Contexts {
  SSL_CTX* client = nullptr;
  SSL_CTX* server = nullptr;
  BIO_METHOD* bytes = nullptr;
};
Contexts contexts;

}  // namespace

struct MillpondTls {
  SSL* ssl = nullptr;
  const std::byte* in = nullptr;
  size_t inBytes = 0;
  std::byte* out = nullptr;
  size_t outRoom = 0;
  size_t outBytes = 0;
  std::byte unsent[kTlsMostUnsent];
  size_t unsentBytes = 0;
  std::byte secret[kTlsSecretBytes];
  bool isLink = false;
  bool isPinned = false;
  uint64_t rekeyBytes = kRekeyBytes;
  /// Links only: the traffic secrets of client and server, and their records.
  unsigned char traffic[2][kTrafficSecretBytes] = {};
  bool hasTraffic[2] = {};
  LinkRecords records;
  /// How it ended, detected after the preceding bytes.
  ptrdiff_t end = 0;
  char why[256] = "";
};

namespace {

MillpondTls* ownerOf(BIO* bio) { return static_cast<MillpondTls*>(BIO_get_data(bio)); }
MillpondTls* ownerOf(const SSL* ssl) { return static_cast<MillpondTls*>(SSL_get_app_data(ssl)); }

// Bytes in and out

int readBytes(BIO* bio, char* to, size_t room, size_t* got) {
  BIO_clear_retry_flags(bio);
  MillpondTls& tls = *ownerOf(bio);
  *got = std::min(room, tls.inBytes);
  if (*got == 0) {
    BIO_set_retry_read(bio);
    return 0;
  }
  std::memcpy(to, tls.in, *got);
  tls.in += *got;
  tls.inBytes -= *got;
  return 1;
}

int writeBytes(BIO* bio, const char* from, size_t bytes, size_t* written) {
  BIO_clear_retry_flags(bio);
  MillpondTls& tls = *ownerOf(bio);
  std::byte* to = tls.out ? tls.out + tls.outBytes : tls.unsent + tls.unsentBytes;
  const size_t room = tls.out ? tls.outRoom - tls.outBytes : sizeof(tls.unsent) - tls.unsentBytes;
  // Limits the output that a peer can cause without reading it.
  if (bytes > room) return 0;
  std::memcpy(to, from, bytes);
  (tls.out ? tls.outBytes : tls.unsentBytes) += bytes;
  *written = bytes;
  return 1;
}

long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

int create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

// The shared secret

SSL_SESSION* sharedSession(SSL* ssl) {
  const MillpondTls* tls = ownerOf(ssl);
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, kSuite);
  if (session && suite && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1 &&
      SSL_SESSION_set_cipher(session, suite) == 1 &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(tls->secret), kTlsSecretBytes) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int offerSecret(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* idBytes, SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(kIdentity);
  *idBytes = sizeof(kIdentity) - 1;
  *session = sharedSession(ssl);
  return *session != nullptr;
}

int findSecret(SSL* ssl, const unsigned char* id, size_t idBytes, SSL_SESSION** session) {
  const bool isOurs = idBytes == sizeof(kIdentity) - 1 && std::memcmp(id, kIdentity, idBytes) == 0;
  *session = isOurs ? sharedSession(ssl) : nullptr;
  return !isOurs || *session != nullptr;
}

int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// OpenSSL reports the secrets of a handshake in lines: label, the client's random bytes, the secret.
void keepSecret(const SSL* ssl, const char* text) {
  constexpr std::string_view kLabels[2] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};
  const std::string_view line = text;
  MillpondTls* tls = ownerOf(ssl);
  for (const MillpondTlsSide side : {kTlsClient, kTlsServer}) {
    if (!line.starts_with(kLabels[side])) continue;
    const std::string_view secret(line.data() + line.rfind(' ') + 1, line.data() + line.size());
    bool isHex = secret.size() == 2 * kTrafficSecretBytes;
    for (size_t i = 0; isHex && i < kTrafficSecretBytes; ++i) {
      const int high = hexDigit(secret[2 * i]), low = hexDigit(secret[2 * i + 1]);
      isHex = high >= 0 && low >= 0;
      tls->traffic[side][i] = static_cast<unsigned char>(high << 4 | low);
    }
    tls->hasTraffic[side] = isHex;
  }
}

SSL_CTX* makeLinkContext(const SSL_METHOD* method) {
  SSL_CTX* context = SSL_CTX_new(method);
  if (!context) return nullptr;
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_psk_use_session_callback(context, offerSecret);
  SSL_CTX_set_psk_find_session_callback(context, findSecret);
  SSL_CTX_set_keylog_callback(context, keepSecret);
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
      SSL_CTX_set1_groups_list(context, "X25519") == 1)
    return context;
  SSL_CTX_free(context);
  return nullptr;
}

void initialize() {
  // The program's own OpenSSL, if any, is separate: its settings do not apply here, nor does its cleanup at exit,
  // during which other threads may still send.
  if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) != 1) return;
  contexts.bytes = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "bytes");
  if (!contexts.bytes) return;
  BIO_meth_set_read_ex(contexts.bytes, readBytes);
  BIO_meth_set_write_ex(contexts.bytes, writeBytes);
  BIO_meth_set_ctrl(contexts.bytes, control);
  BIO_meth_set_create(contexts.bytes, create);
  contexts.client = makeLinkContext(TLS_client_method());
  contexts.server = makeLinkContext(TLS_server_method());
  // Both sides authenticate with the secret only: our servers present no certificate, and clients trust none.
  if (contexts.client) SSL_CTX_set_verify(contexts.client, SSL_VERIFY_PEER, nullptr);
}

const Contexts& ready() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, initialize);
  return contexts;
}

// Connections

void closeTls(MillpondTls* tls) {
  if (!tls) return;
  SSL_free(tls->ssl);
  tls->~MillpondTls();
  OPENSSL_clear_free(tls, sizeof(*tls));
}

MillpondTls* open(SSL_CTX* context, MillpondTlsSide side) {
  if (!context || !ready().bytes) return nullptr;
  // Without `new`, because nothing here needs the C++ library.
  void* memory = OPENSSL_malloc(sizeof(MillpondTls));
  if (!memory) return nullptr;
  auto* tls = new (memory) MillpondTls;
  tls->ssl = SSL_new(context);
  BIO* bio = BIO_new(contexts.bytes);
  if (!tls->ssl || !bio) {
    BIO_free(bio);
    closeTls(tls);
    return nullptr;
  }
  BIO_set_data(bio, tls);
  SSL_set_bio(tls->ssl, bio, bio);
  SSL_set_app_data(tls->ssl, tls);
  if (side == kTlsServer)
    SSL_set_accept_state(tls->ssl);
  else
    SSL_set_connect_state(tls->ssl);
  return tls;
}

MillpondTls* openLink(MillpondTlsSide side, const std::byte* secret, uint64_t rekeyBytes) {
  const Contexts& shared = ready();
  MillpondTls* tls = open(side == kTlsServer ? shared.server : shared.client, side);
  if (!tls) return nullptr;
  tls->isLink = true;
  std::memcpy(tls->secret, secret, kTlsSecretBytes);
  if (rekeyBytes) tls->rekeyBytes = rekeyBytes;
  return tls;
}

/// The certificate is pinned by its fingerprint; issuer, validity and names are not checked.
int verifyFingerprint(X509_STORE_CTX* store, void*) {
  const SSL* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const MillpondTls* tls = ownerOf(ssl);
  const X509* certificate = X509_STORE_CTX_get0_cert(store);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned bytes = 0;
  if (certificate && X509_digest(certificate, EVP_sha256(), digest, &bytes) == 1 && bytes == kTlsSecretBytes &&
      CRYPTO_memcmp(digest, tls->secret, bytes) == 0) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

/// Certificates, PEM, one behind the other.
bool trustText(SSL_CTX* context, const char* text) {
  BIO* bio = BIO_new_mem_buf(text, -1);
  int trusted = 0;
  while (X509* certificate = bio ? PEM_read_bio_X509(bio, nullptr, nullptr, nullptr) : nullptr) {
    trusted += X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate);
    X509_free(certificate);
  }
  BIO_free(bio);
  ERR_clear_error();
  return trusted > 0;
}

bool trustAuthorities(SSL_CTX* context, const char* file, char* why, size_t whyBytes) {
  if (file && std::strncmp(file, "-----BEGIN ", 11) == 0) {
    if (trustText(context, file)) return true;
    std::snprintf(why, whyBytes, "the authority's certificate cannot be read");
    return false;
  }
  if (!file)
    for (const char* each : kAuthorities)
      if (::access(each, R_OK) == 0) file = file ? file : each;
  if (!file) {
    std::snprintf(why, whyBytes,
                  "this machine has no trusted authorities; set MILLPOND_CA to a file with the "
                  "certificate of the controller's");
    return false;
  }
  if (SSL_CTX_load_verify_file(context, file) == 1) return true;
  std::snprintf(why, whyBytes, "the authority's certificate in %s cannot be read", file);
  return false;
}

bool expectHost(SSL* ssl, const char* host) {
  in6_addr address;
  if (::inet_pton(AF_INET, host, &address) == 1 || ::inet_pton(AF_INET6, host, &address) == 1)
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

MillpondTls* openClient(const char* host, const char* authorities, const std::byte* fingerprint, char* why,
                        size_t whyBytes) {
  std::snprintf(why, whyBytes, "TLS could not be set up");
  ready();
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (!context) return nullptr;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  MillpondTls* tls = nullptr;
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
      (fingerprint || trustAuthorities(context, authorities, why, whyBytes)))
    tls = open(context, kTlsClient);
  if (tls && fingerprint) {
    SSL_CTX_set_cert_verify_callback(context, verifyFingerprint, nullptr);
    std::memcpy(tls->secret, fingerprint, kTlsSecretBytes);
    tls->isPinned = true;
  }
  // The connection takes ownership of it.
  SSL_CTX_free(context);
  if (tls && !fingerprint && !expectHost(tls->ssl, host)) {
    std::snprintf(why, whyBytes, "%s cannot be the name in a certificate", host);
    closeTls(tls);
    return nullptr;
  }
  return tls;
}

// Errors

const char* untrusted(const MillpondTls& tls, long verdict) {
  if (tls.isPinned) return "its certificate is not the one that the controller knows it by";
  switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return "its certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID: return "its certificate is not valid yet; compare the clocks";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return "its certificate is for other names than the one in the address";
    case X509_V_ERR_CERT_SIGNATURE_FAILURE: return "its certificate was signed by another authority of the same name";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return "its certificate was signed by an authority that is not trusted";
    default: return X509_verify_cert_error_string(verdict);
  }
}

bool isUntrusted(const MillpondTls& tls) { return !tls.isLink && SSL_get_verify_result(tls.ssl) != X509_V_OK; }

void describe(MillpondTls& tls, const char* reason) {
  std::snprintf(tls.why, sizeof(tls.why), "the connection could not be verified (%s)", reason);
}

void explain(MillpondTls& tls) {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(error);
  const int code = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
  if (isUntrusted(tls))
    std::snprintf(tls.why, sizeof(tls.why), "it is not trusted: %s", untrusted(tls, SSL_get_verify_result(tls.ssl)));
  else if (!tls.isLink && (code == SSL_R_WRONG_VERSION_NUMBER || code == SSL_R_HTTP_REQUEST))
    std::snprintf(tls.why, sizeof(tls.why),
                  "it does not speak TLS; the address of a plain HTTP server begins with http://");
  else
    describe(tls, reason ? reason : "it does not speak TLS");
  ERR_clear_error();
}

// Handshake and records

void feed(MillpondTls& tls, const std::byte* in, size_t bytes) {
  tls.in = in;
  tls.inBytes = bytes;
  ERR_clear_error();
}

size_t fed(MillpondTls& tls, size_t bytes) {
  const size_t used = bytes - tls.inBytes;
  tls.in = nullptr;
  tls.inBytes = 0;
  return used;
}

/// The handshake of a link is complete: from now on its records are processed with the keys alone.
bool takeKeys(MillpondTls& tls) {
  const MillpondTlsSide own = SSL_is_server(tls.ssl) ? kTlsServer : kTlsClient;
  const MillpondTlsSide other = own == kTlsServer ? kTlsClient : kTlsServer;
  const bool done = tls.hasTraffic[own] && tls.hasTraffic[other] &&
                    tls.records.begin(tls.traffic[own], tls.traffic[other], tls.rekeyBytes);
  OPENSSL_cleanse(tls.traffic, sizeof(tls.traffic));
  OPENSSL_cleanse(tls.secret, sizeof(tls.secret));
  if (!done) {
    std::snprintf(tls.why, sizeof(tls.why), "the keys of the connection could not be made");
    return false;
  }
  SSL_free(tls.ssl);
  tls.ssl = nullptr;
  return true;
}

MillpondTlsShake shake(MillpondTls* tls, const std::byte* in, size_t bytes, size_t* used) {
  *used = 0;
  if (!tls->ssl) return kTlsShakeDone;
  feed(*tls, in, bytes);
  const int done = SSL_do_handshake(tls->ssl);
  const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, done);
  *used = fed(*tls, bytes);
  if (error == SSL_ERROR_WANT_READ) return kTlsShakeMore;
  if (error == SSL_ERROR_NONE && !tls->isLink) return kTlsShakeDone;
  if (error == SSL_ERROR_NONE && SSL_session_reused(tls->ssl) == 1)
    return takeKeys(*tls) ? kTlsShakeDone : kTlsShakeFailed;
  explain(*tls);
  return isUntrusted(*tls) ? kTlsShakeUntrusted : kTlsShakeFailed;
}

size_t take(MillpondTls* tls, std::byte* out, size_t room) {
  const size_t bytes = std::min(room, tls->unsentBytes);
  std::memcpy(out, tls->unsent, bytes);
  std::memmove(tls->unsent, tls->unsent + bytes, tls->unsentBytes - bytes);
  tls->unsentBytes -= bytes;
  return bytes;
}

ptrdiff_t unseal(MillpondTls* tls, const std::byte* in, size_t bytes, size_t* used, std::byte* out, size_t room) {
  *used = 0;
  if (tls->end != 0) return tls->end;
  feed(*tls, in, bytes);
  size_t all = 0;
  int error = SSL_ERROR_NONE;
  while (error == SSL_ERROR_NONE && all < room) {
    size_t got = 0;
    const int done = SSL_read_ex(tls->ssl, out + all, room - all, &got);
    all += got;
    if (done != 1) error = SSL_get_error(tls->ssl, done);
  }
  *used = fed(*tls, bytes);
  if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) {
    tls->end = error == SSL_ERROR_ZERO_RETURN ? kTlsClosed : kTlsFailed;
    if (tls->end == kTlsFailed) explain(*tls);
  }
  return all != 0 || tls->end == 0 ? static_cast<ptrdiff_t>(all) : tls->end;
}

ptrdiff_t openRecord(MillpondTls* tls, std::byte* in, size_t bytes, size_t* used, const std::byte** plain) {
  const ptrdiff_t n = tls->records.open(in, bytes, used, plain);
  if (n == kTlsFailed) describe(*tls, tls->records.why());
  return n;
}

size_t seal(MillpondTls* tls, const std::byte* in, size_t bytes, std::byte* out, size_t room) {
  if (!tls->ssl) return tls->records.seal(in, bytes, out, room);
  ERR_clear_error();
  const size_t before = take(tls, out, room);
  tls->out = out + before;
  tls->outRoom = room - before;
  tls->outBytes = 0;
  size_t taken = 0;
  const int done = SSL_write_ex(tls->ssl, in, bytes, &taken);
  tls->out = nullptr;
  if (done == 1 && taken == bytes) return before + tls->outBytes;
  explain(*tls);
  return 0;
}

const char* why(const MillpondTls* tls) { return tls->why; }

}  // namespace

__attribute__((visibility("default"))) const MillpondTlsFunctions* millpond_tls_2() {
  static constexpr MillpondTlsFunctions functions = {openLink, openClient, closeTls, shake, take,
                                                     unseal,   openRecord, seal,     why};
  return &functions;
}
