// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/tls_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "protocol/futex.h"
#include "protocol/transport/tls_library.h"

namespace millpond {
namespace {

constexpr size_t kInBytes = size_t{128} << 10;
/// Number of records per write to the socket.
constexpr size_t kBatchRecords = 16;
constexpr size_t kOutBytes = kBatchRecords * (kTlsRecordBytes + kTlsRecordOverhead) + kTlsMostUnsent;

int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// Walks through runs, a record at a time.
class Records {
 public:
  explicit Records(std::span<const iovec> runs) : runs_(runs) {}

  /// The next record: in place if it is contiguous, otherwise copied to `room`; empty at the end.
  std::span<const std::byte> next(std::span<std::byte> room) {
    skipEmpty();
    if (runs_.empty()) return {};
    if (runs_.size() == 1 || left() >= kTlsRecordBytes) return piece(kTlsRecordBytes);
    size_t filled = 0;
    for (; !runs_.empty() && filled < kTlsRecordBytes; skipEmpty()) {
      const auto part = piece(kTlsRecordBytes - filled);
      std::memcpy(room.data() + filled, part.data(), part.size());
      filled += part.size();
    }
    return room.first(filled);
  }

 private:
  size_t left() const { return runs_.front().iov_len - at_; }
  void skipEmpty() {
    while (!runs_.empty() && left() == 0) {
      runs_ = runs_.subspan(1);
      at_ = 0;
    }
  }
  std::span<const std::byte> piece(size_t most) {
    const size_t bytes = std::min(most, left());
    const std::span<const std::byte> out(static_cast<const std::byte*>(runs_.front().iov_base) + at_, bytes);
    at_ += bytes;
    return out;
  }

  std::span<const iovec> runs_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::array<std::byte, kTlsSecretBytes>> parseHex32(std::string_view text) {
  std::array<std::byte, kTlsSecretBytes> out;
  if (text.size() != 2 * out.size()) return std::nullopt;
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = hexDigit(text[2 * i]), low = hexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out[i] = static_cast<std::byte>(high << 4 | low);
  }
  return out;
}

TlsStream::TlsStream(const MillpondTlsFunctions* library, MillpondTls* tls, bool isLink)
    : library_(library),
      tls_(tls),
      isLink_(isLink),
      in_(std::make_unique<std::byte[]>(kInBytes)),
      out_(std::make_unique<std::byte[]>(kOutBytes)) {}

TlsStream::~TlsStream() { library_->close(tls_); }

Result<std::unique_ptr<TlsStream>> TlsStream::ofLink(MillpondTlsSide side, const LinkSecret& secret,
                                                     uint64_t rekeyBytes) {
  auto library = tlsLibrary();
  if (!library) return library.error();
  MillpondTls* tls = (*library)->openLink(side, secret.data(), rekeyBytes);
  if (!tls) return Error{"TLS could not be set up"};
  return std::unique_ptr<TlsStream>(new TlsStream(*library, tls, true));
}

Result<std::unique_ptr<TlsStream>> TlsStream::toServer(const TlsServer& server) {
  auto library = tlsLibrary();
  if (!library) return library.error();
  char why[512] = "";
  MillpondTls* tls =
      (*library)->openClient(server.host.c_str(), server.authorities.empty() ? nullptr : server.authorities.c_str(),
                             server.fingerprint ? server.fingerprint->data() : nullptr, why, sizeof(why));
  if (!tls) return Error{why};
  return std::unique_ptr<TlsStream>(new TlsStream(*library, tls, false));
}

MillpondTlsShake TlsStream::shake(int socket) {
  for (;;) {
    size_t used = 0;
    MillpondTlsShake state = library_->shake(tls_, in_.get() + inBegin_, inEnd_ - inBegin_, &used);
    inBegin_ += used;
    if (state < 0) why_ = library_->why(tls_);
    isUntrusted_ = state == kTlsShakeUntrusted;
    if (isUntrusted_) state = kTlsShakeFailed;
    outEnd_ += library_->take(tls_, out_.get() + outEnd_, kOutBytes - outEnd_);
    const Flushed flushed = flush(socket);
    if (state == kTlsShakeFailed) return kTlsShakeFailed;
    if (flushed == Flushed::kFailed) {
      why_ = std::strerror(errno);
      return kTlsShakeFailed;
    }
    if (flushed == Flushed::kPart) return kTlsShakeMore;
    if (state == kTlsShakeDone) {
      holds_ = inBegin_ != inEnd_;
      return kTlsShakeDone;
    }
    inBegin_ = 0;
    inEnd_ = 0;
    const ssize_t n = ::recv(socket, in_.get(), kInBytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return kTlsShakeMore;
    if (n <= 0) {
      why_ = n == 0 ? "the other side closed the connection" : std::strerror(errno);
      return kTlsShakeFailed;
    }
    inEnd_ = static_cast<size_t>(n);
  }
}

Status TlsStream::shakeWithin(int socket, int timeoutMs) {
  const int64_t deadline = monotonicNs() + int64_t{timeoutMs} * 1'000'000;
  for (;;) {
    const MillpondTlsShake state = shake(socket);
    if (state == kTlsShakeDone) return Done{};
    if (state == kTlsShakeFailed) return Error{why_};
    const int64_t left = (deadline - monotonicNs()) / 1'000'000;
    pollfd wait{socket, static_cast<short>(outBegin_ == outEnd_ ? POLLIN : POLLOUT), 0};
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) == 0)
      return Error{"no answer within " + std::to_string(timeoutMs) + " ms"};
  }
}

ssize_t TlsStream::unseal(std::span<std::byte> to) {
  size_t used = 0;
  std::lock_guard lock(mutex_);
  const ptrdiff_t n = library_->unseal(tls_, in_.get() + inBegin_, inEnd_ - inBegin_, &used, to.data(), to.size());
  inBegin_ += used;
  // Bytes of the same record, or an end detected after these.
  holds_ = n > 0;
  if (n == kTlsFailed) why_ = library_->why(tls_);
  return n;
}

ssize_t TlsStream::openRecords(std::span<std::byte> to) {
  size_t filled = 0;
  for (;;) {
    const size_t bytes = std::min(plain_.size(), to.size() - filled);
    if (bytes) std::memcpy(to.data() + filled, plain_.data(), bytes);
    plain_ = plain_.subspan(bytes);
    filled += bytes;
    if (!plain_.empty()) break;
    size_t used = 0;
    const std::byte* plain = nullptr;
    const ptrdiff_t n = library_->openRecord(tls_, in_.get() + inBegin_, inEnd_ - inBegin_, &used, &plain);
    if (n < 0) {
      if (n == kTlsFailed) why_ = library_->why(tls_);
      // These bytes are returned first; the next call fails again.
      holds_ = filled > 0;
      return filled > 0 ? static_cast<ssize_t>(filled) : n;
    }
    if (used == 0) {
      holds_ = false;
      return static_cast<ssize_t>(filled);
    }
    inBegin_ += used;
    plain_ = {plain, static_cast<size_t>(n)};
  }
  holds_ = true;
  return static_cast<ssize_t>(filled);
}

ssize_t TlsStream::receive(int socket, std::span<std::byte> to) {
  for (;;) {
    if (holds_) {
      const ssize_t n = isLink_ ? openRecords(to) : unseal(to);
      if (n > 0) return n;
      if (n == kTlsClosed) return 0;
      if (n == kTlsFailed) {
        errno = EBADMSG;
        return -1;
      }
    }
    // The beginning of a record.
    if (inBegin_ != inEnd_) std::memmove(in_.get(), in_.get() + inBegin_, inEnd_ - inBegin_);
    inEnd_ -= inBegin_;
    inBegin_ = 0;
    const ssize_t n = ::recv(socket, in_.get() + inEnd_, kInBytes - inEnd_, MSG_DONTWAIT);
    if (n < 0) return n;
    if (n == 0) {
      // A session's own protocol detects truncation; elsewhere an attacker may have cut the connection.
      if (isLink_) return 0;
      errno = ECONNRESET;
      return -1;
    }
    inEnd_ += static_cast<size_t>(n);
    holds_ = true;
  }
}

TlsStream::Flushed TlsStream::flush(int socket) {
  while (outBegin_ < outEnd_) {
    const ssize_t n = ::send(socket, out_.get() + outBegin_, outEnd_ - outBegin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
      outBegin_ += static_cast<size_t>(n);
    else if (errno != EINTR)
      return errno == EAGAIN || errno == EWOULDBLOCK ? Flushed::kPart : Flushed::kFailed;
  }
  outBegin_ = 0;
  outEnd_ = 0;
  return Flushed::kAll;
}

bool TlsStream::sealSome(std::span<const iovec> runs) {
  Records records(runs);
  std::array<std::byte, kTlsRecordBytes> room;
  for (size_t i = 0; i < kBatchRecords; ++i) {
    const auto record = records.next(room);
    if (record.empty()) break;
    std::unique_lock lock(mutex_, std::defer_lock);
    if (!isLink_) lock.lock();
    const size_t n = library_->seal(tls_, record.data(), record.size(), out_.get() + outEnd_, kOutBytes - outEnd_);
    if (n == 0) return false;
    outEnd_ += n;
    outPlain_ += record.size();
  }
  return true;
}

ssize_t TlsStream::send(int socket, std::span<const iovec> runs) {
  if (outPlain_ == 0 && !sealSome(runs)) {
    errno = EBADMSG;
    return -1;
  }
  // A partially sent record is resent unchanged: the bytes after it must still be the first ones.
  size_t offered = 0;
  for (const iovec& run : runs) offered += run.iov_len;
  if (offered < outPlain_) {
    errno = EPROTO;
    return -1;
  }
  if (flush(socket) != Flushed::kAll) return -1;
  return static_cast<ssize_t>(std::exchange(outPlain_, 0));
}

}  // namespace millpond
