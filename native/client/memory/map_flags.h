// SPDX-License-Identifier: Apache-2.0
// What the C library of an older build host does not name.
#pragma once

#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
