#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the control plane and the kubelet of Kubernetes 1.20.2 from Debian 12's own source package, with etcd from its
# binary one, for the tests that need a real API server: kubernetes/tools/build-kubernetes.sh [DIRECTORY]
# Default: ~/.cache/millpond/kubernetes, where the tests look. About 10 CPU minutes and 6 GB while it builds; done once.
# It needs dpkg-dev, and changes nothing of the machine's own packages.
set -eu

target=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/millpond/kubernetes}
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet"
complete=1
for program in $programs etcd; do
  [ -x "$target/$program" ] || complete=0
done
if [ $complete = 1 ]; then
  echo "$target has all of it"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The machine's own sources of Debian 12, with their source packages, in a state of packages apart from the machine's.
mkdir -p apt/parts apt/lists/partial apt/cache/archives/partial
for file in /etc/apt/sources.list.d/debian*.sources; do
  [ -e "$file" ] && sed 's/^Types: deb$/Types: deb deb-src/' "$file" > "apt/parts/$(basename "$file")"
done
if [ -s /etc/apt/sources.list ]; then
  sed -n 's/^deb \(.*debian.*\)/deb \1\ndeb-src \1/p' /etc/apt/sources.list > apt/parts/debian.list
fi
: > apt/status
cat > apt/conf <<END
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/apt/parts";
Dir::State "$work/apt";
Dir::State::lists "$work/apt/lists";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt/conf"
apt-get update -q
apt-get source -q --download-only kubernetes
apt-get download -q golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server \
  rsync libpopt0 libxxhash0 liblz4-1 libzstd1
for package in *.deb; do
  dpkg -x "$package" root
done
dpkg-source --no-check -x kubernetes_1.20*.dsc src

# The version that is in the source crashes when it walks maps of Go 1.18 and later.
reflect2=src/vendor/github.com/modern-go/reflect2
rm -f $reflect2/*.go $reflect2/*.s
cp root/usr/share/gocode/src/github.com/modern-go/reflect2/*.go root/usr/share/gocode/src/github.com/modern-go/reflect2/*.s $reflect2/

cat > version <<END
KUBE_GIT_COMMIT=unknown
KUBE_GIT_TREE_STATE=archive
KUBE_GIT_VERSION=v1.20.2
KUBE_GIT_MAJOR=1
KUBE_GIT_MINOR=20
END
export KUBE_GIT_VERSION_FILE="$work/version" GOROOT="$work/root/usr/lib/go-1.19" GOCACHE="$work/gocache"
export CGO_ENABLED=0 GOFLAGS=-mod=vendor GOTOOLCHAIN=local
export PATH="$GOROOT/bin:$work/root/usr/bin:$PATH" LD_LIBRARY_PATH="$work/root/usr/lib/x86_64-linux-gnu"
cd src
make generated_files
make all WHAT="cmd/kube-apiserver cmd/kube-scheduler cmd/kube-controller-manager cmd/kubelet"

mkdir -p "$target"
for program in $programs; do
  install -m 755 "_output/bin/$program" "$target/$program"
done
install -m 755 "$work/root/usr/bin/etcd" "$target/etcd"
echo "$target has all of it"
