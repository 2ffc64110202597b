// SPDX-License-Identifier: Apache-2.0
#include "client/http.h"

#include "client/http_test_server.h"
#include "testing/check.h"

using millpond::client::HttpAnswer;
using millpond::client::HttpLimits;
using millpond::client::httpPost;
using millpond::client::HttpTestServer;
using millpond::client::Url;

namespace {
constexpr HttpLimits kQuick{.connectMs = 2000, .answerMs = 5000, .bodyBytes = 1000};

// What the client makes of a server that answers with exactly these bytes and closes.
millpond::Result<HttpAnswer> answerTo(const std::string& bytes, const HttpLimits& limits = kQuick) {
  const HttpTestServer server([&](const HttpTestServer::Request&) { return bytes; });
  return httpPost(*Url::parse(server.url()), "/a.B/C", "", "{}", limits);
}
std::string failureOf(const std::string& bytes) {
  const auto answer = answerTo(bytes);
  CHECK(!answer);
  return answer.error().message;
}
}  // namespace

TEST("sends a request that a server understands") {
  const HttpTestServer server(
      [](const HttpTestServer::Request&) { return HttpTestServer::json(200, "{\"x\":1}"); });
  const auto answer = httpPost(*Url::parse(server.url() + "/base/"), "/a.B/C", "secret", "{\"q\":2}", kQuick);
  CHECK(bool(answer));
  CHECK_EQ(answer->status, 200);
  CHECK_EQ(answer->body, "{\"x\":1}");
  const auto request = server.requests().at(0);
  CHECK_EQ(request.path, "/base/a.B/C");
  CHECK_EQ(request.body, "{\"q\":2}");
  CHECK(request.head.find("\r\nAuthorization: Bearer secret") != std::string::npos);
  CHECK(request.head.find("\r\nContent-Type: application/json\r\n") != std::string::npos);
  CHECK(request.head.find("\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n") !=
        std::string::npos);
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
  CHECK_EQ(answerTo("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\n?")->status,
           404);
}

TEST("refuses what is no answer") {
  CHECK_EQ(failureOf(""), "the connection ended in the middle of the answer's header");
  CHECK_EQ(failureOf("SSH-2.0-OpenSSH_9.2\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 2x0 OK\r\n\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 999 OK\r\n\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 2000 OK\r\n\r\n"), "the answer is not HTTP/1.1");
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"),
           "the connection ended in the middle of the answer");
  CHECK_EQ(failureOf("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
           "the answer has a malformed Content-Length");
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
  const auto answer =
      httpPost(*Url::parse(server.url()), "/x", "", "{}", {.connectMs = 2000, .answerMs = 50});
  CHECK(!answer);
  CHECK_EQ(answer.error().message, "no complete answer within 50 ms");
}

TEST("nobody there") {
  uint16_t port = 0;
  {
    auto socket = millpond::listenTcp("127.0.0.1", port);
    CHECK(bool(socket));
  }
  const auto answer =
      httpPost(*Url::parse("http://127.0.0.1:" + std::to_string(port)), "/x", "", "{}", kQuick);
  CHECK(!answer);
  CHECK(answer.error().message.find("Connection refused") != std::string::npos);
}

TEST("URLs") {
  const auto url = Url::parse("http://[::1]:7070/a/b//");
  CHECK_EQ(url->host, "::1");
  CHECK_EQ(url->port, 7070);
  CHECK_EQ(url->path, "/a/b");
  CHECK_EQ(url->authority(), "[::1]:7070");
  CHECK_EQ(Url::parse("HTTP://controller")->port, 80);
  CHECK(Url::parse("https://controller:7070").error().message.find("cannot do TLS yet") != std::string::npos);
  for (const char* text :
       {"", "controller:7070", "http://", "http://:80", "http://a:0", "http://a:65536", "http://a:x",
        "http://a:", "http://u@a", "http://a?b", "http://a#b", "http://a b", "http://a\r\nX: y",
        "http://[::1", "http://[::1]x", "http://a\"b", "ftp://a", "http://a:1:2"}) {
    if (Url::parse(text)) millpond::testing::fail(__FILE__, __LINE__, std::string("accepted: ") + text);
  }
}
