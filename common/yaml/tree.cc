#include "common/yaml/tree.h"

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/printable.h"

namespace ina::yaml {
namespace {

constexpr bool is_continuation(char c) {
  return (static_cast<uint8_t>(c) & 0xc0) == 0x80;
}

/// Bytes of the valid UTF-8 sequence at the front of `text`; 0 if there is none.
size_t utf8_sequence_bytes(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return lead == 0 ? 0 : 1;
  const size_t bytes = lead >= 0xc2 && lead < 0xe0   ? 2
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if (!is_continuation(text[i])) return 0;
  const auto second = static_cast<uint8_t>(text[1]);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second >= 0xa0;
  const bool too_large = lead == 0xf4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : bytes;
}

/// Position of the first byte that is not UTF-8 (or is NUL); npos if all is well.
size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_sequence_bytes(text.substr(at));
    if (bytes == 0) return at;
    at += bytes;
  }
  return std::string_view::npos;
}

/// Builds the tree from the parser's events. `text` must be valid UTF-8.
class Builder : public YAML::EventHandler {
 public:
  Builder(std::string_view text, std::string_view file_name, Tree& tree)
      : text_(text), file_name_(file_name), tree_(tree) {
    line_starts_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') line_starts_.push_back(i + 1);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) report(mark, "a second document; only one is read");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    add(Node{.kind = Node::Kind::kNull, .place = place(mark)});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    report(mark, "aliases are not supported; write the value out");
    add(Node{.kind = Node::Kind::kRefused, .place = place(mark)});
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    check_tag(mark, tag);
    add(Node{.kind = Node::Kind::kScalar, .place = place(mark), .text = value});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open_.push_back(Node{.kind = Node::Kind::kList, .place = place(mark)});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open_.push_back(Node{.kind = Node::Kind::kMap, .place = place(mark)});
  }
  void OnMapEnd() override { close(); }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    report(mark, "anchors are not supported");
  }

  int documents() const { return documents_; }

  void report(const YAML::Mark& mark, std::string text) {
    const Place at = place(mark);
    tree_.errors.push_back({file_name_, at.line, at.column, std::move(text)});
  }

  /// yaml-cpp has other words for this most frequent of mistakes.
  bool tab_indents(const YAML::Mark& mark) const {
    if (mark.is_null() || static_cast<size_t>(mark.line) >= line_starts_.size()) return false;
    const auto line = text_.substr(line_starts_[static_cast<size_t>(mark.line)]);
    const size_t indented = line.find_first_not_of(' ');
    return indented != std::string_view::npos && line[indented] == '\t';
  }

  /// yaml-cpp counts bytes from 0.
  Place place(const YAML::Mark& mark) {
    if (mark.is_null()) return {};
    const size_t line = std::min(static_cast<size_t>(mark.line), line_starts_.size() - 1);
    const auto rest = text_.substr(line_starts_[line]);
    const auto bytes = static_cast<size_t>(mark.column);
    // Marks come nearly in order: counting on from the last one keeps long lines linear.
    if (line != counted_line_ || bytes < counted_bytes_) {
      counted_line_ = line;
      counted_bytes_ = 0;
      counted_column_ = 1;
    }
    for (; counted_bytes_ < bytes; ++counted_bytes_)
      counted_column_ += counted_bytes_ >= rest.size() || !is_continuation(rest[counted_bytes_]);
    return {static_cast<int>(line) + 1, counted_column_};
  }

 private:
  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    // "?" is a plain scalar or collection, "!" a quoted scalar.
    if (!tag.empty() && tag != "?" && tag != "!") report(mark, "tags are not supported");
  }

  void close() {
    Node done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done));
  }

  void add(Node node) {
    if (documents_ > 1) return;
    if (open_.empty()) {
      tree_.root = std::move(node);
      return;
    }
    Node& parent = open_.back();
    const bool is_key =
        parent.kind == Node::Kind::kMap && parent.keys.size() == parent.items.size();
    // The parser places an absent value at the next token.
    if (!is_key && node.kind == Node::Kind::kNull && parent.kind == Node::Kind::kMap)
      node.place = parent.keys.back().place;
    (is_key ? parent.keys : parent.items).push_back(std::move(node));
  }

  std::string_view text_;
  std::string file_name_;
  Tree& tree_;
  std::vector<size_t> line_starts_;
  std::vector<Node> open_;
  int documents_ = 0;
  // Where place() stopped counting.
  size_t counted_line_ = 0;
  size_t counted_bytes_ = 0;
  int counted_column_ = 1;
};

}  // namespace

Tree parse(std::string_view text, std::string_view file_name) {
  Tree tree;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // byte order mark
  if (text.size() > kMaxFileBytes) {
    tree.complete = false;
    tree.errors.push_back(
        {std::string(file_name), 0, 0,
         fmt::format("{} bytes; more than {} are refused", text.size(), kMaxFileBytes)});
    return tree;
  }
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    // The text before it is valid, so its last line can be counted like any other.
    const auto before = text.substr(0, at);
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    Place place;
    for (const char c : before) place.line += c == '\n';
    for (const char c : before.substr(line_start)) place.column += !is_continuation(c);
    tree.complete = false;
    tree.errors.push_back(
        {std::string(file_name), place.line, place.column,
         fmt::format("byte 0x{:02x} is not UTF-8 text", static_cast<uint8_t>(text[at]))});
    return tree;
  }

  std::istringstream in{std::string(text)};
  Builder builder(text, file_name, tree);
  try {
    YAML::Parser parser(in);
    while (builder.documents() < 2 && parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::DeepRecursion& error) {
    tree.complete = false;
    builder.report(error.mark, "YAML syntax: nested too deeply");
  } catch (const YAML::Exception& error) {
    tree.complete = false;
    builder.report(error.mark,
                   fmt::format("YAML syntax: {}{}", error.msg,
                               builder.tab_indents(error.mark)
                                   ? "; the line is indented by a tab, which YAML forbids"
                                   : ""));
  }
  return tree;
}

tl::expected<std::string, std::vector<Error>> read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  // One byte more than allowed, so that parse() notices; /dev/zero must end too.
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return tl::unexpected(
        std::vector<Error>{{path, 0, 0, fmt::format("cannot be read: {}", std::strerror(errno))}});
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string Error::to_string() const {
  if (line == 0) return fmt::format("{}: {}", file, text);
  return fmt::format("{}:{}:{}: {}", file, line, column, text);
}

std::string printable(std::string_view text) {
  size_t bytes = std::min<size_t>(text.size(), 48);
  // Do not cut a UTF-8 sequence in two.
  while (bytes != 0 && bytes < text.size() && is_continuation(text[bytes])) --bytes;
  const std::string out = ina::printable(text.substr(0, bytes));
  return bytes < text.size() ? out + "..." : out;
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kScalar:
      return node.text.empty() ? "\"\"" : printable(node.text);
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
    case Node::Kind::kNull:
    case Node::Kind::kRefused:
      break;
  }
  return "nothing";
}

}  // namespace ina::yaml
