// SPDX-License-Identifier: Apache-2.0
// Why an idle session cannot be parked: the objects that cannot be restored.
#include <algorithm>
#include <iterator>
#include <string>

#include "base/size_text.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

/// Kinds of objects that the journal describes completely by the commands that made them.
constexpr HandleKind kJournalled[] = {HandleKind::kStream,  HandleKind::kEvent,    HandleKind::kModule,
                                      HandleKind::kLibrary, HandleKind::kFunction, HandleKind::kKernel};

bool isJournalled(HandleKind kind) {
  return std::find(std::begin(kJournalled), std::end(kJournalled), kind) != std::end(kJournalled);
}

}  // namespace

std::string Executor::whyContextsKept() const {
  for (size_t number = devices_.all().size() + 1; number <= contexts_.size(); ++number) {
    const Context& context = contexts_.at(number);
    if (context.handle && (context.ending || !journal_.contains({Subject::Kind::kContext, number})))
      return "one of its contexts is ending";
  }
  return "";
}

std::string Executor::whyHandlesKept() const {
  std::string why;
  handles_.all([&](const HandleMap::Entry& entry) {
    if (!entry.object || !why.empty()) return;
    const HandleKind kind = handle::kind(entry.wire);
    if (!isJournalled(kind))
      why = "it has an array, a graph, a link or a texture reference";
    else if (!journal_.contains({Subject::Kind::kHandle, entry.wire}))
      why = "it has an object that the journal cannot recreate";
  });
  return why;
}

std::string Executor::whyHostRunsKept() const {
  if (hostRuns_.hasForgotten()) return "a graph may use pinned memory that was freed";
  for (const auto& [address, run] : hostRuns_.all()) {
    if (run.isPrivate) return "its worker holds a mirror of memory of its program";
    if (!run.isKept) return "it has more pinned memory than its client can keep";
  }
  return "";
}

std::string Executor::whyKept() {
  if (hostFunctions_.waiting() != 0) return "its streams have pending host functions";
  if (journal_.trace() != cmd::Op{}) return std::string("it has used ") + cmd::opName(journal_.trace());
  for (size_t device = 0; device < memory_.devices(); ++device)
    // Unused memory of its pools can be released.
    if (const uint64_t used = budgets_.at(device).ownBytes() - charges_.bytesOn(device);
        used && memory_.arena(device).allocations() != memory_.pools().idleBlocks(device))
      return "it has " + sizeText(used, Rounding::kUp) + " of device memory";
  if (!virtualMemory_.empty()) return "it has reserved addresses";
  if (!textures_.empty() || !arrays_.empty()) return "it has an array, a texture or a surface";
  if (std::string why = whyHostRunsKept(); !why.empty()) return why;
  if (!images_.empty() || !links_.empty()) return "a module is being loaded or linked";
  if (!graphs_.empty() || !graphExecs_.empty() || !captures_.empty()) return "it has a graph, or a capture";
  if (!held_.empty() || !frees_.isQuiet()) return "an operation is in progress";
  if (std::string why = whyContextsKept(); !why.empty()) return why;
  if (std::string why = whyHandlesKept(); !why.empty()) return why;
  // Reading variables takes a moment, and without commands nothing changes.
  if (modulesKept_.first != session_.position()) modulesKept_ = {session_.position(), loaded_.whyKept()};
  return modulesKept_.second;
}

}  // namespace millpond::worker
