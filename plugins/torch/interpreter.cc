#include "plugins/torch/interpreter.h"

#include <torch/csrc/python_headers.h>

namespace ina::plugin {

void run_without_gil(const std::function<void()>& task) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return task();
  PyThreadState* const state = PyEval_SaveThread();
  task();
  PyEval_RestoreThread(state);
}

bool python_ends() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

}  // namespace ina::plugin
