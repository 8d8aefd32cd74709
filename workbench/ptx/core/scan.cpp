#include "scan.hpp"

#include <algorithm>

namespace workbench::ptx {
namespace {

inline bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
}
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool is_word(char c) { return is_letter(c) || is_digit(c); }
inline bool in_label(char c) { return is_word(c) || c == '$' || c == '%'; }
inline bool in_opcode(char c) { return is_word(c) || c == '.'; }

class Scanner {
 public:
  Scanner(std::string_view text, std::size_t begin, std::size_t end)
      : text_(text.substr(0, end)), at_(begin) {}

  // Returns false at the end of the text, and after text that is no item.
  bool next(ScannedItem& item) {
    skip_gap();
    if (over_ || at_ >= text_.size()) return false;
    item.start = at_, item.is_statement = item.negated = false;
    item.guard = item.label = {};
    item.shape.clear(), item.names.clear();
    over_ = !take(item);
    return true;
  }

 private:
  static constexpr std::size_t kNone = std::string_view::npos;
  static constexpr std::string_view kLoc = ".loc";

  char peek(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  template <class F>
  std::size_t past(std::size_t at, F belongs) const {
    while (at < text_.size() && belongs(text_[at])) ++at;
    return at;
  }

  // Skips white space and .loc and .loc_intermediate directives with the rest of their lines. A
  // .loc_intermediate names a line in a tile language's own code.
  void skip_gap() {
    for (;;) {
      at_ = past(at_, is_space);
      if (text_.compare(at_, kLoc.size(), kLoc) != 0) return;
      const std::size_t end = past(at_ + kLoc.size(), is_word);
      const std::string_view rest = text_.substr(at_ + kLoc.size(), end - at_ - kLoc.size());
      if ((!rest.empty() && rest != "_intermediate") || !is_space(peek(end))) return;
      at_ = past(end, [](char c) { return c != '\n'; });
    }
  }

  // Returns false if the text is no item.
  bool take(ScannedItem& item) {
    const char c = text_[at_];
    if (c == '{' || c == '}') {
      ++at_;
      return true;
    }
    if (c == '.') {
      const std::size_t semicolon = is_word(peek(at_ + 1)) ? text_.find(';', at_) : kNone;
      if (semicolon != kNone) at_ = semicolon + 1;
      return semicolon != kNone;
    }
    return take_statement(item) || take_label(item);
  }

  bool take_label(ScannedItem& item) {
    const std::size_t end = past(at_, in_label), colon = past(end, is_space);
    if (end == at_ || peek(colon) != ':' || peek(colon + 1) == ':') return false;
    item.label = text_.substr(at_, end - at_);
    at_ = colon + 1;
    return true;
  }

  bool take_statement(ScannedItem& item) {
    std::size_t opcode = at_;
    if (text_[at_] == '@') {
      const bool negated = peek(at_ + 1) == '!';
      const std::size_t name = past(at_ + 1 + negated, is_space), end = past(name, in_label);
      opcode = past(end, is_space);
      if (end == name || opcode == end) return false;
      item.guard = text_.substr(name, end - name), item.negated = negated;
    }
    if (peek(opcode) < 'a' || peek(opcode) > 'z') return false;
    std::size_t end = past(opcode, in_opcode);
    while (peek(end) == ':' && peek(end + 1) == ':') end = past(end + 2, in_opcode);
    const std::size_t operands = past(end, is_space), semicolon = text_.find(';', operands);
    if (peek(operands) == ':' || semicolon == kNone) return false;
    at_ = semicolon + 1;
    std::size_t last = semicolon;
    while (last > operands && is_space(text_[last - 1])) --last;
    item.is_statement = true;
    read_operands(item, text_.substr(opcode, end - opcode),
                  text_.substr(operands, last - operands));
    return true;
  }

  static void read_operands(ScannedItem& item, std::string_view opcode, std::string_view operands) {
    if ((opcode == "bra" || opcode == "bra.uni") && !operands.empty()) {
      std::size_t end = 0;
      while (end < operands.size() && in_label(operands[end])) ++end;
      if (end == operands.size()) {
        item.label = operands;
        return;
      }
    }
    item.shape.reserve(opcode.size() + 1 + operands.size());
    item.shape.append(opcode).push_back(' ');
    for (std::size_t at = 0; at < operands.size();) {
      const char c = operands[at];
      const bool begins =
          (is_letter(c) || c == '%' || c == '$') && (at == 0 || !in_opcode(operands[at - 1]));
      if (!begins) {
        item.shape.push_back(c), ++at;
        continue;
      }
      std::size_t end = at + 1;
      while (end < operands.size() && (in_opcode(operands[end]) || operands[end] == '$')) ++end;
      item.names.push_back(operands.substr(at, end - at));
      std::size_t stem = end;
      while (stem > at + 1 && is_digit(operands[stem - 1])) --stem;
      item.shape.append(operands.substr(at, stem - at));
      item.shape.push_back('#');
      at = end;
    }
  }

  std::string_view text_;
  std::size_t at_;
  bool over_ = false;
};

}  // namespace

void scan_body(std::string_view text, std::size_t begin, std::size_t end,
               const std::function<void(const ScannedItem&)>& visit) {
  Scanner scanner(text, begin, std::min(end, text.size()));
  for (ScannedItem item; scanner.next(item);) visit(item);
}

}  // namespace workbench::ptx
