// SPDX-License-Identifier: Apache-2.0
#include "worker/ipc/peer_sharing.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "protocol/transport/socket.h"
#include "testing/check.h"
#include "worker/testing/sharing_worker.h"

namespace millpond::worker {
namespace {

constexpr Sharing::Secret kOfClaim{std::byte{1}};
constexpr Sharing::Secret kOfAnother{std::byte{2}};

Sharing::Item fileWith(const char* text) {
  Sharing::Item item;
  item.file = std::make_shared<const UniqueFd>(::memfd_create("shared", MFD_CLOEXEC));
  CHECK_EQ(::pwrite(item.file->get(), text, std::strlen(text), 0), static_cast<ssize_t>(std::strlen(text)));
  item.facts.bytes = std::strlen(text);
  item.facts.offset = 3;
  item.facts.uuid[0] = std::byte{9};
  return item;
}

std::string textOf(const Sharing::Item& item) {
  char text[64] = {};
  CHECK(::pread(item.file->get(), text, sizeof text - 1, 0) >= 0);
  return text;
}

TEST("what one worker shares, another of its claim opens, as often as it likes") {
  const SharingNode node;
  SharingWorker a(node, "w-a", kOfClaim);
  SharingWorker b(node, "w-b", kOfClaim);
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
  // An object that every session may open is also open to the session that shares it.
  const Sharing::Handle ofPool = a.sharing.add(Sharing::Kind::kPool, 7, Sharing::Item{});
  for (const Sharing* each : {&a.sharing, &b.sharing}) {
    Sharing::Item item;
    CHECK(!each->open(Sharing::Kind::kPool, ofPool, item));
    CHECK_EQ(item.worker, "w-a");
  }
  Sharing::Item event;
  event.facts.event[63] = std::byte{5};
  const Sharing::Handle ofEvent = b.sharing.add(Sharing::Kind::kEvent, 7, std::move(event));
  Sharing::Item opened;
  CHECK(!a.sharing.open(Sharing::Kind::kEvent, ofEvent, opened));
  CHECK(opened.facts.event[63] == std::byte{5});
  CHECK(!opened.file);
}

TEST("processes that connect and ask nothing keep no other waiting") {
  const SharingNode node;
  SharingWorker a(node, "w-a", kOfClaim);
  SharingWorker b(node, "w-b", kOfClaim);
  const Sharing::Handle handle = a.sharing.add(Sharing::Kind::kMemory, 7, fileWith("memory"));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 40; ++i) {
    auto socket = connectUnix(node.socketOf("w-a"));
    CHECK(bool(socket));
    // Half of them begin a request.
    if (i % 2) CHECK(bool(sendAll(socket->get(), std::as_bytes(std::span("what", 4)), 1000)));
    silent.push_back(std::move(*socket));
  }
  Sharing::Item item;
  CHECK(!b.sharing.open(Sharing::Kind::kMemory, handle, item));
  CHECK_EQ(textOf(item), "memory");
}

TEST("memory has one file, however much of it is shared") {
  const SharingNode node;
  SharingWorker a(node, "w-a", kOfClaim);
  Sharing::Item first = fileWith("memory");
  first.facts.run = 4;
  const Sharing::Item::Facts facts = first.facts;
  const auto file = first.file;
  a.sharing.add(Sharing::Kind::kPoolMemory, 1, std::move(first));
  CHECK(a.sharing.fileOf(facts.uuid, 4) == file);
  CHECK(!a.sharing.fileOf(facts.uuid, 5));
  CHECK(!a.sharing.fileOf({}, 4));
  Sharing::Item second;
  second.facts = facts;
  second.file = a.sharing.fileOf(facts.uuid, 4);
  a.sharing.add(Sharing::Kind::kPoolMemory, 2, std::move(second));
  a.sharing.remove(Sharing::Kind::kPoolMemory, 1);
  CHECK(a.sharing.fileOf(facts.uuid, 4) == file);
  a.sharing.remove(Sharing::Kind::kPoolMemory, 2);
  CHECK(!a.sharing.fileOf(facts.uuid, 4));
}

TEST("nothing is opened of one's own, of another kind, of what has ended, or of who has ended") {
  const SharingNode node;
  SharingWorker b(node, "w-b", kOfClaim);
  Sharing::Item item;
  Sharing::Handle handle;
  {
    SharingWorker a(node, "w-a", kOfClaim);
    handle = a.sharing.add(Sharing::Kind::kMemory, 1, fileWith("x"));
    CHECK(a.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kOwn);
    CHECK(b.sharing.open(Sharing::Kind::kPages, handle, item) == Sharing::Refusal::kNotOfClaim);
    a.sharing.remove(Sharing::Kind::kMemory, 1);
    CHECK(b.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kGone);
    // The number of another object is different.
    const Sharing::Handle next = a.sharing.add(Sharing::Kind::kMemory, 1, fileWith("y"));
    CHECK(next != handle);
    CHECK(b.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kGone);
    handle = next;
  }
  CHECK(b.sharing.open(Sharing::Kind::kMemory, handle, item) == Sharing::Refusal::kGone);
}

TEST("handles of other claims, and any that was changed, are none") {
  const SharingNode node;
  SharingWorker a(node, "w-a", kOfClaim);
  SharingWorker stranger(node, "w-b", kOfAnother);
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
  const SharingNode node;
  SharingWorker a(node, "w-a", kOfClaim);
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
  const SharingNode node;
  SharingWorker a(node, "w-a", kOfClaim);
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
