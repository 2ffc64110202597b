// SPDX-License-Identifier: Apache-2.0
#include "cuda/command_subject.h"

#include <algorithm>
#include <cstring>

namespace millpond {
namespace {

/// Where a command names what it makes or sets, and which of its bytes are the value that it sets.
struct Rule {
  cmd::Op op;
  size_t subject;      ///< offset of the handle, or of the context's number
  size_t value = 0;    ///< of a setting
  size_t valueBytes = 0;
  Subject::Kind kind = Subject::Kind::kHandle;
};

constexpr size_t kOwnContext = SIZE_MAX;  ///< the subject is the context that the command is in

constexpr Rule kRules[] = {
    {cmd::Op::kContextCreate, offsetof(cmd::ContextCreate, context), 0, 0, Subject::Kind::kContext},
    {cmd::Op::kHostKeep, offsetof(cmd::HostKeep, address), 0, 0, Subject::Kind::kHostMemory},
    {cmd::Op::kStreamCreate, offsetof(cmd::StreamCreate, phStream)},
    {cmd::Op::kStreamCreateWithPriority, offsetof(cmd::StreamCreateWithPriority, phStream)},
    {cmd::Op::kEventCreate, offsetof(cmd::EventCreate, phEvent)},
    {cmd::Op::kModuleLoad, offsetof(cmd::ModuleLoad, handle)},
    {cmd::Op::kLibraryGetModule, offsetof(cmd::LibraryGetModule, handle)},
    {cmd::Op::kGetFunction, offsetof(cmd::GetFunction, handle)},
    {cmd::Op::kContextSetLimit, kOwnContext, offsetof(cmd::ContextSetLimit, value), sizeof(uint64_t)},
    {cmd::Op::kContextSetCacheConfig, kOwnContext, offsetof(cmd::ContextSetCacheConfig, config), sizeof(int32_t)},
    {cmd::Op::kStreamSetAttribute, offsetof(cmd::StreamSetAttribute, stream), offsetof(cmd::StreamSetAttribute, value),
     sizeof(cmd::StreamSetAttribute::value)},
    {cmd::Op::kFuncSetAttribute, offsetof(cmd::FuncSetAttribute, hfunc), offsetof(cmd::FuncSetAttribute, value),
     sizeof(int32_t)},
    {cmd::Op::kFuncSetCacheConfig, offsetof(cmd::FuncSetCacheConfig, hfunc), offsetof(cmd::FuncSetCacheConfig, config),
     sizeof(int32_t)},
    {cmd::Op::kFuncSetSharedMemConfig, offsetof(cmd::FuncSetSharedMemConfig, hfunc),
     offsetof(cmd::FuncSetSharedMemConfig, config), sizeof(int32_t)},
    {cmd::Op::kKernelSetAttribute, offsetof(cmd::KernelSetAttribute, kernel), offsetof(cmd::KernelSetAttribute, val),
     sizeof(int32_t)},
    {cmd::Op::kKernelSetCacheConfig, offsetof(cmd::KernelSetCacheConfig, kernel),
     offsetof(cmd::KernelSetCacheConfig, config), sizeof(int32_t)},
};

const Rule* ruleOf(cmd::Op op) {
  const auto* found = std::find_if(std::begin(kRules), std::end(kRules), [op](const Rule& rule) { return rule.op == op; });
  return found == std::end(kRules) ? nullptr : found;
}

template <typename T>
std::optional<uint64_t> numberAt(std::span<const std::byte> body, size_t offset) {
  T value;
  if (body.size() < offset || body.size() - offset < sizeof(value)) return std::nullopt;
  std::memcpy(&value, body.data() + offset, sizeof(value));
  return value;
}

std::optional<Subject> subjectOf(const Rule& rule, uint16_t context, std::span<const std::byte> body) {
  using Kind = Subject::Kind;
  if (rule.subject == kOwnContext) return Subject{Kind::kContext, context};
  const auto number = rule.kind == Kind::kContext ? numberAt<uint32_t>(body, rule.subject) : numberAt<uint64_t>(body, rule.subject);
  if (!number) return std::nullopt;
  // A default stream is there for as long as its context.
  if (rule.kind == Kind::kHandle && *number == 0) return Subject{Kind::kContext, context};
  return Subject{rule.kind, *number};
}

}  // namespace

bool canRepeat(cmd::Op op) { return ruleOf(op) != nullptr; }

std::optional<CommandSubject> subjectOf(cmd::Op op, uint16_t context, std::span<const std::byte> body) {
  const Rule* rule = ruleOf(op);
  if (!rule || body.size() < rule->value + rule->valueBytes) return std::nullopt;
  const auto subject = subjectOf(*rule, context, body);
  return subject ? std::optional(CommandSubject{*subject, rule->value, rule->valueBytes}) : std::nullopt;
}

}  // namespace millpond
