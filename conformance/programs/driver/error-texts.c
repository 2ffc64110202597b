// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("error-texts", "the name and text of every error code") {
  int known = 0;
  for (int code = 0; code < 1100; ++code) {
    const char *name = NULL, *text = NULL;
    const CUresult named = cuGetErrorName((CUresult)code, &name);
    const CUresult described = cuGetErrorString((CUresult)code, &text);
    if (named != CUDA_SUCCESS) {
      if (described == CUDA_SUCCESS) say("%d has a text and no name", code);
      continue;
    }
    ++known;
    say("%d %s: %s", code, name, text ? text : "none");
  }
  say("%d codes", known);
  const char* name = (const char*)1;
  SEE(cuGetErrorName((CUresult)5000, &name));
  say("unknown: %s", name ? "some" : "null");
}
