// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as the answer of a controller or an agent: HTTP, the JSON in it, and the addresses in that.
#include <fcntl.h>
#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"
#include "client/attach/http.h"
#include "testing/check.h"

namespace millpond::client {
namespace {

constexpr HttpLimits kLimits{.connectMs = 1000, .answerMs = 1000, .bodyBytes = 2048};

void useText(const Json& value) {
  if (const std::string* text = value.string()) {
    // An accepted address means the same when it is written again.
    const auto url = Url::parse(*text);
    if (!url || url->fingerprint) return;
    const auto again = Url::parse(url->text());
    CHECK(bool(again));
    CHECK_EQ(again->text(), url->text());
  }
  if (const Json::Array* items = value.array())
    for (const Json& each : *items) useText(each);
  if (const Json::Object* members = value.object())
    for (const Json::Member& each : *members) useText(each.value);
}

void read(std::span<const std::byte> bytes) {
  int ends[2];
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  UniqueFd server(ends[1]);
  Channel channel{UniqueFd(ends[0])};
  // All of it is in the socket's buffer before it is read.
  CHECK_EQ(::send(server.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  server.reset();
  const auto answer = readAnswer(channel, kLimits);
  if (!answer) {
    CHECK(!answer.error().message.empty());
    return;
  }
  CHECK(answer->status >= 200 && answer->status <= 599);
  CHECK(answer->body.size() <= kLimits.bodyBytes);
  const auto value = Json::parse(answer->body);
  if (!value) return;
  const std::string text = value->dump();
  const auto again = Json::parse(text);
  CHECK(bool(again));
  CHECK_EQ(again->dump(), text);
  useText(*value);
}

}  // namespace
}  // namespace millpond::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 8192) return 0;
  millpond::client::read(std::as_bytes(std::span(data, size)));
  return 0;
}
