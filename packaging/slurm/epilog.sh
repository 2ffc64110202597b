#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog of slurmd: releases the claim of a job. It does not fail, because Slurm drains a node whose epilog fails; a claim that
# could not be released ends with its lease.
set -eu
. "$(dirname "$0")/common.sh"

[ -e "$prepared" ] || [ -n "$(asked_vgpus)" ] || exit 0
rm -f "$prepared" "$prepared.part"
for pause in 5 10 20 0; do
  status=0
  said=$(millpond release "$claim" --reason "Slurm job $SLURM_JOB_ID has ended" 2>&1) || status=$?
  # 121: the job had no claim, or another node of the job has released it.
  case $status in 0 | 121) exit 0 ;; esac
  sleep "$pause"
done
printf '%s\n' "$said" >&2
