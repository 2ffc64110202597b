// SPDX-License-Identifier: Apache-2.0
#include "worker/parking/journal.h"

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "protocol/handle.h"
#include "protocol/wire.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

template <typename C>
void note(Journal& journal, const C& fixed, uint16_t context = 1) {
  std::vector<std::byte> body(C::kFixedBytes);
  std::memcpy(body.data(), &fixed, body.size());
  journal.note(C::kOp, context, body);
}

struct Repeated {
  cmd::Op op;
  uint16_t context;
  std::vector<std::byte> body;
};
std::vector<Repeated> repeated(const Journal& journal) {
  const std::vector<std::byte> frames = journal.frames();
  std::vector<Repeated> all;
  for (size_t at = 0; at < frames.size();) {
    wire::CommandHeader header;
    CHECK(frames.size() - at >= sizeof header);
    std::memcpy(&header, frames.data() + at, sizeof header);
    CHECK(header.bytes >= sizeof header && header.bytes <= frames.size() - at);
    CHECK_EQ(header.request, 0u);
    all.push_back({static_cast<cmd::Op>(header.op), header.context, {}});
    all.back().body.assign(frames.data() + at + sizeof header, frames.data() + at + header.bytes);
    at += header.bytes;
  }
  return all;
}

uint64_t stream(uint32_t index) { return handle::make(HandleKind::kStream, index, 1); }

TEST("what is made is repeated in its order, and what is set once, as it was set last") {
  Journal journal;
  cmd::StreamCreate create{};
  create.phStream = stream(2);
  note(journal, create, 3);
  create.phStream = stream(1);
  note(journal, create);
  for (const uint64_t value : {5u, 6u}) {
    cmd::ContextSetLimit limit{};
    limit.limit = 1;
    limit.value = value;
    note(journal, limit);
    limit.limit = 2;
    note(journal, limit);
  }
  note(journal, cmd::MemAlloc{});
  const auto all = repeated(journal);
  CHECK_EQ(all.size(), 4u);
  CHECK_EQ(all[0].context, 3);
  CHECK(all[1].op == cmd::Op::kStreamCreate);
  for (size_t i = 2; i < 4; ++i) {
    cmd::ContextSetLimit limit;
    std::memcpy(&limit, all[i].body.data(), sizeof limit);
    CHECK_EQ(limit.limit, static_cast<int32_t>(i - 1));
    CHECK_EQ(limit.value, 6u);
  }
}

TEST("the settings of a context end with it, and so does the context") {
  Journal journal;
  cmd::ContextCreate create{};
  create.context = 4;
  note(journal, create);
  note(journal, cmd::ContextSetLimit{}, 4);
  note(journal, cmd::ContextSetLimit{}, 1);
  cmd::StreamSetAttribute ofDefault{};
  note(journal, ofDefault, 4);
  CHECK(journal.contains({Subject::Kind::kContext, 4}));
  journal.forgetSettings(4);
  CHECK(!journal.contains({Subject::Kind::kContext, 4}));
  CHECK_EQ(repeated(journal).size(), 1u);
  CHECK_EQ(repeated(journal)[0].context, 1);
}

TEST("pinned memory is repeated in no context, and handles, contexts and addresses of one number are three") {
  Journal journal;
  cmd::HostKeep keep{};
  keep.address = 4;
  keep.bytes = 4096;
  note(journal, keep, 4);
  CHECK(journal.contains({Subject::Kind::kHostMemory, 4}));
  CHECK(!journal.contains({Subject::Kind::kContext, 4}));
  CHECK(!journal.contains({Subject::Kind::kHandle, 4}));
  // The same address again, with another length.
  keep.bytes = 8192;
  note(journal, keep, 5);
  const auto all = repeated(journal);
  CHECK_EQ(all.size(), 1u);
  CHECK_EQ(all[0].context, 0u);
  cmd::HostKeep last;
  std::memcpy(&last, all[0].body.data(), sizeof last);
  CHECK_EQ(last.bytes, 8192u);
}

TEST("a body that is too short for its command is left out") {
  Journal journal;
  journal.note(cmd::Op::kStreamCreate, 1, {});
  const std::vector<std::byte> body(4);
  journal.note(cmd::Op::kFuncSetAttribute, 1, body);
  journal.note(cmd::Op::kContextSetLimit, 1, body);
  CHECK(journal.frames().empty());
}

TEST("over any history it says what is there and as it is set, and is no longer than that") {
  std::minstd_rand random(7);
  Journal journal;
  std::set<uint64_t> there;
  std::map<std::pair<uint64_t, uint32_t>, uint8_t> set;
  const auto isThere = [&](const Subject& subject) { return there.contains(subject.number); };
  uint32_t next = 1;
  for (int step = 0; step < 20'000; ++step) {
    const auto any = [&] {
      auto at = there.begin();
      std::advance(at, random() % there.size());
      return *at;
    };
    if (there.size() < 5 || random() % 3 == 0) {
      cmd::StreamCreate create{};
      create.phStream = stream(next++);
      note(journal, create);
      there.insert(create.phStream);
    } else if (random() % 2 == 0) {
      const uint64_t gone = any();
      there.erase(gone);
      std::erase_if(set, [gone](const auto& each) { return each.first.first == gone; });
    } else {
      cmd::StreamSetAttribute attribute{};
      attribute.stream = any();
      attribute.attribute = static_cast<uint32_t>(random() % 3);
      attribute.value[0] = static_cast<uint8_t>(random());
      note(journal, attribute);
      set[{attribute.stream, attribute.attribute}] = attribute.value[0];
    }
    if (journal.isLong()) journal.prune(isThere);
  }
  journal.prune(isThere);
  size_t made = 0, settings = 0;
  std::set<uint64_t> before;
  for (const Repeated& each : repeated(journal)) {
    if (each.op == cmd::Op::kStreamCreate) {
      cmd::StreamCreate create;
      std::memcpy(&create, each.body.data(), sizeof create);
      CHECK(there.contains(create.phStream));
      before.insert(create.phStream);
      ++made;
      continue;
    }
    cmd::StreamSetAttribute attribute;
    std::memcpy(&attribute, each.body.data(), sizeof attribute);
    CHECK(before.contains(attribute.stream));
    CHECK_EQ(attribute.value[0], (set.at({attribute.stream, attribute.attribute})));
    ++settings;
  }
  CHECK_EQ(made, there.size());
  CHECK_EQ(settings, set.size());
}

}  // namespace
}  // namespace millpond::worker
