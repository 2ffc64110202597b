// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/modules/links.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "cuda/image_extent.h"
#include "worker/commands/modules/jit_reply.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxLinks = 256;

}  // namespace

// Links

CUresult Links::onLinkCreate(const cmd::Decoded<cmd::LinkCreate>& command) {
  const uint64_t wire = command.fixed.handle;
  if (links_.size() >= kMaxLinks) return CUDA_ERROR_OUT_OF_MEMORY;
  auto link = std::make_unique<Link>();
  link->charge = HostCharge(counts_);
  if (!link->options.read(command.tail[0])) return violation("unknown linker options");
  JitOptions& options = link->options;
  CUlinkState state = nullptr;
  if (CUresult rc = driver_.cuLinkCreate_v2(options.count(), options.ids(), options.values(), &state)) return rc;
  if (!objects_.adopt(HandleKind::kLinkState, wire, state)) return violation("the handle of a link is taken");
  links_[wire] = std::move(link);
  return CUDA_SUCCESS;
}

CUresult Links::onLinkAdd(const cmd::Decoded<cmd::LinkAdd>& command) {
  const uint64_t wire = command.fixed.handle;
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, wire, state)) return violation("unknown link");
  Image image;
  if (!images_.take(wire, image)) return violation("an input of a link is missing");
  if (image.noRoom) return CUDA_ERROR_OUT_OF_MEMORY;
  if (Images::isWrapper(image)) return violation("an image that names addresses");
  if (command.tail[0].size() > kMaxNameBytes) return violation("a long name");
  const std::string name(reinterpret_cast<const char*>(command.tail[0].data()), command.tail[0].size());
  JitOptions options;
  if (!options.read(command.tail[1])) return violation("unknown linker options");
  // The zero after text belongs to it.
  const size_t bytes = image.total + (command.fixed.type == CU_JIT_INPUT_PTX ? 1 : 0);
  if (!links_[wire]->charge.add(image.total)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult rc = driver_.cuLinkAddData_v2(state, static_cast<CUjitInputType>(command.fixed.type),
                                               const_cast<std::byte*>(image.data()), bytes, name.c_str(),
                                               options.count(), options.ids(), options.values());
  replyJit<cmd::LinkAddReply>(session_, links_[wire]->options);
  images_.keep(std::move(image));
  return rc;
}

CUresult Links::onLinkComplete(const cmd::Decoded<cmd::LinkComplete>& command) {
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, command.fixed.handle, state)) return violation("unknown link");
  Link& link = *links_[command.fixed.handle];
  void* code = nullptr;
  size_t bytes = 0;
  CUresult rc = driver_.cuLinkComplete(state, &code, &bytes);
  // Its size is known only now; without room the program does not get the code, and destroys the link.
  if (!rc && !link.charge.add(bytes)) rc = CUDA_ERROR_OUT_OF_MEMORY;
  if (!rc) link.code = {static_cast<const std::byte*>(code), bytes};
  replyJit<cmd::LinkCompleteReply>(session_, link.options);
  return rc;
}

CUresult Links::onLinkRead(const cmd::Decoded<cmd::LinkRead>& command) {
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, command.fixed.handle, state)) return violation("unknown link");
  const auto code = links_[command.fixed.handle]->code;
  if (command.fixed.offset > code.size()) return violation("the range exceeds the linked image");
  const auto rest = code.subspan(command.fixed.offset);
  reply(cmd::LinkReadReply{.total = code.size()}, rest.first(std::min(rest.size(), wire::kChunkBytes)));
  return CUDA_SUCCESS;
}

CUresult Links::onLinkDestroy(const cmd::Decoded<cmd::LinkDestroy>& command) {
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, command.fixed.handle, state)) return violation("unknown link");
  objects_.drop(HandleKind::kLinkState, command.fixed.handle);
  const CUresult rc = driver_.cuLinkDestroy(state);
  links_.erase(command.fixed.handle);  // the driver writes into its buffers until then
  return rc;
}

}  // namespace millpond::worker
