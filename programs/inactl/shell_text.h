// Quoting of text for evaluation by a shell.
#pragma once

#include <string>

namespace ina::cli {

/// One word of a POSIX shell, for any `text`: 'it'\''s'.
std::string shell_word(const std::string& text);

/// One line of comment: control characters, line ends among them, are '?'.
std::string shell_comment(const std::string& text);

}  // namespace ina::cli
