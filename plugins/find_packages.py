"""Prints the extensions that can be built, "python" and "torch", one a line, and otherwise the
missing parts."""

import importlib.util
import os
import sysconfig

FOLDERS = [sysconfig.get_path("include"), "/usr/include"]


def missing(headers, folders):
    return [h for h in headers if not any(os.path.exists(os.path.join(f, h)) for f in folders)]


def missing_for_torch():
    if importlib.util.find_spec("torch") is None:
        return ["torch"]
    from torch.utils import cpp_extension
    return missing(["torch/extension.h"], [*cpp_extension.include_paths(), *FOLDERS])


lacking = missing(["Python.h", "pybind11/pybind11.h"], FOLDERS)
if lacking:
    print("missing:", *lacking)
else:
    print("python")
    lacking = missing_for_torch()
    print(*(["missing:", *lacking] if lacking else ["torch"]))
