// SPDX-License-Identifier: Apache-2.0
// An HTTPS server for tests, with a certificate of an authority of its own. Its OpenSSL is another one than that of the
// library under test, as in a program that has its own.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond::testing {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using KeyPointer = std::unique_ptr<EVP_PKEY, Freed<&EVP_PKEY_free>>;
using CertificatePointer = std::unique_ptr<X509, Freed<&X509_free>>;
using ContextPointer = std::unique_ptr<SSL_CTX, Freed<&SSL_CTX_free>>;
using SslPointer = std::unique_ptr<SSL, Freed<&SSL_free>>;

class HttpsTestServer {
 public:
  struct Options {
    std::string names = "IP:127.0.0.1";  ///< alternative names in OpenSSL's notation
    bool hasExpired = false;
    std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    bool saysGoodbye = true;
  };

  explicit HttpsTestServer(Options options) : options_(std::move(options)) {
    // OpenSSL writes to sockets as to files.
    std::signal(SIGPIPE, SIG_IGN);
    const KeyPointer authorityKey(EVP_EC_gen("P-256"));
    // Each has its own name, because issuers are found by name.
    static std::atomic<int> authorities{0};
    const std::string name = "authority " + std::to_string(++authorities);
    const CertificatePointer authority = makeCertificate(name.c_str(), authorityKey.get(), nullptr, nullptr);
    key_.reset(EVP_EC_gen("P-256"));
    certificate_ = makeCertificate("server", key_.get(), authority.get(), authorityKey.get());
    CHECK(::mkdtemp(folder_.data()) != nullptr);
    FILE* file = std::fopen(this->authorities().c_str(), "w");
    CHECK(file != nullptr);
    CHECK_EQ(PEM_write_X509(file, authority.get()), 1);
    std::fclose(file);
    auto socket = listenTcp("127.0.0.1", port_);
    CHECK(bool(socket));
    listener_ = std::move(*socket);
    CHECK(::pipe(stop_) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpsTestServer() {
    ::close(stop_[1]);
    thread_.join();
    ::close(stop_[0]);
    ::unlink(authorities().c_str());
    ::rmdir(folder_.c_str());
  }
  HttpsTestServer(const HttpsTestServer&) = delete;
  HttpsTestServer& operator=(const HttpsTestServer&) = delete;

  std::string url() const { return "https://127.0.0.1:" + std::to_string(port_); }
  /// The file of its authority.
  std::string authorities() const { return folder_ + "/ca.crt"; }
  std::string fingerprint() const {
    unsigned char digest[32];
    unsigned bytes = 0;
    CHECK_EQ(X509_digest(certificate_.get(), EVP_sha256(), digest, &bytes), 1);
    std::string out;
    char digits[3];
    for (const unsigned char each : digest) {
      std::snprintf(digits, sizeof digits, "%02x", each);
      out += digits;
    }
    return out;
  }
  /// The received requests.
  int requests() const { return requests_.load(); }

 private:
  CertificatePointer makeCertificate(const char* name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuerKey) const {
    CertificatePointer out(X509_new());
    X509_set_version(out.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(out.get()), issuer ? 2 : 1);
    constexpr long kDay = 86'400;
    X509_gmtime_adj(X509_getm_notBefore(out.get()), -2 * kDay);
    X509_gmtime_adj(X509_getm_notAfter(out.get()), issuer && options_.hasExpired ? -kDay : kDay);
    X509_set_pubkey(out.get(), key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(out.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    X509_set_issuer_name(out.get(), X509_get_subject_name(issuer ? issuer : out.get()));
    const int kind = issuer ? NID_subject_alt_name : NID_basic_constraints;
    X509_EXTENSION* extension =
        X509V3_EXT_conf_nid(nullptr, nullptr, kind, issuer ? options_.names.c_str() : "critical,CA:TRUE");
    CHECK(extension != nullptr);
    X509_add_ext(out.get(), extension, -1);
    X509_EXTENSION_free(extension);
    CHECK(X509_sign(out.get(), issuerKey ? issuerKey : key, EVP_sha256()) > 0);
    return out;
  }

  void serve() {
    const ContextPointer context(SSL_CTX_new(TLS_server_method()));
    CHECK_EQ(SSL_CTX_use_certificate(context.get(), certificate_.get()), 1);
    CHECK_EQ(SSL_CTX_use_PrivateKey(context.get(), key_.get()), 1);
    for (;;) {
      pollfd look[2] = {{listener_.get(), POLLIN, 0}, {stop_[0], POLLIN, 0}};
      ::poll(look, 2, -1);
      if (look[1].revents) return;
      const UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) continue;
      const SslPointer ssl(SSL_new(context.get()));
      SSL_set_fd(ssl.get(), socket.get());
      if (SSL_accept(ssl.get()) == 1) answer(ssl.get());
    }
  }
  void answer(SSL* ssl) {
    std::string request;
    char piece[1024];
    while (request.find("\r\n\r\n{}") == std::string::npos) {
      const int n = SSL_read(ssl, piece, sizeof piece);
      if (n <= 0) return;
      request.append(piece, static_cast<size_t>(n));
    }
    ++requests_;
    SSL_write(ssl, options_.answer.data(), static_cast<int>(options_.answer.size()));
    if (options_.saysGoodbye) SSL_shutdown(ssl);
  }

  const Options options_;
  KeyPointer key_;
  CertificatePointer certificate_;
  std::string folder_ = "/tmp/millpond-https-XXXXXX";
  uint16_t port_ = 0;
  UniqueFd listener_;
  int stop_[2] = {-1, -1};
  std::atomic<int> requests_{0};
  std::thread thread_;
};

}  // namespace millpond::testing
