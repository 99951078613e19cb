// A YAML text as a tree that keeps three facts which yaml-cpp's own Node loses: duplicate keys, the
// places of keys, and the use of anchors or aliases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "switchd/config/config.h"

namespace ina::config {

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

struct Tree {
  Node root;
  std::vector<ConfigError> errors;
  bool complete = true;  ///< false: a syntax error, `root` is not usable
};

/// Parses one document. Refuses anchors, aliases, tags, further documents, texts that are not UTF-8
/// and texts larger than kMaxFileBytes.
Tree parse_yaml(std::string_view text, std::string_view file_name);

}  // namespace ina::config
