// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("binaries", "images that are machine code for one kind of device") {
  primary();
  if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) != 9) skip("needs compute capability 9");
  use_image("cubin", kernels_cubin);
  use_image("fatbin of a binary", binary_only_fatbin);
}
