# ZEROD_CUDA: until the CUDA data path lands, AUTO says what it found and builds without it, and
# ON is an error rather than a build that quietly lacks what was asked for.
find_program(ZEROD_NVCC nvcc)
set_property(CACHE ZEROD_CUDA PROPERTY STRINGS AUTO ON OFF)
if(ZEROD_CUDA STREQUAL "ON")
  message(FATAL_ERROR "ZEROD_CUDA=ON: this version has no CUDA data path yet; use AUTO or OFF")
elseif(ZEROD_CUDA STREQUAL "AUTO")
  if(ZEROD_NVCC)
    message(STATUS "CUDA: toolkit found (${ZEROD_NVCC}), but there is no CUDA data path yet; "
                   "building for the CPU")
  else()
    message(STATUS "CUDA: no toolkit found; building for the CPU")
  endif()
elseif(NOT ZEROD_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "ZEROD_CUDA=${ZEROD_CUDA}: must be AUTO, ON or OFF")
endif()
