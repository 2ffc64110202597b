// SPDX-License-Identifier: Apache-2.0
#include "tls/link_records.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "testing/check.h"
#include "tls/tls.h"

namespace {

using Bytes = std::vector<std::byte>;

const unsigned char kOurs[kTrafficSecretBytes] = {1, 2, 3}, kTheirs[kTrafficSecretBytes] = {4, 5, 6};

/// The other side, which has the key and follows no rule.
struct Peer {
  RecordKey key;
  LinkRecords link;

  Peer() { CHECK(key.begin(kTheirs) && link.begin(kOurs, kTheirs, 1000)); }

  /// The link's result for a record with that content.
  ptrdiff_t say(int content, const Bytes& plain, Bytes* got = nullptr) {
    Bytes record(plain.size() + kTlsRecordOverhead);
    record.resize(key.seal(static_cast<RecordKey::Content>(content), plain.data(), plain.size(), record.data()));
    size_t used = 0;
    const std::byte* opened = nullptr;
    const ptrdiff_t n = link.open(record.data(), record.size(), &used, &opened);
    if (n >= 0) CHECK_EQ(used, record.size());
    if (got && n > 0) got->assign(opened, opened + n);
    return n;
  }
};

Bytes bytesOf(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

TEST("a change of keys is followed, and one that is asked for is made") {
  Peer peer;
  CHECK_EQ(peer.say(RecordKey::kHandshake, bytesOf({24, 0, 0, 1, 0})), 0);
  CHECK(peer.key.update());
  Bytes got;
  CHECK_EQ(peer.say(RecordKey::kData, bytesOf({9}), &got), 1);
  CHECK(got == bytesOf({9}));
  CHECK_EQ(peer.say(RecordKey::kHandshake, bytesOf({24, 0, 0, 1, 1})), 0);

  Bytes out(4096);
  out.resize(peer.link.seal(got.data(), got.size(), out.data(), out.size()));
  RecordKey ours;
  CHECK(ours.begin(kOurs));
  const size_t first = RecordKey::length(out.data(), out.size());
  const auto update = ours.open(out.data(), first);
  CHECK(update.isWhole && update.content == RecordKey::kHandshake);
  CHECK(std::ranges::equal(std::span(update.plain, update.bytes), bytesOf({24, 0, 0, 1, 0})));
  CHECK(ours.update());
  const auto data = ours.open(out.data() + first, RecordKey::length(out.data() + first, out.size() - first));
  CHECK(data.isWhole && data.content == RecordKey::kData && data.bytes == 1);
}

TEST("messages that do not belong behind a handshake end the link") {
  const Bytes wrong[] = {bytesOf({24, 0, 0, 1, 2}),
                         bytesOf({24, 0, 0, 1}),
                         bytesOf({24, 0, 0, 1, 0, 24, 0, 0, 1, 0}),
                         bytesOf({4, 0, 0, 1, 0}),
                         bytesOf({}),
                         Bytes(1000)};
  for (const Bytes& message : wrong) {
    Peer peer;
    CHECK_EQ(peer.say(RecordKey::kHandshake, message), kTlsFailed);
    CHECK_EQ(peer.say(RecordKey::kData, bytesOf({1})), kTlsFailed);
  }
  for (const int content : {0, 20, 24, 255}) {
    Peer peer;
    CHECK_EQ(peer.say(content, bytesOf({1})), kTlsFailed);
  }
}

TEST("an announced end is no failure, and no data follows it") {
  Peer peer;
  CHECK_EQ(peer.say(RecordKey::kAlert, bytesOf({1, 0})), kTlsClosed);
  CHECK_EQ(peer.say(RecordKey::kData, bytesOf({1})), kTlsClosed);
  Peer other;
  CHECK_EQ(other.say(RecordKey::kAlert, bytesOf({2, 20})), kTlsFailed);
  Peer third;
  CHECK_EQ(third.say(RecordKey::kAlert, bytesOf({1})), kTlsFailed);
}

TEST("whatever a peer with the key sends, only data comes out, as it was") {
  std::minstd_rand random(3);
  for (int round = 0; round < 300; ++round) {
    Peer peer;
    for (int i = 0; i < 30; ++i) {
      const int content = random() % 4 != 0 ? int{RecordKey::kData} : static_cast<int>(random() % 256);
      Bytes plain(random() % 3 == 0 ? random() % 8 : random() % 400);
      for (auto& each : plain) each = static_cast<std::byte>(random() % 3 == 0 ? 0 : random() >> 8);
      Bytes got;
      const ptrdiff_t n = peer.say(content, plain, &got);
      if (n < 0) break;
      CHECK(content == RecordKey::kData ? got == plain : n == 0);
      if (content == RecordKey::kHandshake) CHECK(peer.key.update());
    }
  }
}

}  // namespace
