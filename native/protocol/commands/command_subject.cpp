// SPDX-License-Identifier: Apache-2.0
#include "protocol/commands/command_subject.h"

#include <cstring>

#include "protocol/handle.h"

namespace millpond {
namespace {

template <typename T>
std::optional<uint64_t> numberAt(std::span<const std::byte> body, size_t offset) {
  T value;
  if (body.size() < offset || body.size() - offset < sizeof(value)) return std::nullopt;
  std::memcpy(&value, body.data() + offset, sizeof(value));
  return value;
}

std::optional<Subject> subjectOf(const cmd::Left& left, uint16_t context, std::span<const std::byte> body) {
  using Kind = Subject::Kind;
  switch (left.of) {
    case cmd::LeftOf::kOwnContext: return Subject{Kind::kContext, context};
    case cmd::LeftOf::kContext:
      if (const auto number = numberAt<uint32_t>(body, left.subject)) return Subject{Kind::kContext, *number};
      return std::nullopt;
    case cmd::LeftOf::kHostMemory:
      if (const auto address = numberAt<uint64_t>(body, left.subject)) return Subject{Kind::kHostMemory, *address};
      return std::nullopt;
    case cmd::LeftOf::kHandle:
      const auto handle = numberAt<uint64_t>(body, left.subject);
      if (!handle) return std::nullopt;
      // A default stream exists as long as its context.
      return *handle == 0 ? Subject{Kind::kContext, context} : Subject{Kind::kHandle, *handle};
  }
  return std::nullopt;
}

}  // namespace

std::optional<CommandSubject> subjectOf(cmd::Op op, uint16_t context, std::span<const std::byte> body) {
  const cmd::Left& left = cmd::leftOf(op);
  const bool names = canRepeat(op) || left.leaves == cmd::Leaves::kWord;
  if (!names || body.size() < size_t{left.value} + left.valueBytes) return std::nullopt;
  const auto subject = subjectOf(left, context, body);
  if (!subject) return std::nullopt;
  const bool hasContext =
      subject->kind == Subject::Kind::kContext ||
      (subject->kind == Subject::Kind::kHandle && handle::livesInContext(handle::kind(subject->number)));
  return CommandSubject{*subject, left.value, left.valueBytes, hasContext};
}

}  // namespace millpond
