#include "recording.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstdio>
#include <string>

extern "C" {
std::uint64_t workbench_driver_device_address(std::uint64_t host);
void workbench_driver_log(std::uint32_t kind, const std::uint64_t* numbers, std::uint32_t count,
                          const void* bytes, std::uint64_t size);
}

namespace workbench::torch_device {
namespace {

using at::Tensor;
using c10::IValue;

constexpr std::uint32_t kOperation = 'O', kBeyond = 'X';

// A value that a log cannot have.
struct Beyond {
  std::string what;
};

// Values as JSON, with the bytes of the host's tensors beside it.
class Writer {
 public:
  Writer(std::string& json, std::string& bytes) : json_(json), bytes_(bytes) {}
  void value(const IValue& given);
  void values(at::ArrayRef<IValue> given) {
    list(given, [&](const IValue& one) { value(one); });
  }
  void text(const std::string& given);
  void raw(const char* json) { json_ += json; }
  // Tensors alone, without other values.
  void tensors(at::ArrayRef<IValue> given);

 private:
  void number(double given);
  void tensor(const Tensor& given);
  void sizes(const char* name, at::IntArrayRef given);
  template <class Values, class Write>
  void list(const Values& values, Write&& write);

  std::string &json_, &bytes_;
};

void Writer::text(const std::string& given) {
  json_ += '"';
  for (const char c : given) {
    char escaped[8];
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      json_ += escaped;
    } else {
      json_ += c;
    }
  }
  json_ += '"';
}

// As Python's json reads it; always a float.
void Writer::number(double given) {
  if (std::isnan(given)) {
    json_ += "NaN";
  } else if (std::isinf(given)) {
    json_ += given > 0 ? "Infinity" : "-Infinity";
  } else {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", given);
    json_ += digits;
    if (std::string(digits).find_first_of(".e") == std::string::npos) json_ += ".0";
  }
}

template <class Values, class Write>
void Writer::list(const Values& values, Write&& write) {
  json_ += '[';
  bool first = true;
  for (const auto& one : values) {
    if (!first) json_ += ',';
    first = false;
    write(one);
  }
  json_ += ']';
}

void Writer::sizes(const char* name, at::IntArrayRef given) {
  json_ += std::string(",\"") + name + "\":";
  list(given, [&](std::int64_t one) { json_ += std::to_string(one); });
}

void Writer::tensor(const Tensor& given) {
  if (!given.defined()) return raw("null");
  if (given.layout() != c10::kStrided) throw Beyond{"a tensor that is not strided"};
  if (given.is_quantized()) throw Beyond{"a quantized tensor"};
  if (given.unsafeGetTensorImpl()->is_wrapped_number()) return value(IValue(given.item()));
  std::uint64_t address = 0;
  if (given.numel() > 0) {
    const auto at = reinterpret_cast<std::uint64_t>(given.const_data_ptr());
    address = given.is_cuda() ? at : workbench_driver_device_address(at);
  }
  const bool on_device = given.is_cuda() || address || given.numel() == 0;
  json_ += "{\"type\":\"" + std::string(c10::getDtypeNames(given.scalar_type()).first) + '"';
  if (on_device) {
    json_ += ",\"address\":" + std::to_string(address);
    sizes("sizes", given.sizes());
    sizes("strides", given.strides());
    if (given.is_conj()) json_ += ",\"conj\":true";
    if (given.is_neg()) json_ += ",\"neg\":true";
  } else {
    const Tensor plain = given.resolve_conj().resolve_neg().contiguous();
    json_ += ",\"host\":" + std::to_string(bytes_.size());
    sizes("sizes", plain.sizes());
    bytes_.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  json_ += '}';
}

void Writer::value(const IValue& given) {
  if (given.isNone() || given.isGenerator()) return raw("null");
  if (given.isBool()) return raw(given.toBool() ? "true" : "false");
  if (given.isInt()) return raw(std::to_string(given.toInt()).c_str());
  if (given.isDouble()) return number(given.toDouble());
  if (given.isString()) return text(given.toStringRef());
  if (given.isTensor()) return tensor(given.toTensor());
  if (given.isDevice()) return raw("{\"device\":true}");
  if (given.isComplexDouble()) {
    const auto both = given.toComplexDouble();
    raw("{\"complex\":[");
    number(both.real());
    raw(",");
    number(both.imag());
    return raw("]}");
  }
  if (!given.isList()) throw Beyond{"a value of type " + given.tagKind()};
  values(given.toListRef());
}

void Writer::tensors(at::ArrayRef<IValue> given) {
  std::vector<Tensor> all;
  for (const IValue& one : given) {
    if (one.isTensor() && one.toTensor().defined()) all.push_back(one.toTensor());
    if (one.isTensorList())
      for (const Tensor& each : one.toTensorVector()) all.push_back(each);
  }
  list(all, [&](const Tensor& one) { tensor(one); });
}

}  // namespace

LoggedCall::LoggedCall(const c10::OperatorHandle& handle, const torch::jit::Stack& stack)
    : name_(handle.operator_name().name) {
  Writer writer(json_, bytes_);
  writer.raw("{\"name\":");
  writer.text(name_);
  writer.raw(",\"overload\":");
  writer.text(handle.operator_name().overload_name);
  writer.raw(",\"arguments\":");
  try {
    writer.values(torch::jit::last(stack, handle.schema().arguments().size()));
  } catch (const Beyond& beyond) {
    beyond_ = beyond.what;
  }
}

void LoggedCall::finish(at::ArrayRef<IValue> results) {
  if (beyond_.empty()) {
    Writer writer(json_, bytes_);
    const std::uint64_t host_bytes = bytes_.size();
    writer.raw(",\"results\":");
    try {
      writer.tensors(results);
    } catch (const Beyond& beyond) {
      beyond_ = beyond.what;
    }
    writer.raw("}");
    bytes_.resize(host_bytes);  // without results on the host
  }
  if (!beyond_.empty()) {
    const std::string what = name_ + " with " + beyond_;
    return workbench_driver_log(kBeyond, nullptr, 0, what.data(), what.size());
  }
  const std::uint64_t size = json_.size();
  const std::string both = json_ + bytes_;
  workbench_driver_log(kOperation, &size, 1, both.data(), both.size());
}

}  // namespace workbench::torch_device
