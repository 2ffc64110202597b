#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TaskProlog of slurmd, which runs it as the job's user: its output becomes the environment of the task, which finds the vGPUs
# of its job. A task of a job without a claim ends with the reason.
set -eu
. "$(dirname "$0")/common.sh"

[ -e "$prepared" ] || exit 0
cat "$prepared"
grep -q '^export MILLPOND_CLAIM=' "$prepared"
