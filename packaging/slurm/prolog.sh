#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog of slurmd: makes the claim of a job that asks for --gres=vgpu:N, and a token for that claim alone. Its size is in the
# job's comment, in the words of docs/reference/claims.md: --comment="memory=8Gi compute=50%".
#
# It never fails: Slurm drains a node whose prolog fails, so one job that asks for too much, or an outage of the pool, would
# take nodes away from everybody. Tasks of a job without a claim end instead, and the reason is in the job's output.
set -eu
. "$(dirname "$0")/common.sh"

vgpus=$(asked_vgpus)
[ -n "$vgpus" ] || exit 0
umask 077
mkdir -p "$folder"
chmod 711 "$folder"

describe_claim() {
  printf 'kind: Claim\nname: %s\nlease: 7d\ngpus: %s\n' "$claim" "$vgpus"
  for word in ${SLURM_JOB_COMMENT:-}; do
    case $word in
      memory=*[!0-9A-Za-z.%]* | compute=*[!0-9.%]* | model=*[!0-9A-Za-z-]*) ;;
      memory=?* | compute=?* | model=?*) printf '%s: "%s"\n' "${word%%=*}" "${word#*=}" ;;
    esac
  done
}

# Lines of the task prolog's format, which has neither quotes nor values of several lines: the authority stays in a file.
prepare_variables() {
  authority=${MILLPOND_CA:-}
  variables=$(millpond env --claim "$claim") || return
  eval "$variables"
  MILLPOND_CA=$authority
  for name in MILLPOND_CONTROLLER MILLPOND_TOKEN MILLPOND_CA MILLPOND_CLAIM CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || printf 'export %s=%s\n' "$name" "$value"
  done
}

reason="Slurm job $SLURM_JOB_ID of ${SLURM_JOB_USER:-unknown}"
if said=$(describe_claim | millpond apply -f - --reason "$reason" 2>&1) &&
  said=$(prepare_variables 2>&1 >"$prepared.part"); then
  :
else
  printf '%s\n' "$said" >&2
  # What tells the task prolog to fail, too.
  printf '%s\n' "$said" | sed 's/^/print millpond: /' >"$prepared.part"
fi
chown "${SLURM_JOB_UID:-$(id -u)}" "$prepared.part"
mv "$prepared.part" "$prepared"
