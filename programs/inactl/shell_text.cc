#include "programs/inactl/shell_text.h"

#include "programs/inactl/status_json.h"

namespace ina::cli {

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string shell_comment(const std::string& text) {
  return "# " + printable(text) + "\n";
}

}  // namespace ina::cli
