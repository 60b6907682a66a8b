# cmake -S . -B build-asan -G Ninja -C deploy/presets/asan.cmake: addresses, leaks, undefined behaviour.
set(ZEROD_SANITIZE "address,undefined" CACHE STRING "")
