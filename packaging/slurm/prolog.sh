#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog of slurmd: makes the claim of a job that asks for --gres=vgpu:N. Its size is in the job's comment, in the words of
# docs/reference/claims.md: --comment="memory=8Gi compute=50%". A claim that the pool cannot hold ends the job in the queue,
# with its reason in the log of slurmd.
set -eu
. "$(dirname "$0")/common.sh"

vgpus=$(asked_vgpus)
[ -n "$vgpus" ] || exit 0
{
  printf 'kind: Claim\nname: %s\nlease: 7d\ngpus: %s\n' "$claim" "$vgpus"
  for word in ${SLURM_JOB_COMMENT:-}; do
    case $word in
      memory=*[!0-9A-Za-z.%]* | compute=*[!0-9.%]* | model=*[!0-9A-Za-z-]*) ;;
      memory=?* | compute=?* | model=?*) printf '%s: "%s"\n' "${word%%=*}" "${word#*=}" ;;
    esac
  done
} | millpond apply -f - --reason "Slurm job $SLURM_JOB_ID of ${SLURM_JOB_USER:-unknown}" >&2
