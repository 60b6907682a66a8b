# cmake -S . -B build-fuzz -G Ninja -C deploy/presets/fuzz.cmake: the libFuzzer targets.
set(CMAKE_C_COMPILER "clang-14" CACHE STRING "")
set(ZEROD_FUZZ ON CACHE BOOL "")
