// ina-config-doc: writes the generated texts, for the build and for conf/switchd.yaml.
#include <cstdio>
#include <string_view>

#include "switchd/config/config.h"

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "sample" && what != "manual") {
    std::fputs("usage: ina-config-doc sample|manual\n", stderr);
    return 2;
  }
  const std::string text =
      what == "sample" ? ina::config::sample_config() : ina::config::manual_page();
  return std::fputs(text.c_str(), stdout) < 0;
}
