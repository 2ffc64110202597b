// SPDX-License-Identifier: Apache-2.0
#include "worker/core/waits.h"

#include <utility>

namespace millpond::worker {

CUresult Waits::until(std::vector<Mark> marks, Action action) {
  all_.push_back({session_.current(), std::move(marks), nullptr, nullptr, std::move(action)});
  return kDeferred;
}

CUresult Waits::until(CUevent event) {
  all_.push_back({session_.current(), {}, event, nullptr, {}});
  return kDeferred;
}

CUresult Waits::until(std::shared_ptr<const Mark> end) {
  all_.push_back({session_.current(), {}, nullptr, std::move(end), {}});
  return kDeferred;
}

void Waits::endEvent(CUevent event) {
  for (auto w = all_.begin(); w != all_.end();) {
    if (w->event == event) {
      session_.answer(w->request, CUDA_SUCCESS);
      w = all_.erase(w);
    } else {
      ++w;
    }
  }
}

void Waits::forgetContext(uint16_t number) {
  for (Wait& each : all_)
    for (Mark& mark : each.marks) mark.forgetContext(number);
}

bool Waits::progress() {
  bool some = false;
  for (auto w = all_.begin(); w != all_.end();) {
    if (w->event && w->request.context != session_.contexts().bound()) session_.contexts().use(w->request.context);
    CUresult rc = w->event ? session_.driver().cuEventQuery(w->event)
                  : w->end ? session_.marks().happened(*w->end)
                           : session_.marks().state(w->marks);
    if (rc == CUDA_ERROR_NOT_READY) {
      ++w;
      continue;
    }
    session_.marks().giveBack(w->marks);
    const Wait due = std::move(*w);
    w = all_.erase(w);
    session_.resume(due.request);
    if (due.action) {
      rc = due.action(rc);
      w = all_.begin();  // it may have sent other replies
    }
    if (rc != kDeferred) session_.answer(due.request, rc);
    some = true;
  }
  return some;
}

}  // namespace millpond::worker
