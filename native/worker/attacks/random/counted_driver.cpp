// SPDX-License-Identifier: Apache-2.0
#include "worker/attacks/random/counted_driver.h"

#include <unistd.h>

#include <algorithm>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/host/ledger.h"
#include "testing/check.h"
#include "worker/claim/shared_file.h"

namespace millpond::worker {
namespace {

struct Counting {
  Driver plain;
  Board* board = nullptr;
  size_t place = 0;
};
Counting& counting() {
  static Counting one;
  return one;
}

/// Calls the driver, then counts the objects that exist.
template <auto Call, typename... Arguments>
CUresult call(Arguments... arguments) {
  const CUresult rc = (counting().plain.*Call)(arguments...);
  recount();
  return rc;
}

template <auto Call, typename... Arguments>
void count(Driver& table, CUresult (*)(Arguments...)) {
  if (table.*Call) table.*Call = &call<Call, Arguments...>;
}
template <auto Call>
void count(Driver& table) {
  count<Call>(table, table.*Call);
}

}  // namespace

Board& Board::at(const std::string& path) {
  auto mapped = mapSharedBytes(path, "the board", sizeof(Board),
                               [](void* zeros) { return makeRobustMutex(static_cast<Board*>(zeros)->mutex); });
  CHECK(bool(mapped));
  return *static_cast<Board*>(*mapped);
}

Driver counted(const Driver& plain, Board& board, size_t place) {
  counting() = {plain, &board, place};
  // The place has the counts of the killed process before this one, which must not count as this one's.
  lockRobust(board.mutex);
  board.places[place].has = {};
  board.places[place].pid = ::getpid();
  ::pthread_mutex_unlock(&board.mutex);
  Driver table = plain;
  count<&Driver::cuCtxCreate_v2>(table);
  count<&Driver::cuCtxCreate_v3>(table);
  count<&Driver::cuCtxDestroy_v2>(table);
  count<&Driver::cuGreenCtxCreate>(table);
  count<&Driver::cuGreenCtxDestroy>(table);
  count<&Driver::cuGreenCtxStreamCreate>(table);
  count<&Driver::cuStreamCreate>(table);
  count<&Driver::cuStreamCreateWithPriority>(table);
  count<&Driver::cuStreamDestroy_v2>(table);
  count<&Driver::cuEventCreate>(table);
  count<&Driver::cuEventDestroy_v2>(table);
  count<&Driver::cuIpcOpenEventHandle>(table);
  return table;
}

void recount() {
  softgpu::Driver& gpu = softgpu::Driver::instance();
  Board& board = *counting().board;
  lockRobust(board.mutex);
  size_t contexts = gpu.greens().all().size();
  for (const auto& each : gpu.contexts().all()) contexts += each->kind() == softgpu::Context::Kind::created;
  board.places[counting().place].has = {contexts, gpu.streams().all().size(), gpu.events().all().size()};
  std::array<uint64_t, kCounted> sum{};
  for (const Board::Place& each : board.places) {
    // A killed process has its objects until it has ended.
    if (!each.pid || softgpu::processStartTime(each.pid) == 0) continue;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += each.has[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) board.most[i] = std::max(board.most[i], sum[i]);
  ::pthread_mutex_unlock(&board.mutex);
}

}  // namespace millpond::worker
