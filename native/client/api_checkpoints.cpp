// SPDX-License-Identifier: Apache-2.0
// Checkpoints of processes: this one runs, since nothing can lock it. What others do is not known here.
#include <unistd.h>

#include "client/client.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

/// Of a call that needs a process which is locked or checkpointed.
CUresult refuseRunning(int pid) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  return pid == ::getpid() ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pid <= 0 || state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pid != ::getpid()) return CUDA_ERROR_NOT_SUPPORTED;
  *state = CU_PROCESS_STATE_RUNNING;
  return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) noexcept { return refuseRunning(pid); }
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs*) noexcept { return refuseRunning(pid); }
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) noexcept { return refuseRunning(pid); }

}  // namespace millpond::client::api
