# SPDX-License-Identifier: Apache-2.0
# cpack -G DEB, in this folder: Debian packages of build/release, or of the build that TACIT_BUILD in the environment names.
set(build $ENV{TACIT_BUILD})
if(NOT build)
  set(build ${CMAKE_CURRENT_LIST_DIR}/build/release)
endif()
if(NOT EXISTS ${build}/CPackConfig.cmake)
  message(FATAL_ERROR "${build} is no build; type: cmake --preset release && cmake --build --preset release")
endif()
include(${build}/CPackConfig.cmake)
