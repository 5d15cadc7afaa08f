# SPDX-License-Identifier: Apache-2.0
# tacit_sources(a.c b.c)       adds files of this folder to the library
# tacit_test(name LABELS ...)  builds test_name.c beside the unit and registers it
function(tacit_sources)
  foreach(file IN LISTS ARGN)
    target_sources(tacit PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
endfunction()

# A source that tests share is compiled once, as an object library that is named after its path.
function(tacit_test_helper file out)
  get_filename_component(path ${file} ABSOLUTE)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${path})
  string(MAKE_C_IDENTIFIER ${name} name)
  set(${out} ${name} PARENT_SCOPE)
  if(TARGET ${name})
    return()
  endif()
  add_library(${name} OBJECT ${path})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE tacit_flags cmocka)
endfunction()

# Those that take more than five seconds: ctest starts them first, so that none is left alone at the end.
set(TACIT_LONG_TESTS feedback gossip_noise gossip_laws channel exchange mix sharding sharding_compressed compression_control gossip
  gossip_life cluster_probe gaps async engine_tcp tcp_faults comm halves sketch_reduce state fault reference work narrow)

# Unit tests see the private headers. Several sources may follow the name: tacit_test(rng) or tacit_test(ring helper.c).
function(tacit_test name)
  if(NOT TACIT_TESTS)
    return()
  endif()
  add_executable(test_${name} test_${name}.c)
  foreach(file IN LISTS ARGN)
    tacit_test_helper(${file} helper)
    target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:${helper}>)
  endforeach()
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(test_${name} PRIVATE tacit tacit_flags cmocka jansson xxhash Threads::Threads m)
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/unit)
  tacit_test_again(${name} ${name})
endfunction()

# The test under another name; variables of its environment may follow.
function(tacit_test_again name test)
  add_test(NAME ${name} COMMAND test_${test})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS unit WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} ENVIRONMENT "${ARGN}")
  if(test IN_LIST TACIT_LONG_TESTS)
    set_tests_properties(${name} PROPERTIES COST 10)
  endif()
endfunction()
