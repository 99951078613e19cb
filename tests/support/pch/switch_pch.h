// Precompiled for tests of a whole switch in the process (tests/support/meson.build).
#include "tests/support/pch/unit_pch.h"
#include "tests/support/switch_fixture.h"
