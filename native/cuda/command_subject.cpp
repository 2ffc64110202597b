// SPDX-License-Identifier: Apache-2.0
#include "cuda/command_subject.h"

#include <algorithm>
#include <cstring>

#include "protocol/handle.h"

namespace millpond {
namespace {

/// Where a command names what it makes or sets, and which of its bytes are the value that it sets.
struct Rule {
  /// What it does to its subject.
  enum class Does : uint8_t { kMake, kSet, kTell };
  cmd::Op op;
  Does does;
  size_t subject;  ///< offset of the handle, of the context's number, or of the address
  size_t value = 0;  ///< of a setting
  size_t valueBytes = 0;
  Subject::Kind kind = Subject::Kind::kHandle;
};

constexpr size_t kOwnContext = SIZE_MAX;  ///< the subject is the context that the command is in
using Does = Rule::Does;

constexpr Rule makes(cmd::Op op, size_t subject, Subject::Kind kind = Subject::Kind::kHandle) {
  return {op, Does::kMake, subject, 0, 0, kind};
}
constexpr Rule sets(cmd::Op op, size_t subject, size_t value, size_t valueBytes) {
  return {op, Does::kSet, subject, value, valueBytes};
}
constexpr Rule tells(cmd::Op op, size_t subject) { return {op, Does::kTell, subject}; }

constexpr Rule kRules[] = {
    makes(cmd::Op::kContextCreate, offsetof(cmd::ContextCreate, context), Subject::Kind::kContext),
    makes(cmd::Op::kHostKeep, offsetof(cmd::HostKeep, address), Subject::Kind::kHostMemory),
    makes(cmd::Op::kPoolCreate, offsetof(cmd::PoolCreate, pool)),
    makes(cmd::Op::kStreamCreate, offsetof(cmd::StreamCreate, phStream)),
    makes(cmd::Op::kStreamCreateWithPriority, offsetof(cmd::StreamCreateWithPriority, phStream)),
    makes(cmd::Op::kEventCreate, offsetof(cmd::EventCreate, phEvent)),
    makes(cmd::Op::kModuleLoad, offsetof(cmd::ModuleLoad, handle)),
    makes(cmd::Op::kLibraryGetModule, offsetof(cmd::LibraryGetModule, handle)),
    makes(cmd::Op::kGetFunction, offsetof(cmd::GetFunction, handle)),
    sets(cmd::Op::kContextSetLimit, kOwnContext, offsetof(cmd::ContextSetLimit, value), sizeof(uint64_t)),
    sets(cmd::Op::kContextSetCacheConfig, kOwnContext, offsetof(cmd::ContextSetCacheConfig, config), sizeof(int32_t)),
    sets(cmd::Op::kPoolSetThreshold, offsetof(cmd::PoolSetThreshold, pool), offsetof(cmd::PoolSetThreshold, bytes),
         sizeof(uint64_t)),
    sets(cmd::Op::kStreamSetAttribute, offsetof(cmd::StreamSetAttribute, stream),
         offsetof(cmd::StreamSetAttribute, value), sizeof(cmd::StreamSetAttribute::value)),
    sets(cmd::Op::kFuncSetAttribute, offsetof(cmd::FuncSetAttribute, hfunc), offsetof(cmd::FuncSetAttribute, value),
         sizeof(int32_t)),
    sets(cmd::Op::kFuncSetCacheConfig, offsetof(cmd::FuncSetCacheConfig, hfunc),
         offsetof(cmd::FuncSetCacheConfig, config), sizeof(int32_t)),
    sets(cmd::Op::kFuncSetSharedMemConfig, offsetof(cmd::FuncSetSharedMemConfig, hfunc),
         offsetof(cmd::FuncSetSharedMemConfig, config), sizeof(int32_t)),
    sets(cmd::Op::kKernelSetAttribute, offsetof(cmd::KernelSetAttribute, kernel), offsetof(cmd::KernelSetAttribute, val),
         sizeof(int32_t)),
    sets(cmd::Op::kKernelSetCacheConfig, offsetof(cmd::KernelSetCacheConfig, kernel),
         offsetof(cmd::KernelSetCacheConfig, config), sizeof(int32_t)),
    tells(cmd::Op::kEventHappened, offsetof(cmd::EventHappened, event)),
    tells(cmd::Op::kPoolHigh, offsetof(cmd::PoolHigh, pool)),
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

bool canRepeat(cmd::Op op) {
  const Rule* rule = ruleOf(op);
  return rule && rule->does != Does::kTell;
}

std::optional<CommandSubject> subjectOf(cmd::Op op, uint16_t context, std::span<const std::byte> body) {
  const Rule* rule = ruleOf(op);
  if (!rule || body.size() < rule->value + rule->valueBytes) return std::nullopt;
  const auto subject = subjectOf(*rule, context, body);
  if (!subject) return std::nullopt;
  const bool hasContext = subject->kind == Subject::Kind::kContext ||
                          (subject->kind == Subject::Kind::kHandle && handle::livesInContext(handle::kind(subject->number)));
  return CommandSubject{*subject, rule->value, rule->valueBytes, hasContext};
}

}  // namespace millpond
