# cmake -S . -B build-tsan -G Ninja -C deploy/presets/tsan.cmake: data races.
set(ZEROD_SANITIZE "thread" CACHE STRING "")
