// SPDX-License-Identifier: Apache-2.0
// Constants that the C library of an older build host lacks.
#pragma once

#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
