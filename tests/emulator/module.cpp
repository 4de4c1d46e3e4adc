// GoogleTest's tables as a library that run.py calls in its own process, where the emulator is.
#include <gtest/gtest.h>

extern "C" int run_tests(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
