#include "result_memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

namespace workbench::torch_device {
namespace {

constexpr std::size_t kLeast = std::size_t{1} << 20;  // the C library reuses smaller blocks itself
constexpr std::size_t kMostKept = std::size_t{256} << 20;

thread_local bool active = false;

class ResultMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (!active || bytes < kLeast) return plain_->allocate(bytes);
    std::lock_guard lock(mutex_);
    const auto fits = [&](void* block) {
      return sizes_[block] >= bytes && sizes_[block] <= bytes + bytes / 4;
    };
    const auto found = std::find_if(kept_.begin(), kept_.end(), fits);
    void* block = nullptr;
    if (found != kept_.end()) {
      block = *found;
      kept_bytes_ -= sizes_[block];
      kept_.erase(found);
    } else {
      block = plain_->allocate(bytes).release_context();
      sizes_[block] = bytes;
    }
    return {block, block, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return plain_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static ResultMemory& instance() {
    static auto* const one = new ResultMemory;  // never destroyed: tensors may outlive anything
    return *one;
  }

 private:
  static void give_back(void* block) {
    ResultMemory& self = instance();
    std::lock_guard lock(self.mutex_);
    self.kept_.push_front(block);
    self.kept_bytes_ += self.sizes_.at(block);
    while (self.kept_bytes_ > kMostKept) {
      void* const oldest = self.kept_.back();
      self.kept_.pop_back();
      self.kept_bytes_ -= self.sizes_.at(oldest);
      self.sizes_.erase(oldest);
      self.plain_->raw_deleter()(oldest);
    }
  }

  c10::Allocator* const plain_ = c10::GetCPUAllocator();
  std::mutex mutex_;
  std::list<void*> kept_;                         // the latest first
  std::unordered_map<void*, std::size_t> sizes_;  // also of blocks in use
  std::size_t kept_bytes_ = 0;
};

}  // namespace

void keep_result_memory() { c10::SetCPUAllocator(&ResultMemory::instance()); }

ResultsReused::ResultsReused() : before_(active) { active = true; }
ResultsReused::~ResultsReused() { active = before_; }

}  // namespace workbench::torch_device
