#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog of slurmd: gives the claim of a job back. A job that had none is no failure.
set -eu
. "$(dirname "$0")/common.sh"

if millpond get claims "$claim" >/dev/null 2>&1; then
  millpond release "$claim" --reason "Slurm job $SLURM_JOB_ID has ended" >&2
fi
