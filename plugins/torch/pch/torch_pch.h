// PyTorch's headers, which take most of the time of compiling a file that includes one of them:
// read once. Files include what they need nevertheless.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/python_headers.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <ina/ina.hpp>
