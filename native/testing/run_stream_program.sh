#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one program of native/testing/streams, which loads libcuda.so.1 by its name: directly on a driver, or on a worker
# of this build: run_program.sh direct|shm|tcp|tls|gated WORKER CLIENT_DIRECTORY DRIVER PRELOAD PROGRAM ARGUMENTS…
# gated: over shared memory, with half of the device. PRELOAD is the sanitizer's runtime, empty without one.
set -eu
how=$1 worker=$2 client=$3 driver=$4 preload=$5
shift 5
dir=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
export MILLPOND_SOFTGPU_STATE="$dir" MILLPOND_SOFTGPU_MEMORY=1Gi

fail() {
  echo "$1" >&2
  cat "$dir"/*.log >&2
  exit 1
}

if [ "$how" = direct ]; then
  env LD_LIBRARY_PATH="$(dirname "$driver")" ASAN_OPTIONS=detect_leaks=0 "$@"
  exit 0
fi

uuid=$("$worker" --driver "$driver" --probe | sed 's/.*"uuid":"\([^"]*\)".*/\1/')
percent=100 gates= secret=
if [ "$how" = tls ]; then
  secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  export MILLPOND_LINK_SECRET="$secret"
fi
if [ "$how" = gated ]; then
  percent=50 gates="--gates $dir"
fi
assign="{\"session\":\"s\",\"ticket\":\"t\",\"expires\":4000000000,\"linkSecret\":\"$secret\",\"devices\":[{\"uuid\":\"$uuid\",\"memoryBytes\":268435456,\"computePercent\":$percent}]}"
MILLPOND_LOG=info "$worker" --driver "$driver" --id w --control "$dir/control" --data "$dir/data" --tcp 127.0.0.1 \
  $gates --assign "$assign" 2>"$dir/worker.log" &
pid=$!
tries=0
until [ -S "$dir/control" ]; do
  kill -0 "$pid" 2>/dev/null && [ $tries -lt 600 ] || fail "the worker did not start"
  tries=$((tries + 1))
  sleep 0.05
done
port=$(sed -n 's/.*TCP port \([0-9]*\)$/\1/p' "$dir/worker.log")
address="unix:$dir/data"
[ "$how" = shm ] || [ "$how" = gated ] || address="tcp:127.0.0.1:$port"
env LD_LIBRARY_PATH="$client" LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 MILLPOND_WORKER="$address" \
  MILLPOND_TICKET=t "$@" 2>"$dir/program.log" || fail "the program failed with status $?"
cat "$dir/program.log"
wait "$pid" || fail "the worker ended with status $?"
pid=
if grep -l 'ERROR: AddressSanitizer\|runtime error:\|WARNING: ThreadSanitizer' "$dir"/*.log >&2; then
  fail "a sanitizer found something"
fi
