// SPDX-License-Identifier: Apache-2.0
#include "worker/sharing.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "protocol/socket.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr Sharing::Secret kOfClaim{std::byte{1}};
constexpr Sharing::Secret kOfAnother{std::byte{2}};

/// A node's folder of workers.
class Node {
 public:
  Node() {
    char pattern[] = "/tmp/millpond-sharing-XXXXXX";
    CHECK(::mkdtemp(pattern) != nullptr);
    path_ = pattern;
  }
  ~Node() {
    for (const char* id : {"w-a", "w-b"}) ::rmdir((path_ + "/" + id).c_str());
    ::rmdir(path_.c_str());
  }
  std::string socketOf(const std::string& id) const {
    ::mkdir((path_ + "/" + id).c_str(), 0700);
    return path_ + "/" + id + "/peers.sock";
  }

 private:
  std::string path_;
};

/// A worker that answers.
class Worker {
 public:
  Worker(const Node& node, const std::string& id, const Sharing::Secret& secret) : sharing(node.socketOf(id), id, secret) {
    CHECK(bool(sharing.listen()));
    thread_ = std::thread([this] {
      while (!isOver_.load()) {
        pollfd look{sharing.listener(), POLLIN, 0};
        ::poll(&look, 1, 10);
        sharing.serve();
      }
    });
  }
  ~Worker() {
    isOver_.store(true);
    thread_.join();
  }

  Sharing sharing;

 private:
  std::atomic<bool> isOver_{false};
  std::thread thread_;
};

Sharing::Item fileWith(const char* text) {
  Sharing::Item item;
  item.file.reset(::memfd_create("shared", MFD_CLOEXEC));
  CHECK(item.file);
  CHECK_EQ(::pwrite(item.file.get(), text, std::strlen(text), 0), static_cast<ssize_t>(std::strlen(text)));
  item.facts.bytes = std::strlen(text);
  item.facts.offset = 3;
  item.facts.uuid[0] = std::byte{9};
  return item;
}

std::string textOf(const Sharing::Item& item) {
  char text[64] = {};
  CHECK(::pread(item.file.get(), text, sizeof text - 1, 0) >= 0);
  return text;
}

TEST("what one worker shares, another of its claim opens, as often as it likes") {
  const Node node;
  Worker a(node, "w-a", kOfClaim);
  Worker b(node, "w-b", kOfClaim);
  const Sharing::Handle handle = a.sharing.add(Sharing::Kind::kMemory, 7, fileWith("memory"));
  CHECK(a.sharing.find(Sharing::Kind::kMemory, 7) == handle);
  CHECK(!a.sharing.find(Sharing::Kind::kPages, 7));
  for (int i = 0; i < 3; ++i) {
    Sharing::Item item;
    CHECK(!b.sharing.open(Sharing::Kind::kMemory, handle, item));
    CHECK_EQ(textOf(item), "memory");
    CHECK_EQ(item.facts.bytes, 6u);
    CHECK_EQ(item.facts.offset, 3u);
    CHECK(item.facts.uuid[0] == std::byte{9});
  }
  Sharing::Item event;
  event.facts.event[63] = std::byte{5};
  const Sharing::Handle ofEvent = b.sharing.add(Sharing::Kind::kEvent, 7, std::move(event));
  Sharing::Item opened;
  CHECK(!a.sharing.open(Sharing::Kind::kEvent, ofEvent, opened));
  CHECK(opened.facts.event[63] == std::byte{5});
  CHECK(!opened.file);
}

TEST("nothing is opened of one's own, of another kind, of what has ended, or of who has ended") {
  const Node node;
  Worker b(node, "w-b", kOfClaim);
  Sharing::Item item;
  Sharing::Handle handle;
  {
    Worker a(node, "w-a", kOfClaim);
    handle = a.sharing.add(Sharing::Kind::kMemory, 1, fileWith("x"));
    CHECK(a.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kOwn);
    CHECK(b.sharing.open(Sharing::Kind::kPages, handle, item) == Sharing::Refusal::kNotOfClaim);
    a.sharing.remove(Sharing::Kind::kMemory, 1);
    CHECK(b.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kGone);
    // The number of another thing is another one.
    const Sharing::Handle next = a.sharing.add(Sharing::Kind::kMemory, 1, fileWith("y"));
    CHECK(next != handle);
    CHECK(b.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kGone);
    handle = next;
  }
  CHECK(b.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kGone);
}

TEST("handles of other claims, and any that was changed, are none") {
  const Node node;
  Worker a(node, "w-a", kOfClaim);
  Worker stranger(node, "w-b", kOfAnother);
  const Sharing::Handle handle = a.sharing.add(Sharing::Kind::kMemory, 1, fileWith("secret"));
  Sharing::Item item;
  CHECK(stranger.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kNotOfClaim);
  const Sharing own(node.socketOf("w-b"), "w-b", kOfClaim);
  for (size_t i = 0; i < handle.size(); ++i) {
    Sharing::Handle changed = handle;
    changed[i] ^= std::byte{1};
    CHECK(own.open(Sharing::Kind::kMemory, changed, item) == Sharing::Refusal::kNotOfClaim);
  }
  CHECK(!own.open(Sharing::Kind::kMemory, handle, item));
}

TEST("who reaches the socket and has a handle, but not the secret, is told nothing") {
  const Node node;
  Worker a(node, "w-a", kOfClaim);
  const Sharing::Handle handle = a.sharing.add(Sharing::Kind::kMemory, 1, fileWith("secret"));
  for (const size_t bytes : {size_t{1}, handle.size(), handle.size() + 32}) {
    auto socket = connectUnix(node.socketOf("w-a"));
    CHECK(bool(socket));
    std::vector<std::byte> question(bytes);
    std::memcpy(question.data(), handle.data(), std::min(bytes, handle.size()));
    CHECK(bool(sendAll(socket->get(), question)));
    ::shutdown(socket->get(), SHUT_WR);
    std::byte answer;
    CHECK(!receiveExactly(socket->get(), std::span(&answer, 1), 60'000));
  }
}

TEST("the socket is for workers alone, in a folder of their own") {
  const Node node;
  Worker a(node, "w-a", kOfClaim);
  struct stat status {};
  CHECK_EQ(::stat(node.socketOf("w-a").c_str(), &status), 0);
  CHECK_EQ(status.st_mode & 0777, 0600u);
  Sharing misplaced(node.socketOf("w-b"), "w-a", kOfClaim);
  CHECK(!misplaced.listen());
  Sharing nameless(node.socketOf("w-b"), "../w-b", kOfClaim);
  CHECK(!nameless.listen());
}

}  // namespace
}  // namespace millpond::worker
