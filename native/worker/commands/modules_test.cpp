// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, functions and launches.
#include <elf.h>

#include <cstring>
#include <string>

#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {
namespace {

uint64_t library(uint32_t n) { return handle::make(HandleKind::kLibrary, 2000 + n, 1); }
uint64_t kernel(uint32_t n) { return handle::make(HandleKind::kKernel, 3000 + n, 1); }

std::span<const std::byte> bytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

bool part(ExecutorFixture& f, uint64_t handle, uint64_t offset, uint64_t total, const std::string& data) {
  cmd::ImagePart command{};
  command.handle = handle;
  command.offset = offset;
  command.total = total;
  return f.post(command, 1, bytesOf(data));
}

int32_t load(ExecutorFixture& f, uint64_t handle, uint32_t kind) {
  cmd::ModuleLoad command{};
  command.handle = handle;
  command.kind = kind;
  return f.wait(command, 1, std::span<const std::byte>{}, std::span<const std::byte>{});
}

int32_t loadText(ExecutorFixture& f, uint64_t handle, uint32_t kind, const std::string& text, size_t piece = 1000) {
  for (size_t at = 0; at < text.size(); at += piece) CHECK(part(f, handle, at, text.size(), text.substr(at, piece)));
  return load(f, handle, kind);
}

/// An empty fatbin whose header claims `bodyBytes`.
std::string fatbin(uint64_t bodyBytes) {
  const struct {
    uint32_t magic = 0xba55ed50;
    uint16_t version = 1;
    uint16_t headerBytes = 16;
    uint64_t bodyBytes;
  } header{.bodyBytes = bodyBytes};
  return {reinterpret_cast<const char*>(&header), sizeof header};
}
/// Machine code whose section table is at that offset.
std::string cubin(uint64_t sections) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sections;
  header.e_shnum = 1;
  header.e_shentsize = sizeof(Elf64_Shdr);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

int32_t get(ExecutorFixture& f, uint64_t owner, uint64_t handle, const std::string& name,
            uint32_t* parameters = nullptr) {
  cmd::GetFunction command{};
  command.owner = owner;
  command.handle = handle;
  std::vector<std::byte> whole;
  Session::Answer answer;
  answer.whole = &whole;
  const int32_t result = f.wait(command, 1, answer, bytesOf(name));
  if (result == 0) {
    cmd::Decoded<cmd::GetFunctionReply> reply;
    CHECK(cmd::decode(whole, reply));
    CHECK_EQ(reply.tail[0].size(), size_t{reply.fixed.paramCount} * 8);
    for (uint32_t i = 0; i < reply.fixed.paramCount; ++i) {
      uint32_t layout[2];
      std::memcpy(layout, reply.tail[0].data() + 8 * i, 8);
      CHECK_EQ(layout[0], 4 * i);
      CHECK_EQ(layout[1], 4u);
    }
    if (parameters) *parameters = reply.fixed.paramCount;
  }
  return result;
}

bool launch(ExecutorFixture& f, uint64_t what, std::span<const std::byte> params, uint64_t stream = 0,
            std::span<const CUlaunchAttribute> attributes = {}, uint32_t flags = 0) {
  cmd::Launch command{};
  command.function = what;
  command.stream = stream;
  command.gridX = command.gridY = command.gridZ = command.blockX = command.blockY = command.blockZ = 1;
  command.flags = flags;
  return f.post(command, 1, std::as_bytes(attributes), params);
}

TEST("an image that comes in parts loads, and its functions can be launched") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    f.makeStream(1);
    CHECK_EQ(loadText(f, module(1), 0, std::string(200'000, 'p'), 70'001), 0);
    CHECK_EQ(loadText(f, library(2), 1, "text"), 0);
    uint32_t parameters = 0;
    CHECK_EQ(get(f, module(1), function(1), "f40", &parameters), 0);
    CHECK_EQ(parameters, 10u);
    CHECK_EQ(get(f, library(2), kernel(2), "f0", &parameters), 0);
    CHECK_EQ(parameters, 0u);
    CHECK_EQ(get(f, library(2), kernel(3), "f4000", &parameters), 0);
    CHECK_EQ(get(f, module(1), function(4), "nothing"), CUDA_ERROR_NOT_FOUND);
    const auto params = pattern(9, 40);
    CHECK(launch(f, function(1), params, ExecutorFixture::stream(1)));
    CHECK(launch(f, kernel(2), {}));
    const auto many = pattern(10, 4000);
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    CHECK(launch(f, kernel(3), many, 0, std::span(&attribute, 1), 1));
    f.marker();
    const auto launches = f.fake().launches();
    CHECK_EQ(launches.size(), 3u);
    CHECK_EQ(launches[0].name, "f40");
    CHECK(launches[0].params == params);
    CHECK_EQ(launches[0].stream, 1u);
    CHECK_EQ(launches[1].name, "f0");
    CHECK(launches[2].params == many);
    CHECK_EQ(launches[2].attributes, 2u);  // the client's attributes, and the one that makes it cooperative
    CHECK_EQ(f.session().failure(), 0);
  }
}

TEST("an image that the driver refuses leaves its handle free") {
  {
    ExecutorFixture f(Carrier::kSharedMemory);
    CHECK_EQ(loadText(f, module(1), 0, "bad text"), CUDA_ERROR_INVALID_IMAGE);
    CHECK_EQ(get(f, module(1), function(1), "f4"), kSessionLost);  // it never belonged to the session
  }
  ExecutorFixture g(Carrier::kSharedMemory);
  CHECK_EQ(loadText(g, module(1), 0, "bad text"), CUDA_ERROR_INVALID_IMAGE);
  CHECK_EQ(loadText(g, module(1), 0, "good text"), 0);
  CHECK_EQ(get(g, module(1), function(1), "f4"), 0);
}

TEST("a text of any length is for the driver to judge") {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    uint32_t number = 0;
    for (const auto& text : {std::string(1, 0), std::string("p"), std::string("pt"), std::string("ptx")})
      CHECK_EQ(loadText(f, module(++number), 0, text), 0);
  }
}

TEST("what came from a module ends with it, and is an invalid handle afterwards") {
  ExecutorFixture f(Carrier::kSharedMemory);
  CHECK_EQ(loadText(f, module(1), 0, "one"), 0);
  CHECK_EQ(loadText(f, module(2), 0, "two"), 0);
  CHECK_EQ(get(f, module(1), function(1), "f4"), 0);
  CHECK_EQ(get(f, module(2), function(2), "f4"), 0);
  cmd::ModuleUnload unload{};
  unload.handle = module(1);
  CHECK(f.post(unload, 1));
  const auto params = pattern(1, 4);
  CHECK(launch(f, function(2), params));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), 0);
  CHECK(launch(f, function(1), params));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(get(f, module(1), function(3), "f4"), CUDA_ERROR_INVALID_HANDLE);
  CHECK(f.post(unload, 1));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_HANDLE);
  // Their slots can be reused.
  CHECK_EQ(loadText(f, handle::make(HandleKind::kModule, 2001, 2), 0, "three"), 0);
  CHECK_EQ(get(f, handle::make(HandleKind::kModule, 2001, 2), handle::make(HandleKind::kKernel, 3001, 2), "f4"),
           CUDA_ERROR_INVALID_HANDLE);  // a kernel of a module
}

TEST("a stream or event that the driver could not make is an invalid handle, not the default one") {
  ExecutorFixture f(Carrier::kSharedMemory);
  f.fake().failNext("cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY);
  f.fake().failNext("cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY);
  f.makeStream(1);
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_OUT_OF_MEMORY);
  f.makeEvent(1);
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr memory = f.allocate(1000);
  CHECK(f.fill(memory, 5, 1000));
  CHECK(f.fill(memory, 6, 1000, ExecutorFixture::stream(1)));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(f.syncStream(ExecutorFixture::stream(1)), CUDA_ERROR_INVALID_HANDLE);
  cmd::EventSync sync{};
  sync.event = ExecutorFixture::event(1);
  CHECK_EQ(f.wait(sync), CUDA_ERROR_INVALID_HANDLE);
  std::vector<std::byte> to(1000);
  CHECK_EQ(f.download(to, memory, ExecutorFixture::stream(1)), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(f.download(to, memory), 0);
  CHECK(to[0] == std::byte{5});
  // Destroying it is also an error, and frees its slot.
  cmd::StreamDestroyV2 destroy{};
  destroy.hStream = ExecutorFixture::stream(1);
  CHECK(f.post(destroy, 1));
  f.marker();
  CHECK_EQ(f.session().takeFailure(), CUDA_ERROR_INVALID_HANDLE);
  f.makeStream(1);
  CHECK_EQ(f.syncStream(ExecutorFixture::stream(1)), 0);
}

/// The session must end with this reason.
template <typename Act>
void checkViolation(const std::string& reason, Act&& act) {
  for (const Carrier carrier : kCarriers) {
    ExecutorFixture f(carrier);
    f.makeStream(1);
    f.makeEvent(1);
    CHECK_EQ(loadText(f, module(1), 0, "text"), 0);
    CHECK_EQ(loadText(f, library(2), 1, "text"), 0);
    CHECK_EQ(get(f, module(1), function(1), "f8"), 0);
    act(f);
    f.wait(cmd::Marker{});
    const Executor::End end = f.ended();
    CHECK(!end.ok);
    if (end.reason.find(reason) == std::string::npos || !end.reason.starts_with("protocol violation in command "))
      CHECK_EQ(end.reason, reason);
    CHECK_EQ(f.lostReason(), end.reason);
  }
}

TEST("a client that breaks the rules of modules ends its session, with what was wrong") {
  const std::string lies = "a piece of an image lies outside of it";
  checkViolation("an image of 0 bytes", [](auto& f) { part(f, module(5), 0, 0, ""); });
  checkViolation("an image of 2147483649 bytes", [](auto& f) { part(f, module(5), 0, (uint64_t{2} << 30) + 1, "x"); });
  checkViolation("an image of 18446744073709551615 bytes", [](auto& f) { part(f, module(5), 0, ~uint64_t{0}, "x"); });
  checkViolation(lies, [](auto& f) { part(f, module(5), 0, 3, "four"); });
  checkViolation(lies, [](auto& f) { part(f, module(5), 1, 10, "x"); });
  checkViolation(lies, [](auto& f) { part(f, module(5), ~uint64_t{0}, 10, "x"); });
  checkViolation(lies, [](auto& f) { part(f, module(5), 0, 10, "12345") && part(f, module(5), 0, 10, "12345"); });
  checkViolation(lies, [](auto& f) { part(f, module(5), 0, 10, "12345") && part(f, module(5), 5, 11, "123456"); });
  checkViolation("too many images", [](auto& f) {
    for (uint32_t n = 0; n < 300; ++n) part(f, module(100 + n), 0, 10, "x");
  });
  const std::string absent = "a module whose image is missing";
  checkViolation(absent, [](auto& f) { load(f, module(5), 0); });
  checkViolation(absent, [](auto& f) { part(f, module(5), 0, 5, "1234") && load(f, module(5), 0); });
  checkViolation("a module of unknown kind", [](auto& f) { loadText(f, module(5), 1, "text"); });
  checkViolation("a module of unknown kind", [](auto& f) { loadText(f, library(5), 0, "text"); });
  checkViolation("a module of unknown kind", [](auto& f) { loadText(f, ExecutorFixture::stream(9), 0, "text"); });
  const std::string beyond = "an image that reaches beyond its bytes";
  checkViolation(beyond, [](auto& f) { loadText(f, module(5), 0, fatbin(2)); });
  checkViolation(beyond, [](auto& f) { loadText(f, library(5), 1, fatbin(~uint64_t{0})); });
  checkViolation(beyond, [](auto& f) { loadText(f, module(5), 0, fatbin(0).substr(0, 8)); });
  checkViolation(beyond, [](auto& f) { loadText(f, module(5), 0, cubin(uint64_t{1} << 32)); });
  checkViolation(beyond, [](auto& f) { loadText(f, module(5), 0, cubin(~uint64_t{0})); });
  checkViolation("the handle of a module is taken", [](auto& f) { loadText(f, module(1), 0, "text"); });
  checkViolation("the handle of a module is taken", [](auto& f) { loadText(f, library(1), 1, "text"); });
  checkViolation("unknown module", [](auto& f) { get(f, module(99), function(5), "f4"); });
  checkViolation("unknown library", [](auto& f) { get(f, library(99), kernel(5), "f4"); });
  checkViolation("a function of unknown kind", [](auto& f) { get(f, module(1), module(5), "f4"); });
  checkViolation("the handle of a function is taken", [](auto& f) { get(f, module(1), function(1), "f4"); });
  checkViolation("a name of 4097 bytes", [](auto& f) { get(f, module(1), function(5), std::string(4097, 'f')); });
  checkViolation("not a module", [](auto& f) {
    cmd::ModuleUnload unload{};
    unload.handle = function(1);
    f.post(unload, 1);
  });
  const auto eight = pattern(1, 8);
  checkViolation("unknown function", [&](auto& f) { launch(f, function(99), eight); });
  checkViolation("unknown function", [&](auto& f) { launch(f, module(99), eight); });
  checkViolation("unknown stream", [&](auto& f) { launch(f, function(1), eight, ExecutorFixture::stream(99)); });
  checkViolation("unknown stream", [&](auto& f) { launch(f, function(1), eight, ExecutorFixture::event(99)); });
  checkViolation("a launch with 9 bytes of parameters instead of 8",
                 [](auto& f) { launch(f, function(1), pattern(1, 9)); });
  checkViolation("a launch with 0 bytes of parameters instead of 8", [](auto& f) { launch(f, function(1), {}); });
  checkViolation("launch attribute", [&](auto& f) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    launch(f, function(1), eight, 0, std::span(&attribute, 1));
  });
  checkViolation("unknown event", [&](auto& f) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    attribute.value.programmaticEvent.event = reinterpret_cast<CUevent>(ExecutorFixture::event(99));
    launch(f, function(1), eight, 0, std::span(&attribute, 1));
  });
  checkViolation("launch attributes of", [&](auto& f) {
    const std::vector<CUlaunchAttribute> many(65);
    launch(f, function(1), eight, 0, many);
  });
}

}  // namespace
}  // namespace millpond::worker
