# SPDX-License-Identifier: Apache-2.0
# Read by prolog.sh, epilog.sh and task-prolog.sh: which part of the pool a job of Slurm has asked for.

# The address of the pool, and a token of the role user for the jobs of this cluster: MILLPOND_CONTROLLER, MILLPOND_TOKEN,
# MILLPOND_CA.
configuration=${SLURM_MILLPOND_ENV:-/etc/millpond/slurm.env}
if [ -r "$configuration" ]; then
  set -a
  . "$configuration"
  set +a
fi

# A job array, and a job with several parts, have an id for each.
claim="slurm-${SLURM_JOB_ID:?this script is for Slurm}"

# Number of vGPUs of the job: --gres=vgpu:2. Empty if it requested none.
asked_vgpus() {
  scontrol show job --oneliner "$SLURM_JOB_ID" | grep -oE 'gres[:/]vgpu([:=][0-9]+)?' | head -n 1 |
    sed -E 's,^gres[:/]vgpu[:=]?,,; s,^$,1,'
}
