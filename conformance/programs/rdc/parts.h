// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of separately compiled device code.
#pragma once

extern __device__ int shared_counter;
extern __constant__ float shared_factors[4];
__device__ int doubled(int value);
__device__ int weighted(int value, int weight);
__device__ float scaled(float value, int which);
/// Launches a kernel of the other file; returns its result.
int launchOther();
