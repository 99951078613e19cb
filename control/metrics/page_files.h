// The files of the page, which the build puts into the program (page/embed.py).
#pragma once

#include <span>
#include <string_view>

namespace ina::metrics {

struct PageFile {
  std::string_view path;  ///< as it is asked for
  std::string_view type;
  std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace ina::metrics
