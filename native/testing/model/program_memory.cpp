// SPDX-License-Identifier: Apache-2.0
#include "testing/model/program_memory.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "testing/model/driver.h"

namespace millpond::model {
namespace {

constexpr size_t kPage = 4096;

void must(const char* call, CUresult result) {
  if (result != CUDA_SUCCESS)
    give(std::string("error: ") + call + ": " + errorName(result) + " before or behind the ops");
}

CUdeviceptr forKernels(const Buffer& buffer, void* host) {
  auto address = reinterpret_cast<CUdeviceptr>(host);
  if (buffer.isAsked) must("cuMemHostGetDevicePointer", CU(cuMemHostGetDevicePointer_v2)(&address, host, 0));
  return address;
}

}  // namespace

ProgramMemory::ProgramMemory(const Program& program, CUcontext context, CUcontext peer)
    : program_(program), context_(context), peer_(peer) {
  for (const Buffer& buffer : program.buffers) places_.push_back(allocate(buffer));
  fill();
  makeTable();
  if (usesWords(program)) makeWords();
}

ProgramMemory::Place ProgramMemory::allocate(const Buffer& buffer) const {
  const size_t bytes = buffer.slots * size_t{buffer.words} * sizeof(uint32_t);
  Place place;
  switch (buffer.memory) {
    case Memory::device: must("cuMemAlloc", CU(cuMemAlloc_v2)(&place.device, bytes)); break;
    case Memory::pool: must("cuMemAllocAsync", CU(cuMemAllocAsync)(&place.device, bytes, nullptr)); break;
    case Memory::peer:
      must("cuCtxSetCurrent", CU(cuCtxSetCurrent)(peer_));
      must("cuMemAlloc", CU(cuMemAlloc_v2)(&place.device, bytes));
      must("cuCtxSetCurrent", CU(cuCtxSetCurrent)(context_));
      break;
    case Memory::managed:
      must("cuMemAllocManaged", CU(cuMemAllocManaged)(&place.device, bytes, CU_MEM_ATTACH_GLOBAL));
      place.host = reinterpret_cast<void*>(place.device);
      break;
    case Memory::pinned:
      must("cuMemHostAlloc", CU(cuMemHostAlloc)(&place.host, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
      place.device = forKernels(buffer, place.host);
      break;
    case Memory::registered: {
      const size_t pages = (bytes + kPage - 1) / kPage * kPage;
      place.host = std::aligned_alloc(kPage, pages);
      std::memset(place.host, 0, pages);
      must("cuMemHostRegister", CU(cuMemHostRegister_v2)(place.host, pages, CU_MEMHOSTREGISTER_DEVICEMAP));
      place.device = forKernels(buffer, place.host);
      break;
    }
    case Memory::pageable: place.host = std::malloc(bytes); break;
  }
  return place;
}

void ProgramMemory::fill() const {
  for (int slot = 0; slot < static_cast<int>(slotCount(program_)); ++slot) {
    const uint32_t count = bufferOf(program_, slot).words;
    std::vector<uint32_t> words(count);
    for (uint32_t i = 0; i < count; ++i) words[i] = initialWord(slot, i);
    if (isHost(kindOf(slot)))
      std::memcpy(host(slot), words.data(), count * sizeof(uint32_t));
    else
      must("cuMemcpyHtoD", CU(cuMemcpyHtoD_v2)(device(slot), words.data(), count * sizeof(uint32_t)));
  }
}

/// With no other addresses: Millpond reads the contents, and would find in them memory that the program passes to no
/// kernel.
void ProgramMemory::makeTable() {
  std::vector<CUdeviceptr> table(slotCount(program_));
  bool isUsed = false;
  eachOp(program_, [&](const Op& op) {
    if (op.kind != OpKind::launch || op.variant != Variant::table) return;
    isUsed = true;
    for (const int slot : {op.to, op.from}) table[static_cast<size_t>(slot)] = device(slot);
  });
  if (!isUsed) return;
  must("cuMemAlloc", CU(cuMemAlloc_v2)(&table_, table.size() * sizeof(CUdeviceptr)));
  must("cuMemcpyHtoD", CU(cuMemcpyHtoD_v2)(table_, table.data(), table.size() * sizeof(CUdeviceptr)));
}

void ProgramMemory::makeWords() {
  void* words = nullptr;
  must("cuMemHostAlloc", CU(cuMemHostAlloc)(&words, kPage, CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(words, 0, kPage);
  words_ = static_cast<uint32_t*>(words);
  must("cuMemHostGetDevicePointer", CU(cuMemHostGetDevicePointer_v2)(&deviceWords_, words, 0));
}

void ProgramMemory::free() {
  for (size_t i = 0; i < places_.size(); ++i) free(program_.buffers[i].memory, places_[i]);
  if (table_) must("cuMemFree", CU(cuMemFree_v2)(table_));
  if (words_) must("cuMemFreeHost", CU(cuMemFreeHost)(words_));
}

void ProgramMemory::free(Memory kind, const Place& place) const {
  switch (kind) {
    case Memory::peer:
      must("cuCtxSetCurrent", CU(cuCtxSetCurrent)(peer_));
      must("cuMemFree", CU(cuMemFree_v2)(place.device));
      must("cuCtxSetCurrent", CU(cuCtxSetCurrent)(context_));
      break;
    case Memory::device:
    case Memory::managed: must("cuMemFree", CU(cuMemFree_v2)(place.device)); break;
    case Memory::pool: must("cuMemFreeAsync", CU(cuMemFreeAsync)(place.device, nullptr)); break;
    case Memory::pinned: must("cuMemFreeHost", CU(cuMemFreeHost)(place.host)); break;
    case Memory::registered: must("cuMemHostUnregister", CU(cuMemHostUnregister)(place.host)); [[fallthrough]];
    case Memory::pageable: std::free(place.host);
  }
}

size_t ProgramMemory::offset(int slot) const {
  return placeOf(program_, slot).index * size_t{bufferOf(program_, slot).words} * sizeof(uint32_t);
}

CUdeviceptr ProgramMemory::device(int slot) const {
  return places_[placeOf(program_, slot).buffer].device + offset(slot);
}

uint32_t* ProgramMemory::host(int slot) const {
  return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(places_[placeOf(program_, slot).buffer].host) +
                                     offset(slot));
}

}  // namespace millpond::model
