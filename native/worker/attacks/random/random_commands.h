// SPDX-License-Identifier: Apache-2.0
// Makes the commands of a hostile client, from the generated description of all commands: any order, objects that exist,
// existed or never did, numbers at the limits of their types and of the session's memory, and wrong lengths.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/gen/command_layouts.h"
#include "protocol/handle.h"
#include "protocol/wire.h"

namespace millpond::worker {

/// The kernels of the client's module: a correct one, and one that never ends.
inline constexpr std::string_view kRandomModule = R"(.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.global .align 8 .b8 g[65536];
.visible .entry fill(.param .u64 p, .param .u32 n, .param .u32 v) {
  .reg .u64 %rd<4>; .reg .u32 %r<6>; .reg .pred %p;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [v];
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
  mad.lo.u32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %p, %r3, %r1; @%p bra $done;
  mul.wide.u32 %rd2, %r3, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2;
$done:
  ret;
}
.visible .entry spin() {
$again:
  bra $again;
}
)";

class RandomCommands {
 public:
  using SharedHandle = std::function<void(std::span<std::byte> place)>;

  /// `sharedHandle`: of an object that another session shares.
  RandomCommands(uint32_t seed, SharedHandle sharedHandle);

  /// The first commands, which create one object of most kinds for the later ones.
  std::vector<std::vector<std::byte>> beginning();
  /// Returns a whole frame.
  std::vector<std::byte> next();
  /// Takes the worker's reply to the frame with that request.
  void learn(uint32_t request, int32_t result, std::span<const std::byte> body);

 private:
  struct Memory {
    uint64_t address;
    uint64_t bytes;
  };
  struct Asked {
    cmd::Op op{};
    uint64_t bytes = 0;  ///< or the number of a context
  };
  using Tails = std::vector<std::vector<std::byte>>;

  uint32_t below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool isWild() { return below(1000) < wild_; }
  uint64_t extreme();
  uint64_t size();
  uint64_t address();
  uint64_t word();
  uint64_t numbered(const std::vector<uint64_t>& known);
  uint64_t handleOf(HandleKind kind);
  uint64_t newHandle(HandleKind kind);
  uint64_t plain(const cmd::CommandLayout& layout, const cmd::FieldLayout& field);
  uint64_t value(const cmd::CommandLayout& layout, const cmd::FieldLayout& field);
  void fillStruct(std::span<std::byte> place);
  std::vector<std::byte> node();
  std::vector<std::byte> tail(const cmd::CommandLayout& layout, const cmd::FieldLayout& length, cmd::TailUse use);
  const cmd::CommandLayout& choose();
  std::vector<std::byte> frame(const cmd::CommandLayout& layout, std::vector<std::byte> fixed, const Tails& tails);
  template <typename C, typename... Parts>
  std::vector<std::byte> certain(const C& command, const Parts&... tails);

  std::mt19937 random_;
  const SharedHandle sharedHandle_;
  const bool isGreedy_;  ///< whether it takes as much memory as it gets
  const uint32_t wild_;  ///< how many of a thousand values are extreme
  uint32_t request_ = 0;
  uint32_t lastContext_ = 2;
  std::vector<uint64_t> contexts_{0, 1, 2};
  std::array<Asked, 64> asked_;
  uint32_t lastIndex_ = 0;  ///< of handles: the kinds have one table
  std::array<std::vector<uint64_t>, kHandleKinds> made_{};
  std::vector<Memory> memory_;
  std::vector<uint64_t> graphs_, nodes_, execs_, objects_, others_;
};

}  // namespace millpond::worker
