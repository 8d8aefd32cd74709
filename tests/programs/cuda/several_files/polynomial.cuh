// Shared by both files: device code and a variable that the other file defines, found by the device linker (-rdc).
#pragma once

constexpr int kTerms = 4;

extern __constant__ float terms[kTerms];
extern __device__ int evaluations;

__device__ float polynomial(float x);
void set_terms(const float* values);
int evaluated();
