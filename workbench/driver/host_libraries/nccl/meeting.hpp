// The place where the ranks of a communicator meet: a folder with a board that all of them map, and
// with the bytes that each contributes. A rank is a thread or process of this machine.
#pragma once
#include <functional>

#include "waits.hpp"

namespace workbench::nccl {

// The folder of all communicators of a user; made if it is not there.
std::string new_folder();

// The bytes of a file, mapped.
class Bytes {
 public:
  explicit Bytes(const std::string& path);
  ~Bytes();
  Bytes(Bytes&& other) noexcept;
  Bytes(const Bytes&) = delete;
  // What the rank calls, and the line where; then the bytes.
  const char* text() const { return static_cast<const char*>(at_); }
  const char* place() const { return text() + kTextBytes; }
  const char* content() const { return text() + 2 * kTextBytes; }
  std::size_t size() const { return bytes_ - 2 * kTextBytes; }

 private:
  void* at_;
  std::size_t bytes_;
};

struct Board;
// Returns ranks that have not done their part.
using Missing = std::function<std::vector<int>()>;

class Meeting {
 public:
  // Throws Failed if the others have told another number of ranks.
  Meeting(std::string folder, int ranks, int rank, int device);
  ~Meeting();
  Meeting(const Meeting&) = delete;

  const std::string& folder() const { return folder_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Ranks that have not come yet.
  std::vector<int> absent() const;
  // Throws Failed if two of them have the same device.
  void check_devices() const;

  // Contributes to the next collective. `text` says what the rank calls: the same on all ranks.
  // Returns the collective's number.
  u64 contribute(const std::string& text, const std::string& place, const void* bytes, u64 size);
  // What each rank has contributed. Throws Failed if they call different things.
  std::vector<Bytes> contributions(u64 number) const;
  void finish(u64 number);
  // Ranks that have not contributed yet.
  std::vector<int> missing(u64 number) const;

  // Messages from a rank to another one are matched in their order. Both return its number.
  u64 send(int to, const std::string& text, const std::string& place, const void* bytes, u64 size);
  u64 expect(int from);
  bool is_expected(int to, u64 number) const;
  bool is_sent(int from, u64 number) const;
  Bytes take(int from, u64 number) const;

  // Ends the communicator for all ranks. The first reason stays.
  void fail(const std::string& why);
  std::string failure() const;

  // Returns when `missing` is empty. Throws Failed if a missing rank has ended, if ranks wait in a
  // circle, or after the time limit. `doing` says what this rank does.
  void wait(const std::string& doing, const Missing& missing);
  // Whether `missing` is empty. Throws Failed if a missing rank will not come any more.
  bool is_there(const std::string& doing, const Missing& missing) const;

 private:
  std::string file(char kind, int from, int to, u64 number) const;
  void write(const std::string& path, const std::string& text, const std::string& place,
             const void* bytes, u64 size) const;
  std::string named(const std::vector<int>& ranks) const;
  void here() const;  // this thread makes the rank's calls
  void ring() const;

  std::string folder_;
  int ranks_, rank_;
  Board* board_;
  u64 removed_ = 0;  // own contributions that all have read
};

}  // namespace workbench::nccl
