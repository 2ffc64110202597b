// SPDX-License-Identifier: Apache-2.0
// Checkpoints of processes: this process is always running, because nothing can lock it. Other processes are unknown
// here.
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

CUresult checkProcess(int pid) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (pid == ::getpid()) return CUDA_SUCCESS;
  const bool isThere = pid > 0 && (::kill(pid, 0) == 0 || errno != ESRCH);
  return isThere ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OPERATING_SYSTEM;
}

/// Returns the error of a call that requires a locked or checkpointed process.
CUresult refuseRunning(int pid) {
  const CUresult r = checkProcess(pid);
  return r == CUDA_SUCCESS ? CUDA_ERROR_ILLEGAL_STATE : r;
}

}  // namespace

CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = checkProcess(pid); r != CUDA_SUCCESS) return r;
  *state = CU_PROCESS_STATE_RUNNING;
  return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) noexcept { return refuseRunning(pid); }
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs*) noexcept { return refuseRunning(pid); }
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) noexcept { return refuseRunning(pid); }

}  // namespace millpond::client::api
