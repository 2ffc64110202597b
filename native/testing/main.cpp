// SPDX-License-Identifier: Apache-2.0
// The program of a component's tests.
#include "testing/check.h"

int main(int argc, char** argv) { return millpond::testing::run(argc, argv); }
