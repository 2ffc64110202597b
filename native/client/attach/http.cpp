// SPDX-License-Identifier: Apache-2.0
#include "client/attach/http.h"

#include <poll.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <optional>
#include <span>

#include "protocol/transport/channel.h"
#include "protocol/transport/tls_library.h"

namespace millpond::client {

namespace {

constexpr size_t kHeaderBytes = size_t{64} << 10;

int64_t nowMs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

bool sameIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <typename T>
std::optional<T> wholeNumber(std::string_view text, int base = 10) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads the response of one connection; `unread_` holds received bytes that were not consumed yet.
class AnswerReader {
 public:
  AnswerReader(Channel& channel, const HttpLimits& limits)
      : channel_(channel), limits_(limits), deadlineMs_(nowMs() + limits.answerMs) {}

  Result<HttpAnswer> read() {
    HttpAnswer answer;
    do {
      length_.reset();
      chunked_ = false;
      if (auto head = readHead(answer.status); !head) return head.error();
    } while (answer.status < 200);
    const bool bodyless = answer.status == 204 || answer.status == 304;
    Status body = bodyless ? Status(Done{}) : chunked_ ? readChunks(answer.body) : readBody(answer.body);
    if (!body) return body.error();
    return answer;
  }

 private:
  // Appends the next bytes; false at the end of the stream.
  Result<bool> more() {
    for (;;) {
      const int64_t left = deadlineMs_ - nowMs();
      if (left <= 0) return Error{"no complete answer within " + std::to_string(limits_.answerMs) + " ms"};
      if (channel_.wait(POLLIN, static_cast<int>(left)) == 0) continue;
      char chunk[8192];
      const ssize_t n = channel_.receive(std::as_writable_bytes(std::span(chunk)));
      if (n > 0) {
        unread_.append(chunk, static_cast<size_t>(n));
        return true;
      }
      if (n == 0) return false;
      if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
        return Error{std::string("the connection failed: ") + std::strerror(errno)};
      }
    }
  }

  Status need(const char* what) {
    auto came = more();
    if (!came) return came.error();
    if (!*came) return Error{std::string("the connection ended in the middle of ") + what};
    return Done{};
  }

  Result<std::string> takeLine(size_t most) {
    for (;;) {
      const size_t end = unread_.find('\n');
      if (end != std::string::npos && end <= most) {
        std::string line = unread_.substr(0, end);
        if (!line.empty() && line.back() == '\r') line.pop_back();
        unread_.erase(0, end + 1);
        return line;
      }
      if (unread_.size() > most) return Error{"the answer's header is too long"};
      if (auto came = need("the answer's header"); !came) return came.error();
    }
  }

  Status readHead(int& status) {
    size_t room = kHeaderBytes;
    auto line = takeLine(room);
    if (!line) return line.error();
    const std::string_view text = *line;
    std::optional<int> code;
    if ((text.starts_with("HTTP/1.1 ") || text.starts_with("HTTP/1.0 ")) && (text.size() == 12 || text[12] == ' ')) {
      code = wholeNumber<int>(text.substr(9, 3));
    }
    if (!code || *code < 100 || *code > 599) return Error{"the answer is not HTTP/1.1"};
    status = *code;
    for (;;) {
      room -= std::min(room, line->size() + 1);
      line = takeLine(room);
      if (!line) return line.error();
      if (line->empty()) return Done{};
      const size_t colon = line->find(':');
      if (colon == std::string::npos || colon == 0) return Error{"the answer has a malformed header"};
      const std::string_view name = std::string_view(*line).substr(0, colon);
      const std::string_view value = trimmed(std::string_view(*line).substr(colon + 1));
      if (sameIgnoringCase(name, "Content-Length")) {
        const auto length = wholeNumber<size_t>(value);
        if (!length || (length_ && *length_ != *length)) return Error{"the answer has a malformed Content-Length"};
        length_ = length;
      } else if (sameIgnoringCase(name, "Transfer-Encoding")) {
        if (!sameIgnoringCase(value, "chunked")) return Error{"the answer has an unknown Transfer-Encoding"};
        chunked_ = true;
      } else if (sameIgnoringCase(name, "Content-Encoding") && !sameIgnoringCase(value, "identity")) {
        return Error{"the answer is compressed although that was not asked for"};
      }
    }
  }

  Status tooLong() const { return Error{"the answer is longer than " + std::to_string(limits_.bodyBytes) + " bytes"}; }

  // By Content-Length, or to the end of the connection.
  Status readBody(std::string& body) {
    if (length_ && *length_ > limits_.bodyBytes) return tooLong();
    while (!length_ || unread_.size() < *length_) {
      if (unread_.size() > limits_.bodyBytes) return tooLong();
      auto came = more();
      if (!came) return came.error();
      if (*came) continue;
      if (length_) return Error{"the connection ended in the middle of the answer"};
      break;
    }
    body = unread_.substr(0, length_.value_or(unread_.size()));
    return Done{};
  }

  Status readChunks(std::string& body) {
    for (;;) {
      auto line = takeLine(256);
      if (!line) return line.error();
      const auto size = wholeNumber<size_t>(trimmed(std::string_view(*line).substr(0, line->find(';'))), 16);
      if (!size) return Error{"the answer has a malformed chunk"};
      if (*size == 0) break;
      if (*size > limits_.bodyBytes - body.size()) return tooLong();
      while (unread_.size() < *size + 2) {
        if (auto came = need("the answer"); !came) return came;
      }
      if (unread_.compare(*size, 2, "\r\n") != 0) return Error{"the answer has a malformed chunk"};
      body.append(unread_, 0, *size);
      unread_.erase(0, *size + 2);
    }
    for (size_t room = kHeaderBytes;;) {  // trailers
      auto line = takeLine(room);
      if (!line) return line.error();
      if (line->empty()) return Done{};
      room -= std::min(room, line->size() + 1);
    }
  }

  Channel& channel_;
  const HttpLimits& limits_;
  int64_t deadlineMs_;
  std::string unread_;
  std::optional<size_t> length_;
  bool chunked_ = false;
};

bool plainHost(std::string_view host) {
  for (const char c : host) {
    const bool letterOrDigit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letterOrDigit && c != '-' && c != '.' && c != '_' && c != ':' && c != '%') return false;
  }
  return !host.empty();
}

}  // namespace

Result<Url> Url::parse(std::string_view text) {
  const std::string shown(text.substr(0, 200));
  const std::string form = "' is not a URL of the form https://host:port or http://host:port";
  Url url;
  url.isSecure = text.size() >= 8 && sameIgnoringCase(text.substr(0, 8), "https://");
  if (!url.isSecure && (text.size() < 7 || !sameIgnoringCase(text.substr(0, 7), "http://")))
    return Error{"'" + shown + form};
  if (url.isSecure) url.port = 443;
  constexpr std::string_view kPin = "#sha256=";
  if (const size_t hash = text.find('#'); url.isSecure && hash != std::string_view::npos) {
    if (text.substr(hash).starts_with(kPin)) url.fingerprint = parseHex32(text.substr(hash + kPin.size()));
    if (!url.fingerprint)
      return Error{"'" + shown + "' has a fingerprint that is not '#sha256=' and 64 hexadecimal digits"};
    text = text.substr(0, hash);
  }
  for (const char c : text) {
    if (c <= ' ' || c == 0x7f || c == '?' || c == '#' || c == '@' || c == '\\' || c == '"')
      return Error{"'" + shown + form + ": it contains a character that may not be there"};
  }
  std::string_view rest = text.substr(url.isSecure ? 8 : 7);
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    std::string_view path = rest.substr(slash);
    while (path.ends_with('/')) path.remove_suffix(1);
    url.path = path;
    rest = rest.substr(0, slash);
  }
  std::optional<std::string_view> port;
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == std::string_view::npos) return Error{"'" + shown + "' has an unfinished IPv6 address"};
    url.host = rest.substr(1, close - 1);
    rest = rest.substr(close + 1);
    if (rest.starts_with(':')) {
      port = rest.substr(1);
    } else if (!rest.empty()) {
      return Error{"'" + shown + form};
    }
  } else {
    const size_t colon = rest.find(':');
    url.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) port = rest.substr(colon + 1);
  }
  if (!plainHost(url.host)) return Error{"'" + shown + "' names no host"};
  if (port) {
    const auto number = wholeNumber<uint16_t>(*port);
    if (!number || *number == 0) return Error{"'" + shown + "' has a bad port; ports are 1 to 65535"};
    url.port = *number;
  }
  return url;
}

std::string Url::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string Url::text() const { return (isSecure ? "https://" : "http://") + authority() + path; }

namespace {

/// Connects, and verifies the server.
std::optional<HttpFailure> openChannel(const Url& base, const HttpTrust& trust, const HttpLimits& limits,
                                       Channel& channel) {
  std::unique_ptr<TlsStream> tls;
  if (base.isSecure) {
    if (auto library = tlsLibrary(); !library) return HttpFailure{.message = library.error().message, .lacksTls = true};
    auto made = TlsStream::toServer({base.host, trust.authorities, base.fingerprint});
    if (!made) return HttpFailure{made.error().message, true};
    tls = std::move(*made);
  }
  auto socket = connectTcp(base.host, base.port, limits.connectMs);
  if (!socket) return HttpFailure{socket.error().message};
  channel = Channel(std::move(*socket));
  if (!tls) {
    auto doubt = doubtLoopbackPeer(channel.socket(), trust.users);
    if (!doubt) return std::nullopt;
    return HttpFailure{.message = std::move(doubt->message), .isStranger = doubt->isStranger};
  }
  if (auto shaken = tls->shakeWithin(channel.socket(), limits.connectMs); !shaken)
    return tls->isUntrusted() ? HttpFailure{shaken.error().message, true}
                              : HttpFailure{"no TLS connection: " + shaken.error().message};
  channel.encrypt(std::move(tls));
  return std::nullopt;
}

}  // namespace

Result<HttpAnswer> readAnswer(Channel& channel, const HttpLimits& limits) {
  return AnswerReader(channel, limits).read();
}

HttpResult httpPost(const Url& base, std::string_view path, std::string_view bearer, std::string_view body,
                    const HttpLimits& limits, const HttpTrust& trust) {
  std::string request = "POST " + base.path;
  request.append(path).append(" HTTP/1.1\r\nHost: ").append(base.authority());
  request.append("\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnect-Protocol-Version: 1\r\n");
  request.append("Connection: close\r\nContent-Length: ").append(std::to_string(body.size())).append("\r\n");
  if (!bearer.empty()) request.append("Authorization: Bearer ").append(bearer).append("\r\n");
  request.append("\r\n").append(body);

  Channel channel;
  if (auto failure = openChannel(base, trust, limits, channel)) return {{}, std::move(failure)};
  const Status sent = sendAll(channel, std::as_bytes(std::span(request.data(), request.size())));
  // A server may refuse before it has read everything; its response matters more than the failed send.
  auto answer = readAnswer(channel, limits);
  if (!answer) return {{}, HttpFailure{(sent ? answer.error() : sent.error()).message}};
  return {std::move(*answer), std::nullopt};
}

}  // namespace millpond::client
