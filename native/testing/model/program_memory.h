// SPDX-License-Identifier: Apache-2.0
// The memory of a running program: its buffers, with their initial contents, and what its kernels and streams look up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "testing/model/program.h"

namespace millpond::model {

class ProgramMemory {
 public:
  /// In the first context, which is current, and buffers of the other device in the second.
  ProgramMemory(const Program& program, CUcontext context, CUcontext peer);
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;
  void free();

  CUdeviceptr device(int slot) const;
  uint32_t* host(int slot) const;
  /// The address of a slot of any kind: for host memory, the host's pointer.
  CUdeviceptr address(int slot) const {
    return isHost(kindOf(slot)) ? reinterpret_cast<CUdeviceptr>(host(slot)) : device(slot);
  }
  /// Where kernels find the addresses of slots; 0: no kernel reads them.
  CUdeviceptr table() const { return table_; }
  uint32_t& word(uint8_t object) const { return words_[16 * object]; }
  CUdeviceptr wordOnDevice(uint8_t object) const { return deviceWords_ + 64 * object; }

 private:
  struct Place {
    CUdeviceptr device = 0;
    void* host = nullptr;
  };

  Memory kindOf(int slot) const { return bufferOf(program_, slot).memory; }
  Place allocate(const Buffer& buffer) const;
  void fill() const;
  void makeTable();
  void makeWords();
  void free(Memory kind, const Place& place) const;
  size_t offset(int slot) const;

  const Program& program_;
  const CUcontext context_;
  const CUcontext peer_;
  std::vector<Place> places_;
  CUdeviceptr table_ = 0;
  uint32_t* words_ = nullptr;
  CUdeviceptr deviceWords_ = 0;
};

}  // namespace millpond::model
