#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that a library can be loaded into any program: usage: check_library.sh libcuda.so.1|libnvidia-ml.so.1|libcupti.so.13|libmillpond-tls.so
set -eu
LC_ALL=C
export LC_ALL
library=$1
newest=2.28
failed=0
problem() {
  echo "$library: $*" >&2
  failed=1
}

soname=$(readelf -dW "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
case $soname in
  libcuda.so.1)
    ours='^cu[A-Z]' least=600 names='cuInit cuGetProcAddress_v2 cuGetExportTable cuLaunchKernel_ptsz'
    ;;
  libnvidia-ml.so.1)
    ours='^nvml[A-Z]' least=400 names='nvmlInit_v2 nvmlInitWithFlags nvmlDeviceGetCount_v2 nvmlInternalGetExportTable nvmlErrorString'
    ;;
  libcupti.so.1[23])
    ours='^cupti[A-Z]\|^InitializeInjectionNvtx\|^libcupti.so.1[23]$' least=190
    names='cuptiActivityRegisterCallbacks cuptiActivityEnable cuptiSubscribe cuptiPCSamplingStart InitializeInjectionNvtx2'
    ;;
  libmillpond-tls.so)
    ours='^millpond_tls_2$' least=1 names=millpond_tls_2
    ;;
  *)
    problem "its SONAME '$soname' is none of ours"
    exit 1
    ;;
esac

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libpthread.so.0 | libdl.so.2 | libm.so.6 | ld-linux-x86-64.so.2 | ld-linux-aarch64.so.1) ;;
    *) problem "needs $name" ;;
  esac
done
# If glibc is split into several libraries, these contain what newer versions have in libc.so.6.
for name in libpthread.so.0 libdl.so.2; do
  echo "$needed" | grep -qx "$name" || problem "does not name $name as needed"
done

versions=$(readelf --version-info -W "$library" | grep -o 'Name: [A-Z]*_[A-Za-z0-9_.]*' | sed 's/Name: //' | sort -u)
for version in $versions; do
  case $version in
    GLIBC_PRIVATE) problem "uses internals of glibc" ;;
    GLIBC_*)
      number=${version#GLIBC_}
      if [ "$(printf '%s\n%s\n' "$number" "$newest" | sort -V | tail -n 1)" != "$newest" ]; then
        problem "needs $version: $(objdump -T "$library" | sed -n "s/.*($version) *//p" | sort -u | tr '\n' ' ')"
      fi
      ;;
    *) problem "needs symbols of version $version" ;;
  esac
done
[ -n "$versions" ] || problem "has no symbol versions at all: is this a library?"

exported=$(nm -D --defined-only "$library" | sed 's/^[0-9a-f]* *[A-Za-z] //; s/@.*//')
count=$(echo "$exported" | wc -l)
foreign=$(echo "$exported" | grep -v "$ours" || true)
[ -z "$foreign" ] || problem "exports $foreign"
[ "$count" -ge "$least" ] || problem "exports $count symbols only"
for name in $names; do
  echo "$exported" | grep -qx "$name" || problem "does not export $name"
done

readelf -lW "$library" | grep -q 'GNU_STACK.* RW ' || problem "wants an executable stack"
readelf -lW "$library" | grep -q 'LOAD.* RWE ' && problem "has memory that is writable and executable"
readelf -dW "$library" | grep -q '(TEXTREL)' && problem "has text relocations"
readelf -dW "$library" | grep -q 'NODELETE' || problem "may be unloaded"

[ $failed -eq 0 ] || exit 1
echo "$library: $count symbols, $(echo "$versions" | wc -l) versions of glibc up to $(echo "$versions" | sed 's/GLIBC_//' | sort -V | tail -n 1), $(stat -c %s "$library") bytes"
