// What most files of the switch include, compiled once.
#pragma once

#include "switchd/conductor_state.h"
