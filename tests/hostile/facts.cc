#include "tests/hostile/facts.h"

#include <arpa/inet.h>

#include <cstdio>
#include <stdexcept>

namespace ina::hostile {
namespace {

using Json = nlohmann::json;

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
  return bytes;
}

wire::MacAddress parse_mac(const std::string& text) {
  wire::MacAddress mac{};
  if (std::sscanf(text.c_str(), "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3],
                  &mac[4], &mac[5]) != 6)
    throw std::invalid_argument(text + " is not a MAC address");
  return mac;
}

wire::Address parse_address(const Json& json) {
  in_addr ip{};
  const auto text = json.at("ip").get<std::string>();
  if (::inet_pton(AF_INET, text.c_str(), &ip) != 1)
    throw std::invalid_argument(text + " is not an IPv4 address");
  return {parse_mac(json.at("mac")), ntohl(ip.s_addr), json.value("udp_port", uint16_t{0})};
}

Worker parse_worker(const Json& json) {
  return {parse_address(json), JobId{json.at("job").get<uint32_t>()}, json.at("job_key"),
          json.at("epoch"), json.at("seq")};
}

}  // namespace

Tenant parse_tenant(const Json& json) {
  return {JobId{json.at("job").get<uint32_t>()}, json.at("job_key"), json.at("epoch"),
          json.at("window"), json.at("udp_ports")};
}

Facts parse_facts(const Json& json) {
  Facts facts;
  facts.interface = json.at("interface");
  facts.seed = json.at("seed");
  facts.slot_bytes = json.at("slot_bytes");
  facts.switch_address = parse_address(json.at("switch"));
  facts.own = parse_address(json.at("own"));
  facts.kernel = parse_address(json.at("kernel"));
  facts.sink = parse_mac(json.at("sink"));
  for (const Json& victim : json.at("victims")) facts.victims.push_back(parse_worker(victim));
  for (const auto& [name, tenant] : json.at("tenants").items())
    facts.tenants[name] = parse_tenant(tenant);
  for (const Json& frame : json.at("captured"))
    facts.captured.push_back(bytes_of_hex(frame.get<std::string>()));
  if (facts.victims.empty() || facts.captured.empty())
    throw std::invalid_argument("the facts name no victim, or nothing captured");
  return facts;
}

}  // namespace ina::hostile
