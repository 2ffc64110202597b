// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/user_objects.h"

namespace millpond::worker {

CUresult UserObjects::onUserObjectCreate(const cmd::Decoded<cmd::UserObjectCreate>& command) {
  const auto& in = command.fixed;
  if (!driver_.cuUserObjectCreate) return CUDA_ERROR_NOT_SUPPORTED;
  // Without a context the thread of the first device's primary context runs the destructor.
  const uint16_t home = contexts_.bound() ? contexts_.primaryOf(contexts_.bound()) : 1;
  auto call =
      std::make_unique<HostCall>(HostCall{callbacks_, {CallbackKind::kDestructor, home, in.destroy, in.data, 0}});
  CUuserObject object = nullptr;
  if (CUresult rc = driver_.cuUserObjectCreate(&object, call.get(), &HostCall::announceOnce, in.references, in.flags))
    return rc;
  call.release();  // the driver has it now
  const uint64_t number = graphs_.next(graph::Tag::kUserObject);
  all_[number] = object;
  reply(cmd::UserObjectCreateReply{number});
  return CUDA_SUCCESS;
}

CUresult UserObjects::onUserObjectCount(const cmd::Decoded<cmd::UserObjectCount>& command) {
  const auto& in = command.fixed;
  const auto object = all_.find(in.object);
  if (object == all_.end()) return CUDA_ERROR_INVALID_VALUE;
  const GraphTable::Graph* graph = in.what >= 2 ? graphs_.graph(in.graph) : nullptr;
  if (in.what >= 2 && !graph) return CUDA_ERROR_INVALID_VALUE;
  switch (in.what) {
    case 0: return driver_.cuUserObjectRetain(object->second, in.count);
    case 1: return driver_.cuUserObjectRelease(object->second, in.count);
    case 2: return driver_.cuGraphRetainUserObject(graph->handle, object->second, in.count, in.flags);
    case 3: return driver_.cuGraphReleaseUserObject(graph->handle, object->second, in.count);
    default: return violation("a reference of unknown kind");
  }
}

}  // namespace millpond::worker
