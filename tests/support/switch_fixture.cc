#include "tests/support/switch_fixture.h"

template class ina::switchd::Lane<ina::switchd::NoFramePort>;
template class ina::test::BasicTestSwitch<>;
