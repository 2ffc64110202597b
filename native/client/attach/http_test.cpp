// SPDX-License-Identifier: Apache-2.0
#include "client/attach/http.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "client/attach/connect_call.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"
#include "testing/servers/http_server.h"
#include "testing/servers/https_server.h"

using millpond::parseHex32;
using millpond::client::HttpLimits;
using millpond::client::httpPost;
using millpond::client::HttpResult;
using millpond::client::Url;
using millpond::testing::HttpsTestServer;
using millpond::testing::HttpTestServer;

namespace {
constexpr HttpLimits kQuick{.connectMs = 2000, .answerMs = 5000, .bodyBytes = 1000};

// The client's result for a server that sends exactly these bytes and closes.
HttpResult answerTo(const std::string& bytes, const HttpLimits& limits = kQuick) {
  const HttpTestServer server([&](const HttpTestServer::Request&) { return bytes; });
  return httpPost(*Url::parse(server.url()), "/a.B/C", "", "{}", limits);
}
std::string failureOf(const std::string& bytes) {
  const auto answer = answerTo(bytes);
  CHECK(!answer);
  return answer.failure->message;
}
std::string contentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
HttpResult post(const HttpsTestServer& server, const std::string& pin = "", const std::string& authorities = "") {
  const auto url = Url::parse(server.url() + (pin.empty() ? "" : "#sha256=" + pin));
  return httpPost(*url, "/a.B/C", "secret", "{}", kQuick,
                  {authorities.empty() ? server.authorities() : authorities, {}});
}
}  // namespace

TEST("sends a request that a server understands") {
  const HttpTestServer server([](const HttpTestServer::Request&) { return HttpTestServer::json(200, "{\"x\":1}"); });
  const auto answer = httpPost(*Url::parse(server.url() + "/base/"), "/a.B/C", "secret", "{\"q\":2}", kQuick);
  CHECK(bool(answer));
  CHECK_EQ(answer->status, 200);
  CHECK_EQ(answer->body, "{\"x\":1}");
  const auto request = server.requests().at(0);
  CHECK_EQ(request.path, "/base/a.B/C");
  CHECK_EQ(request.body, "{\"q\":2}");
  CHECK(request.head.find("\r\nAuthorization: Bearer secret") != std::string::npos);
  CHECK(request.head.find("\r\nContent-Type: application/json\r\n") != std::string::npos);
  CHECK(request.head.find("\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n") != std::string::npos);
}

TEST("reads bodies by length, in chunks and to the end of the connection") {
  CHECK_EQ(answerTo("HTTP/1.1 200 OK\r\ncontent-length:  2 \r\n\r\nokrest")->body, "ok");
  CHECK_EQ(answerTo("HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                    "chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n")
               ->body,
           "abc0123456789");
  CHECK_EQ(answerTo("HTTP/1.0 200\r\n\r\nto the end")->body, "to the end");
  CHECK_EQ(answerTo("HTTP/1.1 204 None\r\n\r\n")->body, "");
  CHECK_EQ(answerTo("HTTP/1.1 200 OK\nContent-Length: 1\n\n!")->body, "!");
  CHECK_EQ(answerTo("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\n?")->status, 404);
}

TEST("refuses what is no answer") {
  CHECK_EQ(failureOf(""), "the connection ended in the middle of the answer's header");
  CHECK_EQ(failureOf("SSH-2.0-OpenSSH_9.2\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 2x0 OK\r\n\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 999 OK\r\n\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 2000 OK\r\n\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"),
           "the connection ended in the middle of the answer");
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), "the answer has a malformed Content-Length");
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
           "the answer has a malformed Content-Length");
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"),
           "the answer has an unknown Transfer-Encoding");
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nbroken\r\n\r\n"), "the answer has a malformed header");
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  CHECK_EQ(failureOf(chunked + "zz\r\n"), "the answer has a malformed chunk");
  CHECK_EQ(failureOf(chunked + "3\r\nabcd\r\n"), "the answer has a malformed chunk");
  CHECK_EQ(failureOf(chunked + "3\r\nabc\r\n"), "the connection ended in the middle of the answer's header");
  CHECK_EQ(failureOf(chunked + "ffffffffffffffff\r\n"), "the answer is longer than 1000 bytes");
}

TEST("bounds what it reads") {
  const std::string tooLong = "the answer is longer than 1000 bytes";
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x')), tooLong);
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\n\r\n" + std::string(20000, 'x')), tooLong);
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + std::string(1000, 'x') +
                     "\r\n1\r\nx\r\n0\r\n\r\n"),
           tooLong);
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nA: " + std::string(70000, 'x') + "\r\n\r\n"),
           "the answer's header is too long");
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 20000; ++i) many += "A: b\r\n";
  CHECK_EQ(failureOf(many + "\r\n"), "the answer's header is too long");
}

TEST("a server that says nothing is given up on") {
  const HttpTestServer server([](const HttpTestServer::Request&) { return HttpTestServer::silence(); });
  const auto answer = httpPost(*Url::parse(server.url()), "/x", "", "{}", {.connectMs = 2000, .answerMs = 50});
  CHECK(!answer);
  CHECK_EQ(answer.failure->message, "no complete answer within 50 ms");
}

TEST("nobody there") {
  uint16_t port = 0;
  {
    auto socket = millpond::listenTcp("127.0.0.1", port);
    CHECK(bool(socket));
  }
  const auto answer = httpPost(*Url::parse("http://127.0.0.1:" + std::to_string(port)), "/x", "", "{}", kQuick);
  CHECK(!answer);
  CHECK(answer.failure->message.find("Connection refused") != std::string::npos);
}

TEST("URLs") {
  const auto url = Url::parse("http://[::1]:7070/a/b//");
  CHECK_EQ(url->host, "::1");
  CHECK_EQ(url->port, 7070);
  CHECK_EQ(url->path, "/a/b");
  CHECK_EQ(url->authority(), "[::1]:7070");
  CHECK_EQ(Url::parse("HTTP://controller")->port, 80);
  CHECK(!url->isSecure && !url->fingerprint);
  CHECK_EQ(url->text(), "http://[::1]:7070/a/b");
  const auto secure = Url::parse("HTTPS://controller");
  CHECK(secure->isSecure && !secure->fingerprint);
  CHECK_EQ(secure->port, 443);
  CHECK_EQ(secure->text(), "https://controller:443");
  const std::string digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFF";
  const auto pinned = Url::parse("https://10.0.0.7:7171/#sha256=" + digits);
  CHECK_EQ(pinned->text(), "https://10.0.0.7:7171");
  CHECK(pinned->fingerprint == parseHex32(digits));
  for (const std::string& text : std::vector<std::string>{"https://a#" + digits, "https://a#sha256=" + digits + "0",
                                                          "https://a#sha256=", "http://a#sha256=" + digits,
                                                          "https://a#sha256=x" + digits.substr(1)})
    if (Url::parse(text)) millpond::testing::fail(__FILE__, __LINE__, std::string("accepted: ") + text);
  for (const char* text : {"", "controller:7070", "http://", "http://:80", "http://a:0", "http://a:65536", "http://a:x",
                           "http://a:", "http://u@a", "http://a?b", "http://a#b", "http://a b", "http://a\r\nX: y",
                           "http://[::1", "http://[::1]x", "http://a\"b", "ftp://a", "http://a:1:2"}) {
    if (Url::parse(text)) millpond::testing::fail(__FILE__, __LINE__, std::string("accepted: ") + text);
  }
}

TEST("a server that the authority vouches for is asked over TLS") {
  const HttpsTestServer server({});
  const auto answer = post(server);
  CHECK(bool(answer));
  CHECK_EQ(answer->body, "{}");
  CHECK_EQ(server.requests(), 1);
  // The certificate itself instead of its file, behind another one.
  const HttpsTestServer stranger({});
  CHECK(bool(post(server, "", contentOf(stranger.authorities()) + contentOf(server.authorities()))));
  const auto refused = post(server, "", contentOf(stranger.authorities()));
  CHECK(!refused && refused.failure->isUntrusted);
  CHECK(!post(server, "", "-----BEGIN CERTIFICATE-----\nnothing"));
}

TEST("a server that is not known to be the right one is asked nothing") {
  const HttpsTestServer stranger({}), expired({.hasExpired = true}), other({.names = "DNS:localhost,IP:127.0.0.2"});
  const auto refused = [](const HttpsTestServer& server, const std::string& why, const std::string& authorities = "") {
    const auto answer = post(server, "", authorities);
    CHECK(!answer);
    CHECK(answer.failure->isUntrusted);
    if (answer.failure->message.find(why) == std::string::npos)
      millpond::testing::fail(__FILE__, __LINE__, answer.failure->message);
    CHECK_EQ(server.requests(), 0);
  };
  refused(stranger, "signed by an authority that is not trusted", expired.authorities());
  refused(expired, "its certificate has expired");
  refused(other, "its certificate is for other names than the one in the address");
  refused(stranger, "the authority's certificate in /no/such/file cannot be read", "/no/such/file");
}

TEST("a fingerprint stands for one certificate, whoever signed it and for whatever names") {
  const HttpsTestServer server({.names = "DNS:elsewhere", .hasExpired = true}), another({});
  CHECK(bool(post(server, server.fingerprint(), "/no/such/file")));
  const auto answer = post(server, another.fingerprint());
  CHECK(!answer);
  CHECK(answer.failure->isUntrusted);
  CHECK_EQ(answer.failure->message,
           "it is not trusted: its certificate is not the one that the controller knows it by");
  CHECK_EQ(server.requests(), 1);
}

TEST("an answer over TLS ends where the server says so, not where somebody cut it off") {
  const std::string open = "HTTP/1.1 200 OK\r\n\r\n{\"a\":1}";
  const HttpsTestServer whole({.answer = open}), cut({.answer = open, .saysGoodbye = false});
  CHECK_EQ(post(whole)->body, "{\"a\":1}");
  const auto answer = post(cut);
  CHECK(!answer);
  CHECK(!answer.failure->isUntrusted);
}

TEST("a server that speaks no TLS is not asked in clear") {
  const HttpTestServer server([](const HttpTestServer::Request&) { return HttpTestServer::json(200, "{}"); });
  const HttpsTestServer other({});
  const auto answer = httpPost(*Url::parse("https" + server.url().substr(4)), "/x", "secret", "{}", {.connectMs = 100},
                               {other.authorities(), {}});
  CHECK(!answer);
  CHECK(!answer.failure->isUntrusted && !answer.failure->lacksTls);
  CHECK(server.requests().empty());
}

TEST("a server that replies to the handshake in clear, or closes it, is not called untrusted") {
  const HttpsTestServer other({});
  const auto failureAfter = [&](const std::string& bytes) {
    uint16_t port = 0;
    const auto listener = millpond::listenTcp("127.0.0.1", port);
    CHECK(bool(listener));
    std::thread server([&] {
      pollfd wait{listener->get(), POLLIN, 0};  // the listener does not block
      CHECK_EQ(::poll(&wait, 1, 5000), 1);
      const int client = ::accept(listener->get(), nullptr, nullptr);
      // Unread bytes would turn the end into a reset, which may overtake the reply.
      char hello[4096];
      CHECK(::recv(client, hello, sizeof(hello), 0) > 0);
      CHECK_EQ(::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
      ::close(client);
    });
    const auto answer = httpPost(*Url::parse("https://127.0.0.1:" + std::to_string(port)), "/x", "", "{}", kQuick,
                                 {other.authorities(), {}});
    server.join();
    CHECK(!answer);
    CHECK(!answer.failure->isUntrusted && !answer.failure->lacksTls);
    return answer.failure->message;
  };
  CHECK_EQ(failureAfter(""), "no TLS connection: the other side closed the connection");
  CHECK_EQ(failureAfter("HTTP/1.1 400 Bad Request\r\n\r\n"),
           "no TLS connection: it does not speak TLS; the address of a plain HTTP server begins with http://");
}

TEST("each failure of a call has its own remedy, and only those of the network are retried") {
  using millpond::client::explainFailure;
  const Url url = *Url::parse("https://c:7170");
  const std::string none;
  const millpond::client::Callee callee{url, "the controller", none, {}};
  const auto lacking = explainFailure(callee, {.message = "cannot load libmillpond-tls.so", .lacksTls = true});
  CHECK(lacking.message.find("Copy all client libraries") != std::string::npos);
  CHECK(lacking.message.find("MILLPOND_CA") == std::string::npos && !lacking.passing);
  const auto untrusted = explainFailure(callee, {"it is not trusted: its certificate has expired", true});
  CHECK(untrusted.message.find("renew it there") != std::string::npos && !untrusted.passing);
  const auto stranger = explainFailure(callee, {.message = "port 1 is served by user 4321", .isStranger = true});
  CHECK(stranger.message.find("MILLPOND_TRUSTED_USERS") != std::string::npos && !stranger.passing);
  const auto closed = explainFailure(callee, {"no TLS connection: the other side closed the connection"});
  CHECK(closed.message.find("MILLPOND_E_UNREACHABLE") != std::string::npos && closed.passing);
}
