#pragma once
// NVRTC declares clock_t and clock() by itself.
