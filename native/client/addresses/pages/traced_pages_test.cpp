// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/pages/traced_pages.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "testing/check.h"

namespace millpond::client {
namespace {

using State = TracedPages::State;
constexpr size_t kTracedPage = TracedPages::kPage;

std::byte* at(const TracedPages& pages, size_t page) {
  return reinterpret_cast<std::byte*>(pages.address()) + page * kTracedPage;
}

/// Whether the system itself may read, or write, there: it returns an error where a direct access would fault.
bool canRead(void* place) {
  std::byte byte;
  iovec to{&byte, 1}, from{place, 1};
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == 1;
}
bool canWrite(void* place) {
  std::byte byte{9};
  iovec from{&byte, 1}, to{place, 1};
  return ::process_vm_writev(::getpid(), &from, 1, &to, 1, 0) == 1;
}

struct Sent {
  size_t offset;
  size_t bytes;
};
std::vector<Sent> withdraw(TracedPages& pages) {
  std::vector<Sent> sent;
  pages.withdraw([&](size_t offset, std::span<const std::byte> bytes) { sent.push_back({offset, bytes.size()}); });
  return sent;
}

TEST("only pages that were ever touched are sent the first time") {
  const auto pages = TracedPages::map(0, 1000 * kTracedPage, TracedPages::Content::kZero);
  CHECK(pages);
  at(*pages, 3)[5] = std::byte{1};
  at(*pages, 4)[5] = std::byte{1};
  at(*pages, 999)[0] = std::byte{1};
  const auto sent = withdraw(*pages);
  size_t bytes = 0;
  for (const Sent& each : sent) bytes += each.bytes;
  CHECK_EQ(bytes, 3 * kTracedPage);
  CHECK_EQ(sent.front().offset, 3 * kTracedPage);
  CHECK_EQ(sent.back().offset, 999 * kTracedPage);
  CHECK(!canRead(at(*pages, 3)));
  CHECK(withdraw(*pages).empty());
}

TEST("memory that is the program's is sent whole the first time") {
  const auto pages = TracedPages::map(0, 10 * kTracedPage, TracedPages::Content::kProgram);
  const auto sent = withdraw(*pages);
  CHECK_EQ(sent.size(), 1u);
  CHECK_EQ(sent[0].bytes, 10 * kTracedPage);
}

TEST("clean pages can be read, dirty ones written, and only those are sent") {
  const auto pages = TracedPages::map(0, 10 * kTracedPage, TracedPages::Content::kZero);
  withdraw(*pages);
  std::memset(pages->data({2, 3}).data(), 7, 3 * kTracedPage);
  CHECK(pages->grant({2, 3}, State::kClean));
  CHECK(at(*pages, 2)[0] == std::byte{7});
  CHECK(canRead(at(*pages, 4)));
  CHECK(!canWrite(at(*pages, 4)));
  CHECK(!canRead(at(*pages, 5)));
  CHECK(pages->grant({3, 1}, State::kDirty));
  CHECK(canWrite(at(*pages, 3)));
  const auto sent = withdraw(*pages);
  CHECK_EQ(sent.size(), 1u);
  CHECK_EQ(sent[0].offset, 3 * kTracedPage);
  CHECK_EQ(sent[0].bytes, kTracedPage);
}

TEST("small memory comes whole, large memory in longer and longer pieces where it is read in order") {
  const auto small = TracedPages::map(0, 20 * kTracedPage, TracedPages::Content::kZero);
  withdraw(*small);
  CHECK_EQ(small->wanted(11).first, 0u);
  CHECK_EQ(small->wanted(11).count, 20u);

  const auto large = TracedPages::map(0, 10000 * kTracedPage, TracedPages::Content::kZero);
  withdraw(*large);
  size_t page = 0;
  size_t before = 0;
  for (int touches = 0; page < 5000; ++touches) {
    const TracedPages::Run run = large->wanted(page);
    CHECK_EQ(run.first, page);
    CHECK(run.count >= before);
    before = run.count;
    CHECK(large->grant(run, State::kClean));
    page += run.count;
    CHECK(touches < 12);
  }
  CHECK(before >= 1024);
}

TEST("touches all over large memory end long before a process has no mappings left") {
  const auto pages = TracedPages::map(0, 400'000 * kTracedPage, TracedPages::Content::kZero);
  withdraw(*pages);
  size_t faults = 0;
  for (size_t i = 0; i < 200'000; ++i) {
    const size_t page = i * 7919 % pages->pages();
    if (pages->state(page) != State::kAway) continue;
    ++faults;
    CHECK(pages->grant(pages->wanted(page), State::kClean));
  }
  CHECK(faults < 8000);
}

TEST("where something lies nothing is mapped") {
  void* taken = ::mmap(nullptr, 4 * kTracedPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<uint64_t>(taken);
  CHECK(!TracedPages::map(address + kTracedPage, kTracedPage, TracedPages::Content::kZero));
  ::munmap(taken, 4 * kTracedPage);
  CHECK(TracedPages::map(address + kTracedPage, kTracedPage, TracedPages::Content::kZero));
}

}  // namespace
}  // namespace millpond::client
