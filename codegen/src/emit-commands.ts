// SPDX-License-Identifier: Apache-2.0
/** `native/protocol/gen/`: the bodies of the wire commands as C++ structs, with their encoders and decoders. */
import type { Command, Field, FieldType } from "@millpond/cuda";
import { handleTypes } from "./names.ts";
import { banner, comment } from "./text.ts";
import { apiHash, place } from "./wire.ts";

const cppTypes = {
  u8: "uint8_t",
  u16: "uint16_t",
  u32: "uint32_t",
  i32: "int32_t",
  u64: "uint64_t",
  i64: "int64_t",
  f32: "float",
  address: "wire::Address",
  place: "wire::Address",
  echo: "uint64_t",
  handle: "uint64_t",
  number: "uint64_t",
} as const;

function fieldText(name: string, type: FieldType): string {
  if (typeof type === "string") return `  ${cppTypes[type]} ${name}{};`;
  return `  alignas(8) uint8_t ${name}[${type.bytes}]{};`;
}

function structText(
  name: string,
  doc: string,
  head: readonly string[],
  fields: readonly Field[],
  tails: readonly string[],
): string {
  const { fields: placed, size } = place(fields, tails);
  const lines = [
    ...comment("/// ", doc),
    `struct ${name} {`,
    ...head,
    `  static constexpr size_t kFixedBytes = ${size};`,
    `  static constexpr size_t kTails = ${tails.length};`,
  ];
  if (placed.length > 0) lines.push("");
  let end = 0;
  let pads = 0;
  const pad = (to: number): void => {
    if (to > end) lines.push(`  uint8_t pad${pads++}[${to - end}]{};`);
  };
  for (const field of placed) {
    pad(field.offset);
    lines.push(fieldText(field.name, field.type));
    end = field.offset + field.size;
  }
  pad(size);
  if (tails.length > 0) {
    const lengths = tails.map((tail) => `${tail}Bytes`);
    lines.push(
      "",
      `  std::array<uint32_t, kTails> tailBytes() const { return {${lengths.join(", ")}}; }`,
      "  void setTailBytes(const std::array<uint32_t, kTails>& bytes) {",
      ...lengths.map((length, index) => `    ${length} = bytes[${index}];`),
      "  }",
    );
  }
  lines.push("};");
  if (size > 0) lines.push(`static_assert(sizeof(${name}) == ${name}::kFixedBytes);`);
  return lines.join("\n");
}

function commandText(command: Command): string {
  const { name, doc, fields, tails = [], reply } = command;
  const texts: string[] = [];
  if (reply)
    texts.push(structText(`${name}Reply`, `Answer to ${name}.`, [], reply.fields, reply.tails ?? []));
  const head = [
    `  static constexpr Op kOp = Op::k${name};`,
    `  static constexpr bool kHasReply = ${reply ? "true" : "false"};`,
    ...(reply ? [`  using Reply = ${name}Reply;`] : []),
  ];
  texts.push(structText(name, doc, head, fields, tails));
  return texts.join("\n\n");
}

export function emitCommands(commands: readonly Command[]): string {
  const ops = commands.map((c, index) => `  k${c.name} = ${index + 1},`);
  const names = commands.map((c) => `    case Op::k${c.name}:\n      return "${c.name}";`);
  const work = commands.filter((c) => c.work).map((c) => `    case Op::k${c.name}:`);
  return `${banner("Bodies of the commands that a client sends to its worker, and of their answers.")}#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "protocol/address.h"
#include "protocol/wire.h"

namespace millpond::cmd {

/// The code of a command: its position among all by name, so it may differ in another version. 0 is not a
/// command.
enum class Op : uint16_t {
${ops.join("\n")}
};

/// One more than the highest Op.
inline constexpr uint16_t kOpLimit = ${commands.length + 1};

/// Name of a command, "unknown" for a number that is none.
constexpr const char* opName(Op op) {
  switch (op) {
${names.join("\n")}
  }
  return "unknown";
}

/// Whether a command submits device work that ends by itself, unlike a wait for a later action of the program.
constexpr bool isWork(Op op) {
  switch (op) {
${work.join("\n")}
      return true;
    default:
      return false;
  }
}

${commands.map(commandText).join("\n\n")}

/// Longest string argument, without its end.
inline constexpr size_t kMaxStringBytes = size_t{64} << 10;
/// Longest array argument.
inline constexpr size_t kMaxTailBytes = size_t{256} << 10;

// On the wire a body is the fixed part (kFixedBytes) and then each tail, padded to 8.

/// A command or reply that was read: a copy of the fixed part, and where the tails lie.
template <typename T>
struct Decoded {
  T fixed{};
  std::array<std::span<const std::byte>, T::kTails> tail{};
};

constexpr size_t paddedBytes(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

/// Bytes of a body whose tails have these lengths (each below 4 GiB).
template <typename T, typename... Tails>
constexpr size_t encodedSize(const Tails&... tails) {
  static_assert(sizeof...(Tails) == T::kTails);
  return T::kFixedBytes + (size_t{0} + ... + paddedBytes(tails.size()));
}

/// Writes a body of encodedSize<T>(tails…) bytes to \`place\` and sets the lengths of the tails in it.
template <typename T, typename... Tails>
void encode(std::byte* place, T fixed, const Tails&... tails) {
  static_assert(sizeof...(Tails) == T::kTails && std::is_trivially_copyable_v<T>);
  if constexpr (T::kTails > 0) fixed.setTailBytes({static_cast<uint32_t>(tails.size())...});
  if constexpr (T::kFixedBytes > 0) std::memcpy(place, &fixed, T::kFixedBytes);
  [[maybe_unused]] std::byte* at = place + T::kFixedBytes;
  [[maybe_unused]] const auto append = [&at](std::span<const std::byte> tail) {
    if (tail.empty()) return;
    std::memcpy(at, tail.data(), tail.size());
    std::memset(at + tail.size(), 0, paddedBytes(tail.size()) - tail.size());
    at += paddedBytes(tail.size());
  };
  (append(std::span<const std::byte>(tails)), ...);
}

/// Reads a body that need not be trusted, and that may change meanwhile: the fixed part is read from \`head\`, a copy of the
/// body's beginning. False unless the body is exactly as long as its tails say.
template <typename T>
[[nodiscard]] bool decode(std::span<const std::byte> head, std::span<const std::byte> body, Decoded<T>& out) {
  static_assert(std::is_trivially_copyable_v<T> && T::kFixedBytes <= wire::kHeadBytes);
  if (head.size() < T::kFixedBytes) return false;
  if constexpr (T::kFixedBytes > 0) std::memcpy(&out.fixed, head.data(), T::kFixedBytes);
  size_t at = T::kFixedBytes;
  if constexpr (T::kTails > 0) {
    const std::array<uint32_t, T::kTails> bytes = out.fixed.tailBytes();
    for (size_t i = 0; i < T::kTails; ++i) {
      if (paddedBytes(bytes[i]) > body.size() - at) return false;
      out.tail[i] = body.subspan(at, bytes[i]);
      at += paddedBytes(bytes[i]);
    }
  }
  return at == body.size();
}
/// The same where nothing changes meanwhile, or nothing was looked at before: the fixed part is copied first.
template <typename T>
[[nodiscard]] bool decode(std::span<const std::byte> body, Decoded<T>& out) {
  return decode(body, body, out);
}

}  // namespace millpond::cmd
`;
}

export function emitApiHash(commands: readonly Command[]): string {
  return `${banner("Identity of the command set: both ends of a session must have the same.")}#pragma once

#include <cstdint>

namespace millpond {

inline constexpr uint64_t kApiHash = 0x${apiHash(commands)};

}  // namespace millpond
`;
}

/** In the order of the schema: a kind's number is part of its handles. */
const handleKinds = Object.keys(handleTypes);

export function emitHandleKinds(): string {
  const kinds = handleKinds.map((kind) => `  k${kind[0]?.toUpperCase()}${kind.slice(1)},`);
  return `${banner("What a handle stands for.")}#pragma once

#include <cstdint>

namespace millpond {

enum class HandleKind : uint8_t {
${kinds.join("\n")}
};
inline constexpr uint8_t kHandleKinds = ${handleKinds.length};

}  // namespace millpond
`;
}
