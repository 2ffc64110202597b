// SPDX-License-Identifier: Apache-2.0
// Counts of objects, beside requested memory, of all sessions of a claim, and refusals beyond the limits.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/address_places.h"
#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

constexpr int32_t kOutOfMemory = CUDA_ERROR_OUT_OF_MEMORY;

struct CountsFolder {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-counts-XXXXXX").string();
  CountsFolder() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~CountsFolder() { std::filesystem::remove_all(path); }
  ClaimPlace place() const {
    ClaimPlace place;
    place.directory = path;
    place.limits = {{2, 4, 6, 100, uint64_t{8} << 20, 5000}};
    return place;
  }
};

struct ClaimSession : ExecutorFixture {
  explicit ClaimSession(ClaimPlace place, bool countsDriverMemory = false)
      : ExecutorFixture(Carrier::kSharedMemory, 1, "", nullptr, nullptr, {}, std::move(place), countsDriverMemory) {}

  /// 0, or the reason why the stream or event was not created.
  int32_t tryStream(uint32_t n) {
    makeStream(n);
    marker();
    return session().takeFailure();
  }
  int32_t tryEvent(uint32_t n) {
    makeEvent(n);
    marker();
    return session().takeFailure();
  }
  int32_t tryContext(uint32_t number) {
    cmd::ContextCreate create{};
    create.context = number;
    return wait(create, 1, std::span<const std::byte>{});
  }
  void endContext(uint32_t number) {
    cmd::ContextDestroy end{};
    end.context = number;
    CHECK_EQ(wait(end, 1), 0);
  }
  int32_t setLimit(CUlimit limit, uint64_t value) {
    cmd::ContextSetLimit set{};
    set.limit = limit;
    set.value = value;
    return wait(set);
  }
  int32_t load(uint32_t n, const std::string& text) {
    constexpr size_t kPiece = size_t{256} << 10;
    for (size_t at = 0; at < text.size(); at += kPiece) {
      cmd::ImagePart part{};
      part.handle = worker::module(n);
      part.offset = at;
      part.total = text.size();
      CHECK(post(part, 1, std::as_bytes(std::span(text).subspan(at, std::min(kPiece, text.size() - at)))));
    }
    cmd::ModuleLoad command{};
    command.handle = worker::module(n);
    return wait(command, 1, std::span<const std::byte>{}, std::span<const std::byte>{});
  }
  void unload(uint32_t n) {
    cmd::ModuleUnload command{};
    command.handle = worker::module(n);
    wait(command);
  }
  uint64_t left() {
    uint64_t available = 0, total = 0;
    CHECK_EQ(memoryInfo(available, total), 0);
    return available;
  }
};

/// Objects of another session of the claim: the fake driver belongs to one session only.
struct Neighbour {
  ClaimThings things;
  ClaimBudget budget{ExecutorFixture::kLimit};
  explicit Neighbour(const ClaimPlace& place) : things(place.limits) {
    CHECK(bool(things.enter(place.directory + "/things")));
    CHECK(bool(budget.enter(place.directory + "/" + FakeDriver::uuid(0), 0)));
  }
};

TEST("streams and events are limited for all sessions of a claim together, and come back") {
  const CountsFolder folder;
  auto other = std::make_unique<Neighbour>(folder.place());
  CHECK(other->things.hold(Thing::kStream, 2));
  CHECK(other->things.hold(Thing::kEvent, 6));
  ClaimSession one(folder.place());
  CHECK_EQ(one.tryStream(1), 0);
  CHECK_EQ(one.tryStream(2), 0);
  CHECK_EQ(one.tryStream(3), kOutOfMemory);
  CHECK_EQ(one.tryEvent(1), kOutOfMemory);
  // A stream that was not created has failed, and the session continues.
  CHECK(one.syncStream(ExecutorFixture::stream(3)) != 0);
  CHECK(!other->things.hold(Thing::kStream, 3));
  cmd::StreamDestroyV2 end{};
  end.hStream = ExecutorFixture::stream(2);
  CHECK(one.post(end, 1));
  one.marker();
  CHECK(other->things.hold(Thing::kStream, 3));
  other.reset();
  CHECK_EQ(one.tryEvent(2), 0);
  for (uint32_t n = 4; n <= 6; ++n) CHECK_EQ(one.tryStream(n), 0);
  CHECK_EQ(one.tryStream(7), kOutOfMemory);
  CHECK(one.finish().ok);
  Neighbour later(folder.place());
  CHECK(later.things.hold(Thing::kStream, 4));
}

TEST("contexts are limited, and one that ends makes room") {
  const CountsFolder folder;
  ClaimSession one(folder.place());
  Neighbour other(folder.place());
  CHECK_EQ(one.tryContext(2), 0);
  CHECK(other.things.hold(Thing::kContext, 1));
  CHECK_EQ(one.tryContext(3), kOutOfMemory);
  CHECK(other.things.hold(Thing::kContext, 0));
  CHECK_EQ(one.tryContext(3), 0);
  one.endContext(3);
  // An object that the driver refuses does not count.
  one.fake().failNext("cuCtxCreate_v2", CUDA_ERROR_UNKNOWN);
  CHECK_EQ(one.tryContext(4), CUDA_ERROR_UNKNOWN);
  CHECK(other.things.hold(Thing::kContext, 1));
}

TEST("pinned host memory is limited for all sessions together") {
  const CountsFolder folder;
  ClaimSession one(folder.place());
  Neighbour other(folder.place());
  CHECK(other.things.hold(Thing::kHostByte, 4 * kMi));
  const auto pin = [&](uint64_t address, uint64_t bytes) {
    cmd::HostAlloc command{};
    command.address = address;
    command.bytes = bytes;
    command.isPrivate = 1;
    return one.wait(command);
  };
  // An address at which no sanitizer has its shadow.
  constexpr uint64_t kPlace = kPinnedPlaces.first;
  CHECK_EQ(pin(kPlace, 5 * kMi), kOutOfMemory);
  CHECK_EQ(pin(kPlace, UINT64_MAX / kMi * kMi - kPlace), kOutOfMemory);
  CHECK_EQ(pin(kPlace, 3 * kMi), 0);
  CHECK(!other.things.hold(Thing::kHostByte, 6 * kMi));
  cmd::HostFree free{};
  free.address = kPlace;
  CHECK_EQ(one.wait(free), 0);
  CHECK(other.things.hold(Thing::kHostByte, 8 * kMi));
}

TEST("bytes of images in transfer are limited, and what does not fit is out of memory when it is loaded") {
  const CountsFolder folder;
  ClaimSession one(folder.place());
  Neighbour other(folder.place());
  CHECK(other.things.hold(Thing::kImageByte, 3000));
  CHECK_EQ(one.load(1, std::string(2500, '/')), kOutOfMemory);
  CHECK_EQ(one.load(2, std::string(1500, '/')), 0);
  CHECK_EQ(one.load(3, std::string(1500, '/')), 0);
  CHECK(other.things.hold(Thing::kImageByte, 5000));
}

TEST("images, the driver's copies of them and links are in one budget of host memory with what is pinned") {
  const CountsFolder folder;
  ClaimPlace place = folder.place();
  place.limits.most[static_cast<size_t>(Thing::kImageByte)] = 64 * kMi;
  ClaimSession one(place);
  Neighbour other(place);
  const std::string image(3 * kMi, '/');
  CHECK(other.things.hold(Thing::kHostByte, 3 * kMi));
  // While it is being loaded there are two of it.
  CHECK_EQ(one.load(1, image), kOutOfMemory);
  CHECK(other.things.hold(Thing::kHostByte, 2 * kMi));
  CHECK_EQ(one.load(2, image), 0);
  CHECK(!other.things.hold(Thing::kHostByte, 6 * kMi));
  CHECK(other.things.hold(Thing::kHostByte, 5 * kMi));
  CHECK_EQ(one.load(3, image), kOutOfMemory);
  one.unload(2);
  CHECK(other.things.hold(Thing::kHostByte, 8 * kMi));
  CHECK(other.things.hold(Thing::kHostByte, 0));
  // A refusal by the driver returns its charge.
  one.fake().fail(CUDA_ERROR_UNKNOWN);
  CHECK(one.load(4, image) != 0);
  one.fake().fail(CUDA_SUCCESS);
  CHECK(other.things.hold(Thing::kHostByte, 8 * kMi));
}

TEST("variables of modules count of the claim's memory before the driver loads them") {
  const CountsFolder folder;
  ClaimSession one(folder.place());
  Neighbour other(folder.place());
  const std::string large = ".version 7.0 .target sm_70 .global .align 8 .b8 g[41943040];";
  auto taken = other.budget.take(40 * kMi);
  CHECK(taken.has_value());
  CHECK_EQ(one.load(1, large), kOutOfMemory);
  other.budget.give(*taken);
  CHECK_EQ(one.load(2, large), 0);
  CHECK_EQ(one.left(), 24 * kMi);
  CHECK(!other.budget.take(25 * kMi));
  one.unload(2);
  CHECK_EQ(one.left(), 64 * kMi);
  // A refusal by the driver returns its charge.
  one.fake().fail(CUDA_ERROR_UNKNOWN);
  CHECK(one.load(3, large) != 0);
  one.fake().fail(CUDA_SUCCESS);
  CHECK_EQ(other.budget.left(), 64 * kMi);
}

TEST("a module that ends behind functions of the client counts until the driver has unloaded it") {
  const CountsFolder folder;
  ClaimSession one(folder.place());
  const std::string large = ".version 7.0 .target sm_70 .global .align 8 .b8 g[41943040];";
  CHECK_EQ(one.load(1, large), 0);
  one.makeStream(1);
  cmd::HostFunction function{};
  function.stream = ExecutorFixture::stream(1);
  CHECK(one.post(function, 1));
  cmd::ModuleUnload unload{};
  unload.handle = worker::module(1);
  CHECK(one.post(unload, 1));
  CHECK_EQ(one.left(), 24 * kMi);
  CUdeviceptr memory = 0;
  CHECK_EQ(one.allocate(40 * kMi, memory), kOutOfMemory);
  cmd::CallbackNextReply next{};
  Session::Answer answer;
  answer.body = std::as_writable_bytes(std::span(&next, 1)).first(cmd::CallbackNextReply::kFixedBytes);
  CHECK_EQ(one.wait(cmd::CallbackNext{}, 1, answer), 0);
  cmd::CallbackDone done{};
  done.number = next.number;
  CHECK(one.post(done, 1));
  for (int tries = 0; one.left() != 64 * kMi; ++tries) {
    CHECK(tries < 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK_EQ(one.allocate(40 * kMi, memory), 0);
}

TEST("kernels that print or allocate count what the driver keeps for them in every context, before it loads them") {
  // The fake driver's devices have 16 multiprocessors: 8 MiB for those that print, 18 for those that allocate.
  const CountsFolder folder;
  ClaimPlace place = folder.place();
  place.limits = ThingLimits::ofHost();
  ClaimSession one(place, true);
  Neighbour other(place);
  const std::string prints =
      ".version 7.0 .target sm_70 .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);";
  const std::string allocates = ".version 7.0 .target sm_70 .extern .func (.param .b64 r) malloc (.param .b64 n);";
  auto taken = other.budget.take(60 * kMi);
  CHECK(taken.has_value());
  CHECK_EQ(one.load(1, prints), kOutOfMemory);
  CHECK_EQ(one.load(2, allocates), kOutOfMemory);
  CHECK_EQ(one.left(), 4 * kMi);
  other.budget.give(*taken);
  CHECK_EQ(one.load(3, prints), 0);
  CHECK_EQ(one.left(), 56 * kMi);
  // Once for each context, for as long as the context lives.
  CHECK_EQ(one.load(4, prints), 0);
  CHECK_EQ(one.left(), 56 * kMi);
  one.unload(3);
  one.unload(4);
  CHECK_EQ(one.left(), 56 * kMi);
  CHECK_EQ(one.load(5, allocates), 0);
  CHECK_EQ(one.left(), 38 * kMi);
  CHECK(one.finish().ok);
  CHECK_EQ(other.budget.left(), 64 * kMi);
}

TEST("contexts, streams and stacks count what the driver takes for them") {
  // The fake driver's devices have 16 multiprocessors of 39 threads.
  const CountsFolder folder;
  ClaimPlace place = folder.place();
  place.limits = ThingLimits::ofHost();
  ClaimSession one(place, true);
  const Neighbour other(place);
  constexpr uint64_t kStream = 576 * 1024;
  CHECK_EQ(one.tryContext(2), 0);
  CHECK_EQ(other.budget.left(), 0u);
  CHECK_EQ(one.tryStream(1), kOutOfMemory);
  one.endContext(2);
  CHECK_EQ(one.tryStream(2), 0);
  CHECK_EQ(one.left(), 64 * kMi - kStream);
  CHECK_EQ(one.tryContext(3), kOutOfMemory);
  // The driver keeps a stream's memory for the next one.
  cmd::StreamDestroyV2 end{};
  end.hStream = ExecutorFixture::stream(2);
  CHECK(one.post(end, 1));
  CHECK_EQ(one.tryStream(3), 0);
  CHECK_EQ(one.left(), 64 * kMi - kStream);
  CHECK_EQ(one.setLimit(CU_LIMIT_STACK_SIZE, 200 * 1024), kOutOfMemory);
  CHECK_EQ(one.setLimit(CU_LIMIT_STACK_SIZE, UINT64_MAX), kOutOfMemory);
  // The charge for a limit that the driver refuses is returned.
  CHECK_EQ(one.setLimit(CU_LIMIT_STACK_SIZE, 64 * 1024), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(one.left(), 64 * kMi - kStream);
  CHECK(one.finish().ok);
  CHECK_EQ(other.budget.left(), 64 * kMi);
}

}  // namespace
}  // namespace millpond::worker
