// SPDX-License-Identifier: Apache-2.0
// Every frame that a session must not send, generated from the table of all commands: the worker refuses it, names the
// command in the reason, and tells the client.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "protocol/gen/command_layouts.h"
#include "worker/testing/victim.h"

namespace millpond::worker {
namespace {

using Body = std::vector<std::byte>;

void set(Body& body, const cmd::FieldLayout& field, uint64_t value) {
  std::memcpy(body.data() + field.offset, &value, std::min<size_t>(field.bytes, sizeof(value)));
}

/// Over TCP the same code runs, so a sample is sufficient. The thread sanitizer does not check contents.
bool isLeftOut(Carrier carrier, size_t number) {
  return (carrier == Carrier::kTcp && number % 8 != 0) || (kForThreads && number % 16 != 0);
}

/// Sends one frame in its own session, which must end, with this reason.
void refused(Carrier carrier, cmd::Op op, const Body& body, const std::string& reason) {
  Victim victim(carrier);
  // A command for which no thread waits is refused the same way.
  const bool waits = cmd::layoutOf(op).hasReply;
  victim.send(static_cast<uint16_t>(op), 1, body, waits);
  victim.check();
  const Executor::End end = victim.ended();
  CHECK(!end.ok);
  if (!end.reason.starts_with("protocol violation in command ") ||
      end.reason.find(std::string("(") + cmd::opName(op) + "): ") == std::string::npos || !end.reason.ends_with(reason))
    testing::fail(__FILE__, __LINE__, std::string(cmd::opName(op)) + ": " + end.reason + "\n  wanted: …" + reason);
  CHECK_EQ(victim.lostReason(), end.reason);
}

/// Bodies whose length does not match the command.
std::vector<Body> wrongBodies(const cmd::CommandLayout& layout) {
  std::vector<Body> bodies;
  if (layout.fixedBytes > 0) bodies.emplace_back();
  if (layout.fixedBytes > 8) bodies.emplace_back(layout.fixedBytes - 8u);
  bodies.emplace_back(layout.fixedBytes + 8u);
  for (size_t tail = layout.fields.size() - layout.tails; tail < layout.fields.size(); ++tail)
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{0x7fff'ffff}, uint64_t{0xffff'ffff}}) {
      Body body(layout.fixedBytes);
      set(body, layout.fields[tail], bytes);
      bodies.push_back(std::move(body));
    }
  return bodies;
}

TEST("every command whose body is too short, too long or longer than it says ends its session") {
  for (const Carrier carrier : kCarriers) {
    size_t number = 0;
    for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
      for (const Body& body : wrongBodies(layout))
        if (!isLeftOut(carrier, number++)) refused(carrier, layout.op, body, "a command has the wrong length");
  }
}

TEST("every command in a context that the session does not have ends it") {
  for (const Carrier carrier : kCarriers) {
    size_t number = 0;
    for (const cmd::CommandLayout& layout : cmd::kCommandLayouts) {
      if (isLeftOut(carrier, number++)) continue;
      Victim victim(carrier);
      victim.send(static_cast<uint16_t>(layout.op), 9, Body(layout.fixedBytes), layout.hasReply);
      victim.check();
      CHECK(victim.ended().reason.ends_with(std::string("(") + cmd::opName(layout.op) +
                                            "): the session has no context 9"));
    }
  }
}

TEST("every command that is answered ends the session where nobody waits for its answer") {
  for (const Carrier carrier : kCarriers) {
    size_t number = 0;
    for (const cmd::CommandLayout& layout : cmd::kCommandLayouts) {
      if (!layout.hasReply || isLeftOut(carrier, number++)) continue;
      Victim victim(carrier);
      victim.send(static_cast<uint16_t>(layout.op), 1, Body(layout.fixedBytes), false);
      victim.check();
      CHECK(victim.ended().reason.ends_with(std::string("(") + cmd::opName(layout.op) +
                                            "): nobody waits for its answer"));
    }
  }
}

TEST("every handle of a generated command that the session does not have, of every kind, ends it") {
  size_t number = 0;
  for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
    for (const cmd::FieldLayout& field : layout.fields) {
      if (field.use != cmd::FieldUse::kHandle) continue;
      for (uint8_t kind = 0; kind < kHandleKinds; ++kind) {
        const Carrier carrier = number % 8 == 7 ? Carrier::kTcp : Carrier::kSharedMemory;
        if (kForThreads && number++ % 16 != 0) continue;
        ++number;
        Body body(layout.fixedBytes);
        set(body, field, handle::make(static_cast<HandleKind>(kind), 900, 1));
        // If it lacks several, the first one is named.
        refused(carrier, layout.op, body, "of the session");
      }
    }
  CHECK(number > 500);
}

TEST("every handle of a generated command that the session has already is not made again") {
  for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
    for (const cmd::FieldLayout& field : layout.fields) {
      if (field.use != cmd::FieldUse::kNewHandle) continue;
      Body body(layout.fixedBytes);
      set(body, field, field.kind == HandleKind::kStream ? ExecutorFixture::stream(1) : ExecutorFixture::event(1));
      refused(Carrier::kSharedMemory, layout.op, body, " is in use already");
    }
}

/// Fields of hand-written commands that name an object that the session must have.
constexpr std::string_view kNaming[] = {"stream", "event",     "function", "owner",  "library", "graph", "node",
                                        "exec",   "mipmapped", "pool",     "memory", "object",  "clone", "source"};
/// Numbers in these commands that are not checked when the rest of the body is zero, that belong to the client, or that
/// are new.
const std::set<std::pair<cmd::Op, std::string_view>> kNotNaming = {
    {cmd::Op::kHostFunction, "function"},
    {cmd::Op::kPoolCreate, "pool"},
    {cmd::Op::kVmCreate, "memory"},
};

TEST("what a command run by hand names and the session does not have is refused") {
  size_t number = 0;
  std::string taken;
  for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
    for (const cmd::FieldLayout& field : layout.fields) {
      const bool names = std::find(std::begin(kNaming), std::end(kNaming), field.name) != std::end(kNaming);
      if (field.use != cmd::FieldUse::kPlain || field.bytes != 8 || !names ||
          kNotNaming.contains({layout.op, field.name}))
        continue;
      if (const size_t at = number++; kForThreads && at % 4 != 0) continue;
      Victim victim(Carrier::kSharedMemory);
      Body body(layout.fixedBytes);
      set(body, field, 0xdead'beef'0000);
      // An error reply, or the end of the session.
      const int32_t result = victim.outcome(static_cast<uint16_t>(layout.op), 1, body, layout.hasReply);
      if (result == 0) taken += std::string(" ") + cmd::opName(layout.op) + "." + field.name;
    }
  CHECK_EQ(taken, "");
  CHECK(number > 10);
}

TEST("absurd numbers in every field of every command harm nobody but their session") {
  for (const Carrier carrier : kCarriers) {
    Attack attack(carrier);
    size_t number = 0;
    for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
      for (const cmd::FieldLayout& field : layout.fields) {
        if (field.use != cmd::FieldUse::kPlain && field.use != cmd::FieldUse::kStruct) continue;
        for (const uint64_t value : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 47, uint64_t{0x8000'0000},
                                     uint64_t{0x7fff'ffff}, attack.victim().memory()}) {
          if (isLeftOut(carrier, number++)) continue;
          Body body(layout.fixedBytes);
          set(body, field, value);
          attack.send(static_cast<uint16_t>(layout.op), 1, body, layout.hasReply);
        }
      }
    CHECK(attack.lost() > 10);
    CHECK(attack.lost() < attack.sent());
  }
}

}  // namespace
}  // namespace millpond::worker
