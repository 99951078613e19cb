// PyTorch's headers, which take most of the time of compiling a file that includes one of them:
// read once. Files include what they need nevertheless.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/python_headers.h>

#include <ina/ina.hpp>

#include "plugins/torch/group_base.h"
