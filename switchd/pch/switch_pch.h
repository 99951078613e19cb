// What most files of the switch include, compiled once.

#include "switchd/conductor.h"
