#include "status.hpp"

namespace workbench::host {
namespace {

struct Text {
  int code;
  const char *name, *words;
};
constexpr Text kTexts[] = {
    {kSuccess, "CUBLAS_STATUS_SUCCESS", "success"},
    {kNotInitialized, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {kAllocFailed, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {kInvalidValue, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {8, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device architecture"},
    {kMappingError, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {kExecutionFailed, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {kInternalError, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {kNotSupported, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported"},
    {16, "CUBLAS_STATUS_LICENSE_ERROR", "the functionality requested requires some license"},
};

const Text* text_of(int status) {
  for (const Text& one : kTexts)
    if (one.code == status) return &one;
  return nullptr;
}

}  // namespace

const char* name_of_status(int status) {
  const Text* known = text_of(status);
  return known ? known->name : "unknown status";
}

const char* words_of_status(int status) {
  const Text* known = text_of(status);
  return known ? known->words : "unknown status";
}

int status_of(CUresult code) noexcept {
  switch (code) {
    case CUDA_ERROR_INVALID_VALUE: return kInvalidValue;
    case CUDA_ERROR_OUT_OF_MEMORY: return kAllocFailed;
    case CUDA_ERROR_NOT_INITIALIZED: return kNotInitialized;
    case CUDA_ERROR_NOT_SUPPORTED: return kNotSupported;
    default: return kExecutionFailed;
  }
}

char operation(int given, const char* argument) {
  if (given < 0 || given > 2)
    throw Failed{kInvalidValue, std::string(argument) + " is " + std::to_string(given) +
                                    ", allowed are CUBLAS_OP_N, CUBLAS_OP_T and CUBLAS_OP_C"};
  return "NTC"[given];
}

}  // namespace workbench::host
