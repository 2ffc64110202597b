// SPDX-License-Identifier: Apache-2.0
// User objects, which graphs retain: their destructors run on the thread that runs callbacks.
#include "client/call/call.h"
#include "client/calls/graphs/graph_call.h"
#include "client/process/client.h"
#include "client/session/callback_thread.h"

namespace millpond::client::api {
namespace {

/// The context whose thread runs destructors of objects that were made without a context: the primary one of the first device.
constexpr uint16_t kFirstPrimary = 1;

CUresult count(const char* name, CUuserObject object, uint64_t graph, unsigned number, uint32_t what, unsigned flags) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!graph::is(graph::Tag::kUserObject, reinterpret_cast<uint64_t>(object)) || number == 0)
    return CUDA_ERROR_INVALID_VALUE;
  cmd::UserObjectCount wire{};
  wire.object = reinterpret_cast<uint64_t>(object);
  wire.graph = graph;
  wire.count = number;
  wire.what = what;
  wire.flags = flags;
  Session::Answer answer;
  return call.waitFor(wire, answer);
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags) noexcept {
  Call call("cuUserObjectCreate", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!object_out || !destroy || initialRefcount == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  cmd::UserObjectCreate wire{};
  wire.data = reinterpret_cast<uint64_t>(ptr);
  wire.destroy = reinterpret_cast<uint64_t>(destroy);
  wire.references = initialRefcount;
  wire.flags = flags;
  cmd::UserObjectCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  call.remote().functions.give(GivenFunctions::Shape::kOfData, wire.destroy, wire.data, GivenFunctions::Uses::kOne);
  const uint16_t context = call.context() ? call.context() : kFirstPrimary;
  if (const CUresult r = CallbackThread::expect(call.session(), context, 1); r != CUDA_SUCCESS) return r;
  *object_out = reinterpret_cast<CUuserObject>(reply.object);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int number) noexcept {
  return count("cuUserObjectRetain", object, 0, number, 0, 0);
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned int number) noexcept {
  return count("cuUserObjectRelease", object, 0, number, 1, 0);
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int number, unsigned int flags) noexcept {
  return count("cuGraphRetainUserObject", object, numberOf(graph), number, 2, flags);
}
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int number) noexcept {
  return count("cuGraphReleaseUserObject", object, numberOf(graph), number, 3, 0);
}

}  // namespace millpond::client::api
