#include "traits.hpp"

#include <set>

namespace workbench::torch_device {
namespace {

// Operators that sum many numbers, or end in a transcendental function: CUDA computes them in
// float32 and rounds once, but some of the CPU's kernels round each step.
const std::set<std::string> kWide = {
    "sum",
    "mean",
    "prod",
    "nansum",
    "cumsum",
    "cumprod",
    "cumsum_",
    "cumprod_",
    "norm",
    "std",
    "var",
    "std_mean",
    "var_mean",
    "linalg_vector_norm",
    "logsumexp",
    "logcumsumexp",
    "_logcumsumexp",
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm",
    "native_layer_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "nll_loss_forward",
    "nll_loss_backward",
    "nll_loss2d_forward",
    "nll_loss2d_backward",
    "mse_loss",
    "mse_loss_backward",
    "smooth_l1_loss",
    "smooth_l1_loss_backward",
    "huber_loss",
    "huber_loss_backward",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "_cdist_forward",
    "renorm",
    "_fft_r2c",
    "_fft_c2c",
    "_fft_c2r",
};

const std::set<std::string> kAnyDevice = {
    "copy_",
    "index",
    "index_put_",
    "_index_put_impl_",
    "index_put",
    "_pack_padded_sequence",
    "_unsafe_index",
    "_unsafe_index_put",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
};

const std::set<std::string> kDraws = {
    "native_dropout", "_fused_dropout", "rrelu_with_noise", "_sample_dirichlet", "_standard_gamma",
};

const std::set<std::string> kWaits = {
    "nonzero",
    "equal",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "bincount",
    "_local_scalar_dense",
};

// Operators that copy values of tensors unchanged and compute nothing. Copies of elements that were
// never written count as unwritten, too.
const std::set<std::string> kMoves = {
    "copy_",
    "cat",
    "where",
    "index",
    "_unsafe_index",
    "_unsafe_masked_index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "_unsafe_index_put",
    "index_select",
    "index_copy",
    "index_copy_",
    "index_fill",
    "index_fill_",
    "gather",
    "scatter",
    "scatter_",
    "take",
    "put_",
    "masked_select",
    "masked_fill",
    "masked_fill_",
    "masked_scatter",
    "masked_scatter_",
    "flip",
    "roll",
    "repeat",
    "tril",
    "tril_",
    "triu",
    "triu_",
    "constant_pad_nd",
};

const std::set<std::string> kValues = {
    "self", "src", "source", "values", "value", "other", "tensors", "input",
};

// In-place operators that overwrite a whole tensor without reading it.
const std::set<std::string> kFills = {
    "copy_",       "zero_",        "fill_",      "normal_",        "uniform_",
    "random_",     "exponential_", "cauchy_",    "bernoulli_",     "geometric_",
    "set_",        "resize_",      "resize_as_", "_foreach_zero_", "eye_",
    "log_normal_", "arange_",      "range_",     "_foreach_copy_",
};

// Operators that look at no value, or only hand values on to others.
const std::set<std::string> kUnread = {"_foreach_copy_", "record_stream", "_efficientzerotensor"};

}  // namespace

// Operators that may be put off, beside those that compute each element alone: no value of their
// arguments is an error, and they need no other memory of the host.
const std::set<std::string> kLate = {
    "copy_",        "fill_",
    "zero_",        "cat",
    "clone",        "mm",
    "addmm",        "bmm",
    "baddbmm",      "addmv",
    "dot",          "sum",
    "mean",         "amax",
    "amin",         "max",
    "min",          "normal_",
    "uniform_",     "_softmax",
    "_log_softmax", "native_layer_norm",
};

// Operators that refuse to divide a whole number by 0.
const std::set<std::string> kDivides = {
    "floor_divide", "floor_divide_", "remainder", "remainder_", "fmod", "fmod_",
};

Traits::Traits(const c10::FunctionSchema& schema)
    : name(schema.name()), arguments(schema.arguments().size()), results(schema.returns().size()) {
  const std::string plain = name.substr(name.find("::") + 2);
  std::optional<std::size_t> reduce;
  for (std::size_t i = 0; i < arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    const c10::TypePtr type = argument.type()->kind() == c10::TypeKind::OptionalType
                                  ? argument.type()->castRaw<c10::OptionalType>()->getElementType()
                                  : argument.type();
    if (type->kind() == c10::TypeKind::GeneratorType) generator = i;
    if (argument.name() == "beta") beta = i;
    if (plain == "convolution_backward" && argument.name() == "output_mask") gradients = i;
    if (argument.name() == "accumulate") accumulate = i;
    if (argument.name() == "reduce") reduce = i;
    refuses |= argument.is_out() || argument.name() == "rounding_mode";
    const bool filled = written[i] && (argument.is_out() || kFills.contains(plain));
    read.push_back(!filled && !kUnread.contains(plain));
    values.push_back(kValues.contains(argument.name()) || argument.is_out());
  }
  moves = kMoves.contains(plain) && !reduce;
  wide = kWide.contains(plain);
  any_device = kAnyDevice.contains(plain);
  waits = kWaits.contains(plain);
  draws = kDraws.contains(plain);
  late = kLate.contains(plain);
  refuses |= kDivides.contains(plain);
}

}  // namespace workbench::torch_device
