// SPDX-License-Identifier: Apache-2.0
// The generated code of the sample description, client to driver and back: every kind of argument crosses.
#include <dlfcn.h>

#include <string>

#include "client/call/call.h"
#include "client/gen/resolver.h"
#include "testing/check.h"

using namespace millpond;
using client::loopback;

namespace {

struct Seen {
  std::string text;
  std::vector<unsigned int> values;
  CUextent extent{};
  bool hadLimit = false;
  CUcolour colour{};
  CUstream stream = nullptr;
  CUevent event = nullptr;
  size_t bytes = 0;
  unsigned int flags = 0;
  int priority = 0;
  int asked = 0;
  bool isAsked = false;
  CUdevice device = -1;
  std::string refused;
};
Seen seen;
int madeStream;  // its address is the driver's handle

void reset() {
  seen = {};
  loopback() = {};
  auto& table = loopback().worker.table;
  table.cuCopyAsync = [](CUdeviceptr, CUdeviceptr, size_t bytes, CUstream stream) {
    seen.bytes = bytes;
    seen.stream = stream;
    return CUDA_SUCCESS;
  };
  table.cuStreamMake = [](CUstream* out, unsigned int flags, int priority) {
    seen.flags = flags;
    seen.priority = priority;
    *out = reinterpret_cast<CUstream>(&madeStream);
    return priority > 5 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  table.cuStreamEnd_v2 = [](CUstream stream) {
    seen.stream = stream;
    return CUDA_SUCCESS;
  };
  table.cuStreamWait = [](CUstream stream, CUevent event) {
    seen.stream = stream;
    seen.event = event;
    return CUDA_SUCCESS;
  };
  table.cuPaint = [](CUcolour colour, const CUextent* extent, const CUextent* limit) {
    seen.colour = colour;
    seen.extent = *extent;
    seen.hadLimit = limit != nullptr;
    return CUDA_SUCCESS;
  };
  table.cuWrite = [](const char* text, const unsigned int* values, size_t count) {
    seen.text = text;
    seen.values.assign(values, values + count);
    return CUDA_SUCCESS;
  };
  table.cuAsk = [](int* answer, CUcolour* colour, CUextent* extent, CUdevice device) {
    *answer = 42;
    *colour = CU_RED;
    extent->width = 7;
    seen.device = device;
    return CUDA_SUCCESS;
  };
  table.cuFuncAsk = [](int* answer, CUfunction, int what) {
    *answer = what * 2;
    ++seen.asked;
    return CUDA_SUCCESS;
  };
  table.cuBound = [](CUevent* event, size_t* offset, int* now, int* wanted) {
    *event = seen.event;
    seen.isAsked = offset != nullptr;
    if (offset) *offset = 16;
    for (int i = 0; i < 4; ++i) now[i] = 10 * wanted[i];
    return CUDA_SUCCESS;
  };
  table.cuFuncTell = [](CUfunction, int, int) { return CUDA_SUCCESS; };
}

}  // namespace

namespace millpond::worker {
CUresult LoopbackWorker::onLoad(const cmd::Decoded<cmd::Load>&) { return CUDA_ERROR_UNKNOWN; }
CUresult LoopbackWorker::onSyncStream(const cmd::Decoded<cmd::SyncStream>& in) {
  seen.stream = reinterpret_cast<CUstream>(in.fixed.stream);
  reply(cmd::SyncStreamReply{});
  return CUDA_SUCCESS;
}
}  // namespace millpond::worker

namespace millpond::client {
CUresult notRemoted(const char* symbol, const char* why) noexcept {
  seen.refused = std::string(symbol) + (why ? std::string(": ") + why : "");
  return CUDA_ERROR_NOT_SUPPORTED;
}
namespace api {
CUresult cuWatch(CUevent) noexcept { return CUDA_SUCCESS; }
CUresult cuHost(void*) noexcept { return CUDA_SUCCESS; }
}  // namespace api
}  // namespace millpond::client

TEST("a call without a stream goes to the default stream of its flavour") {
  reset();
  CHECK_EQ(cuCopy(1, 2, 300), CUDA_SUCCESS);
  CHECK_EQ(seen.bytes, 300u);
  CHECK_EQ(reinterpret_cast<uint64_t>(seen.stream), 0u);
  CHECK_EQ(cuCopy_ptds(1, 2, 3), CUDA_SUCCESS);
  CHECK_EQ(reinterpret_cast<uint64_t>(seen.stream), 2u);
  CHECK_EQ(loopback().posts, 2u);
  CHECK_EQ(loopback().waits, 0u);
}

TEST("an address reaches the driver only where all of its extent is the session's") {
  reset();
  constexpr uint64_t kStrangers = worker::AddressGate::kStrangers;
  cuCopy(kStrangers, 2, 300);
  cuCopy(1, kStrangers, 300);
  CHECK_EQ(seen.bytes, 0u);
  cuCopy(1, 2, 300);
  CHECK_EQ(seen.bytes, 300u);
  for (const uint64_t bytes : loopback().worker.gate.asked) CHECK_EQ(bytes, 300u);
  CHECK_EQ(loopback().worker.gate.asked.size(), 5u);
}

TEST("handles are invented by the client and mapped by the worker") {
  reset();
  CUstream stream = nullptr;
  CHECK_EQ(cuStreamMake(&stream, 1, 3), CUDA_SUCCESS);
  CHECK_EQ(seen.flags, 1u);
  CHECK_EQ(seen.priority, 3);
  CHECK_EQ(loopback().handles.at(reinterpret_cast<uint64_t>(stream)).second.priority, 3);
  CHECK_EQ(cuStreamWait(stream, nullptr), CUDA_SUCCESS);
  CHECK_EQ(reinterpret_cast<void*>(seen.stream), static_cast<void*>(&madeStream));
  CHECK_EQ(cuStreamEnd(stream), CUDA_SUCCESS);
  CHECK_EQ(cuStreamWait(stream, nullptr), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(cuStreamEnd_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  CHECK(loopback().worker.handles.empty());
}

TEST("wrong arguments fail at the call and send nothing") {
  reset();
  CUstream stream = nullptr;
  CUextent extent{};
  CUcolour colour{};
  int answer = 0;
  CHECK_EQ(cuStreamMake(nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuStreamMake(&stream, 2, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuPaint(CU_RED, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuWrite(nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuWrite("x", nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuWrite("x", &seen.flags, size_t{1} << 60), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(cuWrite(std::string(cmd::kMaxStringBytes + 1, 'x').c_str(), nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuAsk(&answer, nullptr, &extent, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuAsk(&answer, &colour, &extent, 2), CUDA_ERROR_INVALID_DEVICE);
  loopback().hasContext = false;
  CHECK_EQ(cuCopy(1, 2, 3), CUDA_ERROR_INVALID_CONTEXT);
  loopback().initialised = false;
  CHECK_EQ(cuAsk(&answer, &colour, &extent, 0), CUDA_ERROR_NOT_INITIALIZED);
  CHECK_EQ(loopback().posts + loopback().waits, 0u);
  CHECK(stream == nullptr);
}

TEST("structs, strings and arrays cross") {
  reset();
  const CUextent extent{.width = 99, .depth = {1, 2, 3}};
  CHECK_EQ(cuPaint(CU_RED, &extent, nullptr), CUDA_SUCCESS);
  CHECK_EQ(seen.extent.width, 99u);
  CHECK_EQ(int{seen.extent.depth[2]}, 3);
  CHECK(!seen.hadLimit);
  CHECK_EQ(cuPaint(CU_RED, &extent, &extent), CUDA_SUCCESS);
  CHECK(seen.hadLimit);
  const unsigned int values[] = {4, 5, 6};
  CHECK_EQ(cuWrite("hello", values, 3), CUDA_SUCCESS);
  CHECK_EQ(seen.text, std::string("hello"));
  CHECK(seen.values == std::vector<unsigned int>({4, 5, 6}));
  CHECK_EQ(cuWrite("", nullptr, 0), CUDA_SUCCESS);
  CHECK(seen.text.empty() && seen.values.empty());
  CHECK_EQ(loopback().lastAsync, CUDA_SUCCESS);
}

TEST("outputs come back, those that are not wanted stay away") {
  reset();
  CUextent extent{};
  CUcolour colour{};
  CHECK_EQ(cuAsk(nullptr, &colour, &extent, 1), CUDA_SUCCESS);
  CHECK_EQ(colour, CU_RED);
  CHECK_EQ(extent.width, 7u);
  CHECK_EQ(seen.device, 11);
  int answer = 0;
  CHECK_EQ(cuAsk(&answer, &colour, &extent, 0), CUDA_SUCCESS);
  CHECK_EQ(answer, 42);
}

TEST("a handle is found again by the driver's object, and several elements cross") {
  reset();
  int object = 0;
  seen.event = reinterpret_cast<CUevent>(&object);
  CUevent event = nullptr;
  size_t offset = 0;
  int now[4] = {}, wanted[4] = {1, 2, 3, 4};
  CHECK_EQ(cuBound(&event, &offset, now, wanted), CUDA_ERROR_INVALID_VALUE);
  loopback().worker.handles[{HandleKind::kEvent, 0x77}] = &object;
  CHECK_EQ(cuBound(&event, &offset, now, wanted), CUDA_SUCCESS);
  CHECK_EQ(reinterpret_cast<uint64_t>(event), 0x77u);
  CHECK_EQ(offset, 16u);
  for (int i = 0; i < 4; ++i) CHECK_EQ(now[i], 10 * (i + 1));
  CHECK(seen.isAsked);
  CHECK_EQ(cuBound(&event, nullptr, now, wanted), CUDA_SUCCESS);
  CHECK(!seen.isAsked);
  CHECK_EQ(cuBound(nullptr, nullptr, now, wanted), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuBound(&event, nullptr, nullptr, wanted), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuBound(&event, nullptr, now, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST("kept answers are asked once for each function, and again when they may have changed") {
  reset();
  loopback().handles[0x50] = {HandleKind::kFunction, {}};
  loopback().handles[0x51] = {HandleKind::kFunction, {}};
  loopback().worker.handles[{HandleKind::kFunction, 0x50}] = &madeStream;
  loopback().worker.handles[{HandleKind::kFunction, 0x51}] = &madeStream;
  const auto one = reinterpret_cast<CUfunction>(uint64_t{0x50});
  const auto other = reinterpret_cast<CUfunction>(uint64_t{0x51});
  int answer = 0;
  for (int i = 0; i < 3; ++i) {
    CHECK_EQ(cuFuncAsk(&answer, one, 21), CUDA_SUCCESS);
    CHECK_EQ(answer, 42);
  }
  CHECK_EQ(seen.asked, 1);
  CHECK_EQ(cuFuncAsk(&answer, one, 22), CUDA_SUCCESS);
  CHECK_EQ(cuFuncAsk(&answer, other, 21), CUDA_SUCCESS);
  CHECK_EQ(seen.asked, 3);
  CHECK_EQ(cuFuncTell(one, 1, 2), CUDA_SUCCESS);
  CHECK_EQ(cuFuncAsk(&answer, other, 21), CUDA_SUCCESS);
  CHECK_EQ(seen.asked, 3);
  CHECK_EQ(cuFuncAsk(&answer, one, 21), CUDA_SUCCESS);
  CHECK_EQ(seen.asked, 4);
}

TEST("a hand-written command takes the place of the derived one") {
  reset();
  CHECK_EQ(cuStreamSync_ptsz(nullptr), CUDA_SUCCESS);
  CHECK_EQ(reinterpret_cast<uint64_t>(seen.stream), 2u);
  CHECK_EQ(loopback().waits, 1u);
}

TEST("what is not remoted says so") {
  reset();
  CHECK_EQ(cuGraphics(3), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(seen.refused, std::string("cuGraphics: no graphics here"));
  CHECK_EQ(cuCopyAsync_ptsz(1, 2, 3, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(seen.refused, std::string("cuCopyAsync_ptsz"));
}

TEST("a handle whose creation failed is known, but of no use") {
  reset();
  CUstream stream = nullptr;
  CHECK_EQ(cuStreamMake(&stream, 0, 6), CUDA_SUCCESS);
  CHECK_EQ(loopback().lastAsync, CUDA_ERROR_INVALID_VALUE);
  seen.stream = reinterpret_cast<CUstream>(&madeStream);
  CHECK_EQ(cuStreamWait(stream, nullptr), CUDA_SUCCESS);
  CHECK_EQ(loopback().lastAsync, CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(cuStreamEnd_v2(stream), CUDA_SUCCESS);
  CHECK_EQ(loopback().lastAsync, CUDA_ERROR_INVALID_HANDLE);
  CHECK(seen.stream != nullptr);  // the driver was not called
  CHECK(loopback().worker.violations.empty());
}

TEST("a driver without a function answers not supported") {
  reset();
  loopback().worker.table.cuAsk = worker::Driver{}.cuAsk;
  CUextent extent{};
  CUcolour colour{};
  CHECK_EQ(cuAsk(nullptr, &colour, &extent, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST("bad commands are violations and reach no driver") {
  reset();
  auto& far = loopback().worker;
  const auto run = [&](cmd::Op op, std::span<const std::byte> body) {
    far.violations.clear();
    CHECK_EQ(worker::dispatch(far.parts(), op, body, body), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQ(far.violations.size(), 1u);
    return far.violations[0];
  };
  const auto encoded = [](const auto& fixed, const auto&... tails) {
    using T = std::remove_cvref_t<decltype(fixed)>;
    std::vector<std::byte> body(cmd::encodedSize<T>(tails...));
    cmd::encode(body.data(), fixed, tails...);
    return body;
  };
  CHECK_EQ(run(cmd::Op{0}, {}), std::string("no command has this number"));
  CHECK_EQ(run(static_cast<cmd::Op>(cmd::kOpLimit), {}), std::string("no command has this number"));
  CHECK_EQ(run(static_cast<cmd::Op>(0xffff), {}), std::string("no command has this number"));
  CHECK_EQ(run(cmd::Op::kStreamEndV2, {}), std::string("a command has the wrong length"));
  CHECK_EQ(run(cmd::Op::kStreamEndV2, encoded(cmd::StreamEndV2{.hStream = 77})),
           std::string("StreamEndV2: hStream is no stream of the session"));
  CHECK_EQ(run(cmd::Op::kAsk, encoded(cmd::Ask{.dev = 9})), std::string("Ask: dev is no device of the session"));
  const std::vector<std::byte> none, six(6);
  CHECK_EQ(run(cmd::Op::kWrite, encoded(cmd::Write{.count = 1}, none, six)),
           std::string("Write: values has not the length that count says"));
  CHECK_EQ(run(cmd::Op::kWrite, encoded(cmd::Write{.count = ~uint64_t{0}}, none, none)),
           std::string("Write: values has not the length that count says"));
  CHECK_EQ(run(cmd::Op::kWrite, encoded(cmd::Write{}, std::vector<std::byte>(cmd::kMaxStringBytes + 1), none)),
           std::string("Write: text is too long"));
  // Tails that claim more than there is, or less.
  for (const uint32_t claim : {0u, 8u, 17u, 0xfffffff9u, 0xffffffffu}) {
    std::vector<std::byte> body = encoded(cmd::Write{.count = 0}, std::vector<std::byte>(16), none);
    cmd::Write fixed{.count = 0, .textBytes = claim};
    std::memcpy(body.data(), &fixed, sizeof fixed);
    CHECK_EQ(run(cmd::Op::kWrite, body), std::string("a command has the wrong length"));
  }
  far.handles[{HandleKind::kStream, 5}] = &madeStream;
  CHECK_EQ(run(cmd::Op::kStreamMake, encoded(cmd::StreamMake{.phStream = 5})),
           std::string("StreamMake: phStream is in use already"));
}

TEST("the resolver finds the newest variant that the version allows") {
  const auto find = [](const char* name, int version, uint64_t flags, CUdriverProcAddressQueryResult* status) {
    void* fn = &madeStream;
    CHECK_EQ(client::resolve(name, version, flags, 13000, &fn, status), CUDA_SUCCESS);
    return fn;
  };
  CUdriverProcAddressQueryResult status{};
  CHECK_EQ(find("cuStreamEnd", 3020, 0, &status), reinterpret_cast<void*>(&cuStreamEnd));
  CHECK_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK_EQ(find("cuStreamEnd", 4000, 0, nullptr), reinterpret_cast<void*>(&cuStreamEnd_v2));
  CHECK_EQ(find("cuStreamEnd", 13000, 2, nullptr), reinterpret_cast<void*>(&cuStreamEnd_v2));
  CHECK_EQ(find("cuCopy", 13000, 0, nullptr), reinterpret_cast<void*>(&cuCopy));
  CHECK_EQ(find("cuCopy", 13000, 1, nullptr), reinterpret_cast<void*>(&cuCopy));
  CHECK_EQ(find("cuCopy", 13000, 2, nullptr), reinterpret_cast<void*>(&cuCopy_ptds));
  CHECK_EQ(find("cuCopy", 6050, 2, nullptr), reinterpret_cast<void*>(&cuCopy));
  CHECK(find("cuAsk", 2000, 0, &status) == nullptr);
  CHECK_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  for (const char* name : {"", "cu", "cuNothing", "cuAs", "cuAskk", "zz"}) {
    CHECK(find(name, 13000, 0, &status) == nullptr);
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  }
  void* fn = nullptr;
  CHECK_EQ(client::resolve(nullptr, 13000, 0, 13000, &fn, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(client::resolve("cuAsk", 13000, 0, 13000, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(client::resolve("cuAsk", 13010, 0, 13000, &fn, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(client::resolve("cuAsk", 13010, 0, 13020, &fn, nullptr), CUDA_SUCCESS);
  CHECK_EQ(client::resolve("cuAsk", 13000, 3, 13000, &fn, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(client::resolve("cuAsk", 13000, 4, 13000, &fn, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST("the driver table is filled by name; what is missing answers not supported") {
  worker::Driver table;
  table.load(::dlopen(nullptr, RTLD_NOW));
  CHECK_EQ(reinterpret_cast<void*>(table.cuAsk), reinterpret_cast<void*>(&cuAsk));
  worker::Driver empty;
  empty.load(::dlopen("libm.so.6", RTLD_NOW));
  CHECK_EQ(empty.cuAsk(nullptr, nullptr, nullptr, 0), CUDA_ERROR_NOT_SUPPORTED);
}
