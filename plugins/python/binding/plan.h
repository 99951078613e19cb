// Plans of redistributions.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ina/ina.h>

namespace ina::python {

/// Alpha and message in us, Gb/s of a link and of copies.
using Costs = std::array<double, 4>;

/// Throws ina::Exception.
class Plan {
 public:
  Plan(const std::string& mesh, const std::vector<size_t>& shape, const std::string& from,
       const std::string& to, ina_dtype dtype, uint64_t limit_bytes,
       const std::optional<std::string>& method, const std::optional<Costs>& costs);
  static Plan parse(const std::string& json);

  ina_plan_facts facts() const;
  std::string text() const;
  std::string json() const;
  const ina_plan* get() const { return plan_.get(); }

 private:
  explicit Plan(ina_plan* plan) : plan_(plan, &ina_plan_free) {}
  std::shared_ptr<ina_plan> plan_;
};

}  // namespace ina::python
