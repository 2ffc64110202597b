// SPDX-License-Identifier: Apache-2.0
#include "worker/core/session_objects.h"

namespace millpond::worker {

CUresult SessionObjects::admit(HandleKind kind) {
  if (kind == HandleKind::kStream && session_.marks().destroyed() != 0) session_.marks().settleDestroyed();
  if (!counts_.hasRoomFor(kind)) return CUDA_ERROR_OUT_OF_MEMORY;
  return kind == HandleKind::kStream ? chargeStream_() : CUDA_SUCCESS;
}

bool SessionObjects::adopt(HandleKind kind, uint64_t wire, void* object) {
  const uint16_t current = session_.current().context;
  const uint16_t context = kind == HandleKind::kStream ? current : contexts_.homeOf(current);
  const bool isNew = handle::kind(wire) == kind && handles_.adopt(wire, object, context);
  if (!object || !isNew) counts_.count(kind);
  if (kind == HandleKind::kStream && object && isNew) {
    unsigned flags = CU_STREAM_DEFAULT;
    session_.driver().cuStreamGetFlags(static_cast<CUstream>(object), &flags);
    handles_.find(kind, wire)->isBlocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  }
  if (kind == HandleKind::kStream && object && isNew && context) ++contexts_.at(context).streams;
  return isNew;
}

bool SessionObjects::drop(HandleKind kind, uint64_t wire) {
  const HandleMap::Entry* entry = handles_.find(kind, wire);
  void* object = entry ? entry->object : nullptr;
  if (kind == HandleKind::kEvent) {
    if (object) waits_.endEvent(static_cast<CUevent>(object));
    for (const auto& observer : eventObservers_) observer(wire);
  }
  if (kind == HandleKind::kStream) {
    session_.marks().forgetEnd(wire);
    const bool continues = object && session_.marks().keepDestroyed(
                                         {static_cast<CUstream>(object), entry->context, wire}, entry->isBlocking);
    for (const auto& observer : streamObservers_) observer(wire, static_cast<CUstream>(object));
    if (object && entry->context && !continues) --contexts_.at(entry->context).streams;
  }
  const bool isThere = handles_.drop(kind, wire);
  counts_.count(kind);
  return isThere;
}

}  // namespace millpond::worker
