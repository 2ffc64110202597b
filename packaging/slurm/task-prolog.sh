#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TaskProlog of slurmd: its output becomes the environment of the task, which finds the vGPUs of its job.
set -eu
. "$(dirname "$0")/common.sh"

[ -n "$(asked_vgpus)" ] || exit 0
# Slurm reads one line for each variable, so the authority stays in a file.
authority=${MILLPOND_CA:-}
eval "$(millpond env --claim "$claim")"
MILLPOND_CA=$authority
for name in MILLPOND_CONTROLLER MILLPOND_TOKEN MILLPOND_CA MILLPOND_CLAIM CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH; do
  eval "value=\${$name:-}"
  [ -z "$value" ] || printf 'export %s=%s\n' "$name" "$value"
done
