#include "plugins/torch/group_base.h"

namespace ina::plugin {

GroupBase::~GroupBase() = default;

}  // namespace ina::plugin
