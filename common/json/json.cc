#include "common/json/json.h"

INA_JSON_TEMPLATES()
