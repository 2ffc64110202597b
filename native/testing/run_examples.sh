#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs CUDA programs on a worker of this build, over both transports:
# run_examples.sh WORKER CLIENT DRIVER PROGRAM PRELOAD [NAME…]
# PROGRAM holds all examples, or those named, which run on the driver itself, too, unless a + stands before their name:
# they need what only Millpond has. PRELOAD is the sanitizer's runtime, empty without one. The
# driver is a libcuda.so.1.
set -eu
worker=$1 client=$2 driver=$3 program=$4 preload=$5
dir=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
export MILLPOND_SOFTGPU_STATE="$dir" MILLPOND_SOFTGPU_MEMORY=1Gi
uuid=$("$worker" --driver "$driver" --probe | sed 's/.*"uuid":"\([^"]*\)".*/\1/')

fail() {
  echo "$1" >&2
  cat "$dir"/*.out "$dir"/*.log >&2
  exit 1
}

run() { # transport example arguments…
  transport=$1
  shift
  rm -f "$dir"/control "$dir"/*.log
  assign="{\"session\":\"s\",\"ticket\":\"t\",\"expires\":4000000000,\"devices\":[{\"uuid\":\"$uuid\",\"memoryBytes\":134217728,\"computePercent\":100}]}"
  # A sanitizer makes processes use the same addresses, and where a program registers memory, its worker must have
  # nothing mapped. With a larger stack limit, workers are mapped lower.
  MILLPOND_LOG=info ${preload:+prlimit --stack=4294967296:} "$worker" --driver "$driver" --id w --control "$dir/control" --data "$dir/data" --tcp 127.0.0.1 \
    --assign "$assign" 2>"$dir/worker.log" &
  pid=$!
  tries=0
  until [ -S "$dir/control" ]; do
    kill -0 "$pid" 2>/dev/null && [ $tries -lt 600 ] || fail "the worker did not start"
    tries=$((tries + 1))
    sleep 0.05
  done
  port=$(sed -n 's/.*TCP port \([0-9]*\)$/\1/p' "$dir/worker.log")
  address="unix:$dir/data"
  [ "$transport" = shm ] || address="tcp:127.0.0.1:$port"
  # The program itself is not instrumented, so the sanitizer's runtime must be loaded before our library.
  env LD_LIBRARY_PATH="$client" LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 MILLPOND_WORKER="$address" \
    MILLPOND_TICKET=t "$program" "$@" --out "$dir/picture.png" >"$dir/$1.$transport.out" 2>"$dir/$1.$transport.log" ||
    fail "$1 over $transport failed with status $?"
  grep -q "^$1: OK" "$dir/$1.$transport.out" || fail "$1 over $transport did not say OK"
  wait "$pid" || fail "the worker of $1 over $transport ended with status $?"
  pid=
  if grep -l 'ERROR: AddressSanitizer\|runtime error:\|WARNING: ThreadSanitizer' "$dir"/*.log >&2; then
    fail "a sanitizer found something in $1 over $transport"
  fi
  echo "$1 over $transport: OK"
}

shift 5
for name; do # on the driver itself
  [ "${name#+}" = "$name" ] || continue
  env LD_LIBRARY_PATH="$(dirname "$driver")" LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 "$program" "$name" \
    >"$dir/$name.native.out" 2>"$dir/$name.native.log" || fail "$name on the driver failed with status $?"
  echo "$name on the driver: OK"
done
for transport in shm tcp; do
  for name; do run $transport "${name#+}"; done
  [ $# -eq 0 ] || continue
  run $transport vectoradd 100000
  run $transport matmul 64
  run $transport reduction 100000
  run $transport histogram 100000
  run $transport mandelbrot 96 64
  run $transport streams 100000
  run $transport memhog 16
  run $transport memhold 16 </dev/null
done
