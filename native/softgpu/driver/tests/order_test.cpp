// SPDX-License-Identifier: Apache-2.0
// The order of work over many streams, against a model: random programs of work, events and waits.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {
namespace {

/// Each step must see as completed the steps that the documented rules put before it.
struct Step {
  std::set<int> before;
};

/// A random program and the order that the rules require.
class Program {
 public:
  explicit Program(uint32_t seed) : random_(seed) {
    const unsigned flags[] = {CU_STREAM_DEFAULT, CU_STREAM_DEFAULT, CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING,
                              CU_STREAM_NON_BLOCKING};
    streams_.push_back({nullptr, Order::legacy, {}});
    for (unsigned flag : flags) {
      CUstream stream = nullptr;
      OK(CU(cuStreamCreate)(&stream, flag));
      streams_.push_back({stream, flag == CU_STREAM_NON_BLOCKING ? Order::free : Order::blocking, {}});
    }
    for (int i = 0; i < 4; ++i) {
      CUevent event = nullptr;
      OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
      events_.push_back({event, {}, false});
    }
  }
  ~Program() {
    for (const Model& stream : streams_) {
      if (stream.handle) OK(CU(cuStreamDestroy_v2)(stream.handle));
    }
    for (const EventModel& event : events_) OK(CU(cuEventDestroy_v2)(event.handle));
  }

  void run(int length) {
    for (int i = 0; i < length; ++i) {
      Model& stream = streams_[random_() % streams_.size()];
      EventModel& event = events_[random_() % events_.size()];
      switch (random_() % 8) {
        case 0:
          enter(stream);
          OK(CU(cuEventRecord)(event.handle, stream.handle));
          event.done = stream.done;
          event.isRecorded = true;
          break;
        case 1:
          if (event.isRecorded) enter(stream);
          OK(CU(cuStreamWaitEvent)(stream.handle, event.handle, 0));
          stream.done.insert(event.done.begin(), event.done.end());
          break;
        default: work(stream); break;
      }
    }
    OK(CU(cuCtxSynchronize)());
  }

  void check() {
    CHECK_EQ(ran_.size(), steps_.size());
    std::set<int> done;
    for (int number : ran_) {
      const Step& step = steps_[static_cast<size_t>(number)];
      CHECK(std::includes(done.begin(), done.end(), step.before.begin(), step.before.end()));
      done.insert(number);
    }
  }

 private:
  enum class Order { legacy, blocking, free };
  struct Model {
    CUstream handle;
    Order order;
    std::set<int> done;  // what is done when the stream's work so far is
  };
  struct EventModel {
    CUevent handle;
    std::set<int> done;
    bool isRecorded = false;
  };
  struct Call {
    Program* program;
    int number;
  };

  // The legacy stream waits for the blocking streams' work, and they wait for its work.
  void enter(Model& stream) {
    if (stream.order == Order::free) return;
    for (const Model& other : streams_) {
      const bool counts = stream.order == Order::legacy ? other.order == Order::blocking : other.order == Order::legacy;
      if (counts) stream.done.insert(other.done.begin(), other.done.end());
    }
  }

  void work(Model& stream) {
    enter(stream);
    const int number = static_cast<int>(steps_.size());
    steps_.push_back({stream.done});
    calls_.push_back(std::make_unique<Call>(Call{this, number}));
    OK(CU(cuLaunchHostFunc)(
        stream.handle,
        [](void* data) {
          auto* call = static_cast<Call*>(data);
          std::lock_guard lock(call->program->mutex_);
          call->program->ran_.push_back(call->number);
        },
        calls_.back().get()));
    stream.done.insert(number);
  }

  std::mt19937 random_;
  std::vector<Model> streams_;
  std::vector<EventModel> events_;
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::mutex mutex_;
  std::vector<int> ran_;
};

TEST("random programs run in an order that the rules allow") {
  PrimaryContext context;
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    Program program(seed);
    program.run(150);
    program.check();
  }
}

}  // namespace
}  // namespace millpond::softgpu::testing
