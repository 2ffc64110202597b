// SPDX-License-Identifier: Apache-2.0
// Copies of one row of bytes, the basis of all others.
#pragma once

#include <optional>

#include "client/call/call.h"

namespace millpond::client {

enum class Wait : bool { kNo, kYes };

/// Copies from any memory of this process. Pageable memory may be reused when the call returns, whether or not the copy
/// waits.
CUresult toDevice(Call& call, CUdeviceptr to, const void* from, size_t bytes, uint64_t stream, Wait wait);
CUresult fromDevice(Call& call, void* to, CUdeviceptr from, size_t bytes, uint64_t stream, Wait wait);
/// Between any two addresses.
CUresult unified(Call& call, CUdeviceptr to, CUdeviceptr from, size_t bytes, uint64_t stream, Wait wait);
/// Waits until the stream's work is done.
CUresult awaitStream(Call& call, uint64_t stream);
/// The same, for a limited time: pending functions of the program may wait for the calling thread.
CUresult awaitBriefly(Call& call, uint64_t stream, bool& isDone);
/// A source in this process that must be read in stream order can be read only when the stream has reached the copy.
CUresult awaitSource(Call& call, CUmemcpySrcAccessOrder order, CUdeviceptr source, uint64_t stream);
/// Whether device memory that this process allocated is there.
bool onDevice(Call& call, CUdeviceptr address);
/// Whether it is pinned memory of this process that the worker cannot access.
bool isPinnedHere(Call& call, uint64_t address);
/// Whether a synchronous copy to a device from this memory of the process returns only when it is done, after
/// everything before it in its stream.
bool endsWithCall(Call& call, uint64_t from, size_t bytes);
/// Whether the program can read that memory without a copy.
bool isSeenByHost(Call& call, uint64_t address);

namespace instead {

/// A copy between devices with an end in pinned memory that the worker does not have. None if there is no such end.
std::optional<CUresult> copyOfOwn(Call& call, const cmd::MemcpyDtoDV2& copy);
std::optional<CUresult> copyOfOwn(Call& call, const cmd::MemcpyDtoDAsyncV2& copy);

}  // namespace instead

/// Memory of the current device for the duration of a few commands of one stream.
CUresult takeTemporary(Call& call, size_t bytes, uint64_t stream, CUdeviceptr& address);
CUresult giveTemporary(Call& call, CUdeviceptr address, uint64_t stream);

}  // namespace millpond::client
