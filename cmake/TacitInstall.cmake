# SPDX-License-Identifier: Apache-2.0
# cmake --install: program, library, headers, manual pages, completion, and what other builds find the library by
# (pkg-config and find_package).
include(CMakePackageConfigHelpers)

# ---- program and library
set_target_properties(tacit-program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
set_target_properties(tacit-shared PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS tacit-program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(TARGETS tacit-shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
                                   NAMELINK_COMPONENT development)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tacit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")

# ---- manual pages and completion, printed by the program itself, which must run here
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "Manual pages and completion: none, for the program does not run here; CMAKE_CROSSCOMPILING_EMULATOR names what runs it")
else()
  set(tacit_printed ${CMAKE_BINARY_DIR}/printed)
  file(MAKE_DIRECTORY ${tacit_printed}/man1)
  add_custom_command(OUTPUT ${tacit_printed}/man1/tacit.1 ${tacit_printed}/tacit.bash
    COMMAND tacit-program man --all ${tacit_printed}/man1
    COMMAND tacit-program completion bash > ${tacit_printed}/tacit.bash
    DEPENDS tacit-program COMMENT "Printing manual pages and completion" VERBATIM)
  add_custom_target(tacit-pages ALL DEPENDS ${tacit_printed}/man1/tacit.1 ${tacit_printed}/tacit.bash)
  install(DIRECTORY ${tacit_printed}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
  install(FILES ${tacit_printed}/tacit.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME tacit
          COMPONENT program)
endif()

# ---- how other builds find the library, which brings along by itself what it needs
set(tacit_file $<TARGET_FILE_NAME:tacit-shared>)
set(tacit_soname $<TARGET_SONAME_FILE_NAME:tacit-shared>)
file(RELATIVE_PATH tacit_include_from_lib ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${CMAKE_SOURCE_DIR}/cmake/tacit.pc.in ${CMAKE_BINARY_DIR}/tacit.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tacit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

set(tacit_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tacit)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tacitConfig.cmake.in ${CMAKE_BINARY_DIR}/tacitConfig.cmake.gen
  INSTALL_DESTINATION ${tacit_package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tacitConfig.cmake INPUT ${CMAKE_BINARY_DIR}/tacitConfig.cmake.gen)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tacitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tacitConfig.cmake ${CMAKE_BINARY_DIR}/tacitConfigVersion.cmake
        DESTINATION ${tacit_package_dir} COMPONENT development)
