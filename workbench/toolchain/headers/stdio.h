#pragma once
// NVRTC declares the device functions of this header by itself.
