// Precompiled for tests that include neither GoogleMock nor JSON (tests/support/meson.build).
#include <gtest/gtest.h>
