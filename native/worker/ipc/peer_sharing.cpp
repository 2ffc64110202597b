// SPDX-License-Identifier: Apache-2.0
#include "worker/ipc/peer_sharing.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "protocol/transport/socket.h"

namespace millpond::worker {
namespace {

constexpr uint32_t kMagic = 0x3249706d;
constexpr size_t kMaxId = 16;
/// For a worker that is stopped or busy; others reply immediately.
constexpr int kPatienceMs = 5'000;
/// The reply fits into the buffers of a new socket.
constexpr int kAnswerMs = 100;
/// A worker sends its request as soon as it is connected: of the connections without one, the oldest are dropped.
constexpr size_t kMostCallers = 64;
/// The block size of SHA-256, to which HMAC pads its key.
constexpr size_t kBlock = 64;

struct HandleBytes {
  uint32_t magic = kMagic;
  Sharing::Kind kind{};
  uint64_t number = 0;
  std::array<char, kMaxId> id{};
  Sha256 proof{};
};
static_assert(sizeof(HandleBytes) == sizeof(Sharing::Handle));
constexpr size_t kProven = offsetof(HandleBytes, proof);

struct Question {
  Sharing::Handle handle;
  Sha256 proof;
};

struct Answer {
  uint32_t isThere = 0;
  uint32_t hasFile = 0;
  Sharing::Item::Facts facts;
};

template <typename T>
std::span<const std::byte> bytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

HandleBytes read(const Sharing::Handle& handle) {
  HandleBytes bytes;
  std::memcpy(&bytes, handle.data(), sizeof bytes);
  return bytes;
}

/// Whether that is a valid name of a worker's folder, and nothing else.
bool isId(const std::string& id) {
  if (id.empty() || id.size() > kMaxId) return false;
  for (const char c : id) {
    const bool isPlain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!isPlain) return false;
  }
  return true;
}

/// Whether the session that shares it also opens it like any other session.
bool isOpenToAll(Sharing::Kind kind) { return kind == Sharing::Kind::kPool || kind == Sharing::Kind::kPoolMemory; }

std::string idOf(const HandleBytes& bytes) { return {bytes.id.data(), ::strnlen(bytes.id.data(), kMaxId)}; }

/// In constant time.
bool areEqual(const Sha256& a, const Sha256& b) {
  std::byte difference{};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

/// HMAC (RFC 2104) with SHA-256.
Sha256 authenticate(const Sharing::Secret& secret, std::span<const std::byte> message) {
  const auto padded = [&](std::byte pad, std::span<const std::byte> behind) {
    std::vector<std::byte> all(kBlock, pad);
    for (size_t i = 0; i < secret.size(); ++i) all[i] ^= secret[i];
    all.insert(all.end(), behind.begin(), behind.end());
    return sha256(all);
  };
  return padded(std::byte{0x5c}, padded(std::byte{0x36}, message));
}

}  // namespace

Sharing::Sharing(std::string path, std::string id, const Secret& secret)
    : path_(std::move(path)), id_(std::move(id)), secret_(secret) {}

Sharing::~Sharing() {
  if (listener_) ::unlink(path_.c_str());
}

Status Sharing::listen() {
  const std::string folder = path_.substr(0, path_.rfind('/'));
  if (!isId(id_) || !folder.ends_with("/" + id_))
    return Error{"the socket for other workers, " + path_ + ", is not in a folder of this worker's id, " + id_};
  auto socket = listenUnix(path_, 0600);
  if (!socket) return socket.error();
  listener_ = std::move(*socket);
  return Done{};
}

Sha256 Sharing::proof(const char* meaning, std::span<const std::byte> of) const {
  const auto text = std::as_bytes(std::span(meaning, std::strlen(meaning) + 1));
  std::vector<std::byte> message(text.begin(), text.end());
  message.insert(message.end(), of.begin(), of.end());
  return authenticate(secret_, message);
}

Sharing::Handle Sharing::handleOf(Kind kind, uint64_t number) const {
  HandleBytes bytes{.kind = kind, .number = number};
  std::memcpy(bytes.id.data(), id_.data(), id_.size());
  bytes.proof = proof("handle", bytesOf(bytes).first(kProven));
  Handle handle;
  std::memcpy(handle.data(), &bytes, sizeof bytes);
  return handle;
}

std::optional<Sharing::Handle> Sharing::find(Kind kind, uint64_t object) const {
  const std::lock_guard lock(mutex_);
  const auto found = shared_.find({kind, object});
  if (found == shared_.end()) return std::nullopt;
  return handleOf(kind, found->second.number);
}

std::shared_ptr<const UniqueFd> Sharing::fileOf(const std::array<std::byte, 16>& uuid, uint64_t run) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, shared] : shared_)
    if (shared.item.file && shared.item.facts.run == run && shared.item.facts.uuid == uuid) return shared.item.file;
  return nullptr;
}

Sharing::Handle Sharing::add(Kind kind, uint64_t object, Item item) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = ++lastNumber_;
  shared_.insert_or_assign({kind, object}, Shared{number, std::move(item)});
  return handleOf(kind, number);
}

void Sharing::remove(Kind kind, uint64_t object) {
  const std::lock_guard lock(mutex_);
  shared_.erase({kind, object});
}

std::optional<Sharing::Refusal> Sharing::open(Kind kind, const Handle& handle, Item& item) const {
  const HandleBytes bytes = read(handle);
  const std::string id = idOf(bytes);
  const bool isOurs = bytes.magic == kMagic && bytes.kind == kind && isId(id) &&
                      areEqual(bytes.proof, proof("handle", std::span(handle).first(kProven)));
  if (!isOurs) return Refusal::kNotOfClaim;
  if (id == id_ && !isOpenToAll(kind)) return Refusal::kOwn;
  const size_t name = path_.rfind('/');
  const std::string folders = path_.substr(0, path_.rfind('/', name - 1) + 1);
  const auto gone = [&](const std::string& why) {
    log(LogLevel::Info, "worker %s does not share that: %s", id.c_str(), why.c_str());
    return Refusal::kGone;
  };
  auto socket = connectUnix(folders + id + path_.substr(name));
  if (!socket) return gone(socket.error().message);
  const Question question{handle, proof("open", handle)};
  if (auto sent = sendAll(socket->get(), bytesOf(question), kPatienceMs); !sent) return gone(sent.error().message);
  Answer answer;
  if (auto got = receiveExactly(socket->get(), std::as_writable_bytes(std::span(&answer, 1)), kPatienceMs); !got)
    return gone(got.error().message);
  if (!answer.isThere) return gone("it has ended");
  item.facts = answer.facts;
  item.worker = id;
  if (!answer.hasFile) return std::nullopt;
  auto file = receiveFile(socket->get(), kPatienceMs);
  if (!file) return gone(file.error().message);
  item.file = std::make_shared<const UniqueFd>(std::move(*file));
  return std::nullopt;
}

void Sharing::collect(std::vector<int>& sockets) const {
  sockets.push_back(listener_.get());
  for (const Caller& caller : callers_) sockets.push_back(caller.socket.get());
}

void Sharing::serve() {
  for (size_t i = 0; i < kMostCallers; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) break;
    if (callers_.size() == kMostCallers) callers_.pop_front();
    callers_.push_back({std::move(socket), {}});
  }
  std::erase_if(callers_, [this](Caller& caller) { return progress(caller); });
}

bool Sharing::progress(Caller& caller) {
  std::byte buffer[sizeof(Question)];
  const ssize_t n = ::recv(caller.socket.get(), buffer, sizeof(Question) - caller.received.size(), 0);
  if (n < 0) return errno != EAGAIN && errno != EINTR;
  if (n == 0) return true;
  caller.received.insert(caller.received.end(), buffer, buffer + n);
  if (caller.received.size() < sizeof(Question)) return false;
  answer(caller.socket.get(), caller.received);
  return true;
}

void Sharing::answer(int socket, std::span<const std::byte> received) {
  Question question;
  std::memcpy(static_cast<void*>(&question), received.data(), sizeof question);
  const HandleBytes wanted = read(question.handle);
  if (!areEqual(question.proof, proof("open", question.handle)) || idOf(wanted) != id_ ||
      !areEqual(wanted.proof, proof("handle", std::span(question.handle).first(kProven)))) {
    log(LogLevel::Warn, "a process outside this claim asked for its shared objects");
    return;
  }
  Answer answer;
  UniqueFd file;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, shared] : shared_) {
      if (key.first != wanted.kind || shared.number != wanted.number) continue;
      answer.isThere = 1;
      answer.facts = shared.item.facts;
      if (shared.item.file) file.reset(::fcntl(shared.item.file->get(), F_DUPFD_CLOEXEC, 0));
      if (shared.item.file && !file) answer.isThere = 0;
    }
  }
  answer.hasFile = file ? 1 : 0;
  auto sent = sendAll(socket, bytesOf(answer), kAnswerMs);
  if (sent && file) sent = sendFile(socket, file.get(), kAnswerMs);
  if (!sent)
    log(LogLevel::Info, "another worker did not accept the object that it asked for: %s", sent.error().message.c_str());
}

}  // namespace millpond::worker
