// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "testing/check.h"
#include "testing/model/generator.h"
#include "testing/model/oracle.h"
#include "testing/model/order.h"
#include "testing/model/print.h"

using namespace millpond::model;

namespace {

constexpr uint8_t kA = kFirstStream;      // a blocking stream
constexpr uint8_t kB = kFirstStream + 1;  // a non-blocking stream

// Slots of programOf
constexpr int16_t kDevice = 0;
constexpr int16_t kOther = 1;
constexpr int16_t kPinned = 2;
constexpr int16_t kPageable = 3;

Program programOf(std::vector<Op> ops, uint8_t threads = 1) {
  Program program;
  program.buffers = {{Memory::device, 2, 16}, {Memory::pinned, 1, 16}, {Memory::pageable, 1, 16}};
  program.streams = {{true}, {false}};
  program.threads = threads;
  program.events = program.words = program.promises = program.signals = program.graphs = 4;
  program.ops = std::move(ops);
  return program;
}

Refusal judge(std::vector<Op> ops, uint8_t threads = 1) {
  size_t at = 0;
  return check(programOf(std::move(ops), threads), &at);
}

Op copyOn(uint8_t stream, int16_t to, int16_t from) {
  return {.kind = OpKind::copy, .stream = stream, .to = to, .from = from};
}
Op on(OpKind kind, uint8_t stream, uint8_t object = kNone) {
  return {.kind = kind, .stream = stream, .object = object};
}
Op checkOf(int16_t slot) { return {.kind = OpKind::hostCheck, .from = slot}; }

}  // namespace

TEST("accesses in streams that know nothing of each other are a race, and an event between them ends it") {
  const Op first = copyOn(kA, kDevice, kPinned);
  const Op second = copyOn(kB, kOther, kDevice);
  CHECK(judge({first, second}) == Refusal::race);
  CHECK(judge({first, on(OpKind::record, kA, 0), on(OpKind::waitEvent, kB, 0), second}) == Refusal::none);
  // Recorded too early.
  CHECK(judge({on(OpKind::record, kA, 0), first, on(OpKind::waitEvent, kB, 0), second}) == Refusal::race);
  CHECK(judge({first, copyOn(kA, kOther, kDevice)}) == Refusal::none);
}

TEST("the legacy stream is in step with blocking streams, and with no others") {
  CHECK(judge({copyOn(kA, kDevice, kPinned), copyOn(kLegacy, kOther, kDevice)}) == Refusal::none);
  CHECK(judge({copyOn(kLegacy, kDevice, kPinned), copyOn(kA, kOther, kDevice)}) == Refusal::none);
  CHECK(judge({copyOn(kB, kDevice, kPinned), copyOn(kLegacy, kOther, kDevice)}) == Refusal::race);
  CHECK(judge({copyOn(kPerThread, kDevice, kPinned), copyOn(kLegacy, kOther, kDevice)}) == Refusal::none);
}

TEST("a copy to memory that is not pinned has happened when its call returns, one to pinned memory has not") {
  CHECK(judge({copyOn(kA, kPageable, kDevice), checkOf(kPageable)}) == Refusal::none);
  CHECK(judge({copyOn(kA, kPinned, kDevice), checkOf(kPinned)}) == Refusal::race);
  CHECK(judge({copyOn(kA, kPinned, kDevice), on(OpKind::syncStream, kA), checkOf(kPinned)}) == Refusal::none);
  CHECK(judge({copyOn(kA, kPinned, kDevice), on(OpKind::syncStream, kB), checkOf(kPinned)}) == Refusal::race);
  CHECK(judge({copyOn(kB, kPinned, kDevice), on(OpKind::syncContext, kA), checkOf(kPinned)}) == Refusal::none);
}

TEST("a call that could wait for a promise is ordered after its fulfilment") {
  const Op function = on(OpKind::hostFunction, kA, 0);
  const Op fulfil = on(OpKind::fulfil, kA, 0);
  CHECK(judge({function, fulfil, on(OpKind::syncStream, kA)}) == Refusal::none);
  CHECK(judge({function, on(OpKind::syncStream, kA), fulfil}) == Refusal::stuck);
  CHECK(judge({function, on(OpKind::syncStream, kB), fulfil}) == Refusal::none);
  CHECK(judge({function, copyOn(kA, kPageable, kDevice), fulfil}) == Refusal::stuck);
  CHECK(judge({function, copyOn(kA, kPinned, kDevice), fulfil}) == Refusal::none);
  CHECK(judge({function}) == Refusal::stuck);
  // Another host function may have to wait for the thread of the first one.
  CHECK(judge({function, on(OpKind::hostFunction, kB), on(OpKind::syncStream, kB), fulfil}) == Refusal::stuck);
}

TEST("a thousand launches wait for whatever holds their stream up") {
  Op burst{.kind = OpKind::launch, .stream = kA, .to = kDevice, .from = kOther, .count = 2000};
  const Op fulfil = on(OpKind::fulfil, kA, 0);
  for (const uint8_t stream : {kA, kLegacy}) {
    CHECK(judge({on(OpKind::hostFunction, stream, 0), burst, fulfil}) == Refusal::stuck);
    CHECK(judge({on(OpKind::hostFunction, stream, 0), fulfil, burst}) == Refusal::none);
  }
  burst.stream = kB;
  CHECK(judge({on(OpKind::hostFunction, kA, 0), burst, fulfil}) == Refusal::none);
}

TEST("launches behind a promise fill the stream up") {
  const Op function = on(OpKind::hostFunction, kA, 0);
  const Op fulfil = on(OpKind::fulfil, kA, 0);
  const Op many{.kind = OpKind::launch, .stream = kA, .to = kDevice, .from = kOther, .count = 180};
  Op others = many;
  others.stream = kB;
  others.to = kPinned;
  CHECK(judge({function, many, many, others, others, others, fulfil}) == Refusal::none);
  CHECK(judge({function, many, many, many, fulfil}) == Refusal::stuck);
  CHECK(judge({function, many, many, fulfil, many}) == Refusal::none);
}

TEST("work behind a promise does not come while another thread may wait for all streams") {
  const Op function = on(OpKind::hostFunction, kB, 0);
  Op wait = copyOn(kLegacy, kDevice, kPinned);
  wait.isSynchronous = true;
  // In a stream that the copy waits for, behind the other function if a driver has one thread for both.
  const Op held = on(OpKind::hostFunction, kA);
  Op receive = on(OpKind::receive, kA, 0), fulfil = on(OpKind::fulfil, kA, 0), tell = on(OpKind::send, kA, 1);
  for (Op* each : {&wait, &receive, &fulfil, &tell}) each->thread = 1;
  const Op told = on(OpKind::receive, kA, 1);
  CHECK(judge({function, on(OpKind::send, kA, 0), receive, wait, held, fulfil}, 2) == Refusal::unordered);
  CHECK(judge({function, on(OpKind::send, kA, 0), receive, wait, tell, told, held, fulfil}, 2) == Refusal::none);
}

TEST("an allocation may wait for what other threads wait for") {
  const Op ask = on(OpKind::ask, kA, 0);
  const Op fulfil = on(OpKind::fulfil, kA, 0);
  Op function = on(OpKind::hostFunction, kA, 0), receive = on(OpKind::receive, kA, 0);
  Op wait = on(OpKind::syncContext, kA);
  for (Op* each : {&function, &receive, &wait}) each->thread = 1;
  CHECK(judge({function, ask, fulfil, wait}, 2) == Refusal::unordered);
  CHECK(judge({function, ask, on(OpKind::send, kA, 0), fulfil, receive, wait}, 2) == Refusal::none);
  CHECK(judge({function, fulfil, ask, wait}, 2) == Refusal::none);
}

TEST("what waits for a word is ordered behind what sets it") {
  const Op write = copyOn(kB, kDevice, kPinned);
  const Op read = copyOn(kA, kOther, kDevice);
  CHECK(judge({on(OpKind::waitValue, kA, 0), read, write, on(OpKind::writeValue, kB, 0)}) == Refusal::race);
  CHECK(judge({on(OpKind::waitValue, kA, 0), write, on(OpKind::writeValue, kB, 0), read}) == Refusal::none);
  CHECK(judge({on(OpKind::waitValue, kA, 0), on(OpKind::writeValue, kA, 0)}) == Refusal::stuck);
}

TEST("what waits for a word that is to be set waits for what sets it") {
  const Op write = on(OpKind::writeValue, kA, 0);
  const Op wait = on(OpKind::waitValue, kB, 0);
  const Op fulfil = on(OpKind::fulfil, kA, 0);
  CHECK(judge({on(OpKind::hostFunction, kA, 0), write, wait, on(OpKind::syncStream, kB), fulfil}) == Refusal::stuck);
  CHECK(judge({on(OpKind::hostFunction, kA, 0), write, wait, fulfil, on(OpKind::syncStream, kB)}) == Refusal::none);
  CHECK(judge({copyOn(kA, kDevice, kPinned), write, wait, copyOn(kB, kOther, kDevice)}) == Refusal::none);
}

TEST("what sets a word does not come behind a call that could already wait for its waiter") {
  const Op write = on(OpKind::writeValue, kA, 0);
  Op wait = on(OpKind::waitValue, kB, 0), receive = on(OpKind::receive, kA, 0);
  for (Op* each : {&wait, &receive}) each->thread = 1;
  const Op all = on(OpKind::syncContext, kA);
  CHECK(judge({all, write, wait}, 2) == Refusal::unordered);
  CHECK(judge({all, write, on(OpKind::syncStream, kA), wait}, 2) == Refusal::unordered);
  CHECK(judge({all, on(OpKind::send, kA, 0), write, receive, wait}, 2) == Refusal::none);
  CHECK(judge({write, wait, all}, 2) == Refusal::none);
}

TEST("a stream does not wait for a word that only what waits for the stream might set") {
  Op wait = on(OpKind::waitValue, kLegacy, 0), receive = on(OpKind::receive, kA, 0);
  for (Op* each : {&wait, &receive}) each->thread = 1;
  // The stream that sets it could follow the one that waits.
  const Op write = on(OpKind::writeValue, kA, 0), send = on(OpKind::send, kA, 0);
  CHECK(judge({write, wait}, 2) == Refusal::unordered);
  CHECK(judge({write, send, receive, wait}, 2) == Refusal::none);
  // The event of the default stream could, and the thread that waits for it is the one that sets the word.
  wait.stream = kA;
  const Op record = on(OpKind::record, kLegacy, 0), sync = on(OpKind::syncEvent, kA, 0);
  const Op store = on(OpKind::storeWord, kA, 0);
  CHECK(judge({record, sync, store, wait}, 2) == Refusal::unordered);
  CHECK(judge({record, sync, store, send, receive, wait}, 2) == Refusal::none);
}

TEST("a copy from pinned memory may read it before what the default stream has is done") {
  for (const uint8_t first : {kLegacy, kA}) {
    const uint8_t second = first == kA ? kLegacy : kA;
    CHECK(judge({copyOn(first, kPinned, kDevice), copyOn(second, kOther, kPinned)}) == Refusal::race);
    Op waits = copyOn(kLegacy, kOther, kPinned);
    waits.isSynchronous = true;
    CHECK(judge({copyOn(first, kPinned, kDevice), waits}) == Refusal::none);
    CHECK(judge({copyOn(first, kPinned, kDevice), on(OpKind::record, first, 0), on(OpKind::waitEvent, second, 0),
                 copyOn(second, kOther, kPinned)}) == Refusal::none);
    CHECK(judge({copyOn(first, kDevice, kPinned), copyOn(second, kPinned, kDevice)}) == Refusal::none);
  }
}

TEST("threads know of each other by signals only") {
  Op first = copyOn(kA, kPageable, kDevice);
  Op second = checkOf(kPageable);
  second.thread = 1;
  CHECK(judge({first, second}, 2) == Refusal::race);
  Op receive = on(OpKind::receive, kA, 0);
  receive.thread = 1;
  CHECK(judge({first, on(OpKind::send, kA, 0), receive, second}, 2) == Refusal::none);
  // Which of two threads is first to use a stream is undetermined.
  Op third = copyOn(kA, kOther, kPinned);
  third.thread = 1;
  CHECK(judge({first, third}, 2) == Refusal::unordered);
  // A thread that waits for all streams may thereby wait for another thread's promise.
  Op wait = on(OpKind::syncContext, kA);
  wait.thread = 1;
  Op fulfil = on(OpKind::fulfil, kA, 0);
  fulfil.thread = 1;
  CHECK(judge({wait, on(OpKind::hostFunction, kA, 0), fulfil}, 2) == Refusal::unordered);
}

TEST("a call does not precede what lets another thread's call return that could keep it waiting") {
  // The first use of a thread's default stream creates it, which waits for calls of other threads that wait.
  const Op held = on(OpKind::hostFunction, kA, 0);
  Op waits = copyOn(kA, kPageable, kDevice);
  waits.thread = 1;
  const Op send = on(OpKind::send, kA, 0);
  Op receive = on(OpKind::receive, kA, 0);
  receive.thread = 1;
  const Op fulfil = on(OpKind::fulfil, kA, 0);
  const Op creates = on(OpKind::record, kPerThread, 0);
  CHECK(judge({held, send, receive, creates, fulfil, waits}, 2) == Refusal::unordered);
  CHECK(judge({held, creates, send, receive, fulfil, waits}, 2) == Refusal::none);
  CHECK(judge({creates, held, send, receive, creates, fulfil, waits}, 2) == Refusal::none);
  // A copy between host memories waits with a lock that each call needs.
  const Op other = on(OpKind::record, kB, 0);
  CHECK(judge({held, send, receive, other, fulfil, waits}, 2) == Refusal::none);
  Op locks = copyOn(kA, kPageable, kPinned);
  locks.thread = 1;
  CHECK(judge({held, send, receive, other, fulfil, locks}, 2) == Refusal::unordered);
  CHECK(judge({held, other, send, receive, fulfil, locks}, 2) == Refusal::none);
}

TEST("branches of a graph are a race until they join") {
  Op graph = on(OpKind::graph, kA, 0);
  graph.body = {copyOn(0, kDevice, kPinned), copyOn(0, kOther, kDevice)};
  graph.body[1].branch = 1;
  CHECK(judge({graph}) == Refusal::race);
  graph.body[1].joins = true;
  CHECK(judge({graph, on(OpKind::launchGraph, kA, 0), on(OpKind::launchGraph, kB, 0)}) == Refusal::none);
}

TEST("every generated program is determinate, ends, and is the same again") {
  for (uint64_t number = 0; number < 300; ++number) {
    const Program program = generate(7, number, {});
    size_t at = 0;
    CHECK(check(program, &at) == Refusal::none);
    CHECK(printProgram(program) == printProgram(generate(7, number, {})));
  }
}

TEST("what is left out of programs is not in them") {
  const Features without = {"promise", "managed", "large", "threads", "legacy"};
  for (uint64_t number = 0; number < 300; ++number) {
    const Program program = generate(8, number, without);
    CHECK_EQ(int{program.threads}, 1);
    for (const Buffer& buffer : program.buffers) CHECK(buffer.memory != Memory::managed && buffer.words <= 65536);
    for (const Op& op : program.ops) {
      CHECK(op.kind != OpKind::hostFunction || op.object == kNone);
      CHECK(!op.isSynchronous && op.stream != kLegacy);
    }
  }
}

TEST("kernels do not use pinned memory that copies alone use, and half of the programs' is such") {
  size_t copied = 0, used = 0;
  for (uint64_t number = 0; number < 300; ++number) {
    const Program program = generate(9, number, {});
    for (const Buffer& buffer : program.buffers)
      if (isLocal(buffer.memory)) ++(buffer.isForKernels ? used : copied);
    eachOp(program, [&](const Op& op) {
      if (op.kind != OpKind::launch && op.kind != OpKind::fill) return;
      for (const int slot : {op.to, op.from}) CHECK(slot < 0 || bufferOf(program, slot).isForKernels);
    });
  }
  CHECK(copied > used / 2 && used > copied / 2);
}

TEST("some programs pile work up behind a host function") {
  size_t piles = 0;
  for (uint64_t number = 0; number < 300; ++number) {
    const Program program = generate(10, number, {});
    uint8_t stream = kNone;
    size_t behind = 0;
    for (const Op& op : program.ops) {
      if (op.kind == OpKind::hostFunction && stream == kNone) stream = op.stream;
      if (stream != kNone && op.stream == stream && op.kind <= OpKind::fill) ++behind;
    }
    if (behind >= 6) ++piles;
  }
  CHECK(piles > 30);
}

TEST("some programs mix streams of all four kinds") {
  size_t mixed = 0;
  for (uint64_t number = 0; number < 200; ++number) {
    const Program program = generate(12, number, {});
    std::set<std::string> kinds;
    for (const Op& op : program.ops) {
      if (op.isSynchronous || op.stream == kLegacy)
        kinds.insert("legacy");
      else if (op.stream == kPerThread)
        kinds.insert("per-thread");
      else if (op.stream != kNone)
        kinds.insert(program.streams[op.stream - kFirstStream].isBlocking ? "blocking" : "free");
    }
    if (kinds.size() == 4) ++mixed;
  }
  CHECK(mixed >= 40);
}
