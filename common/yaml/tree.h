// A YAML text as a tree that keeps three facts which yaml-cpp's own Node loses: duplicate keys, the
// places of keys, and the use of anchors or aliases.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace ina::yaml {

/// Larger files are refused: none of ours is, and a parser's time should be bounded.
inline constexpr size_t kMaxFileBytes = 1 << 20;

/// Counts from 1; columns in characters, not bytes.
struct Place {
  int line = 1;
  int column = 1;
};

struct Node {
  enum class Kind {
    kNull,
    kScalar,
    kList,
    kMap,
    kRefused,  ///< an alias: an error is recorded already, so readers stay silent
  };
  Kind kind = Kind::kNull;
  Place place;
  std::string text{};         ///< kScalar
  std::vector<Node> items{};  ///< kList: the items; kMap: the values
  std::vector<Node> keys{};   ///< kMap: keys[i] belongs to items[i]
};

/// One thing wrong with a file. Line and column as in Place; line 0: the whole file.
struct Error {
  std::string file;
  int line = 0;
  int column = 0;
  std::string text;
  /// "conf/x.yaml:12:5: aggregator.slots: 0 is not in 1..2^24"
  std::string to_string() const;
};

struct Tree {
  Node root;
  std::vector<Error> errors;
  bool complete = true;  ///< false: a syntax error, `root` is not usable
};

/// Parses one document. Refuses anchors, aliases, tags, further documents, texts that are not UTF-8
/// and texts larger than kMaxFileBytes.
Tree parse(std::string_view text, std::string_view file_name);
/// A file's text, no more of it than parse() would refuse.
tl::expected<std::string, std::vector<Error>> read_file(const std::string& path);

/// A user's text as it may be printed in a message: shortened, without control characters.
std::string printable(std::string_view text);
/// "a list", "a map", "nothing" or the printable text itself.
std::string describe(const Node& node);

}  // namespace ina::yaml
