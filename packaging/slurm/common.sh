# SPDX-License-Identifier: Apache-2.0
# Read by prolog.sh, epilog.sh and task-prolog.sh: which part of the pool a job of Slurm has requested.

# The address of the pool, and a token of the role user for the jobs of this cluster: MILLPOND_CONTROLLER, MILLPOND_TOKEN,
# MILLPOND_CA. Only root can read it, so the task prolog, which Slurm runs as the user of the job, goes without it.
configuration=${SLURM_MILLPOND_ENV:-/etc/millpond/slurm.env}
if [ -r "$configuration" ]; then
  set -a
  . "$configuration"
  set +a
fi

# A job array, and a job with several parts, have an id for each.
claim="slurm-${SLURM_JOB_ID:?this script is for Slurm}"

# What the prolog, as root, prepares on this node for the task prolog: lines in its format. Only the user of the job can read it.
folder=${SLURM_MILLPOND_RUN:-/run/millpond-slurm}
prepared=$folder/$SLURM_JOB_ID

# Number of vGPUs of the job: --gres=vgpu:2. Empty if it requested none.
asked_vgpus() {
  scontrol show job --oneliner "$SLURM_JOB_ID" | grep -oE 'gres[:/]vgpu([:=][0-9]+)?' | head -n 1 |
    sed -E 's,^gres[:/]vgpu[:=]?,,; s,^$,1,'
}
