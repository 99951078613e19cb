// JSON, with its templates compiled once: include this instead of <nlohmann/json.hpp>. Without it,
// each file that reads or writes JSON makes the parser, the writer and the values' members anew,
// which takes longer than its own code.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// The instances that the sources use: texts in memory, and files.
#define INA_JSON_TEMPLATES(declared)                                                               \
  declared template class nlohmann::basic_json<>;                                                  \
  declared template class nlohmann::detail::serializer<nlohmann::json>;                            \
  declared template class nlohmann::detail::json_sax_dom_parser<nlohmann::json>;                   \
  declared template class nlohmann::detail::json_sax_dom_callback_parser<nlohmann::json>;          \
  INA_JSON_READER(declared, nlohmann::detail::iterator_input_adapter<const char*>)                 \
  INA_JSON_READER(declared, nlohmann::detail::iterator_input_adapter<std::string::const_iterator>) \
  INA_JSON_READER(declared, nlohmann::detail::input_stream_adapter)                                \
  declared template class std::vector<nlohmann::json>;                                             \
  declared template class std::map<std::string, nlohmann::json, std::less<>>;

#define INA_JSON_READER(declared, Input)                                  \
  declared template class nlohmann::detail::lexer<nlohmann::json, Input>; \
  declared template class nlohmann::detail::parser<nlohmann::json, Input>;

INA_JSON_TEMPLATES(extern)
