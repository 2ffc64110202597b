// SPDX-License-Identifier: Apache-2.0
#include "cuda/cluster_shape.h"

#include "testing/check.h"

namespace millpond {
namespace {

TEST("clusters of up to eight blocks that divide the grid fit everywhere; of others only the driver knows") {
  CHECK(!ClusterShape{}.isAny());
  CHECK((ClusterShape{1, 1, 1}.certainlyFits(16, 1, 1)));
  CHECK((ClusterShape{8, 1, 1}.certainlyFits(16, 1, 1)));
  CHECK((ClusterShape{2, 2, 2}.certainlyFits(4, 2, 6)));
  CHECK((!ClusterShape{3, 1, 1}.certainlyFits(16, 1, 1)));
  CHECK((!ClusterShape{2, 2, 1}.certainlyFits(16, 1, 1)));
  CHECK((!ClusterShape{16, 1, 1}.certainlyFits(16, 1, 1)));
  CHECK((!ClusterShape{4, 4, 1}.certainlyFits(16, 4, 1)));
  CHECK((!ClusterShape{2, 0, 0}.certainlyFits(16, 1, 1)));
  CHECK((!ClusterShape{1u << 31, 1u << 31, 8}.certainlyFits(1u << 31, 1u << 31, 8)));
}

}  // namespace
}  // namespace millpond
