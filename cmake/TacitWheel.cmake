# SPDX-License-Identifier: Apache-2.0
# What the Python package contains, beside its own files: tacit/_lib/libtacit.so, which shows the public functions only,
# and tacit/_lib/tacit, the program without networks; both need the C library only. And the plugins of the MPI libraries
# that are found here, which need those.
target_link_options(tacit-shared PRIVATE -s -Wl,-z,defs ${TACIT_ARCHIVE_OPTIONS})
target_sources(tacit-shared PRIVATE ${CMAKE_SOURCE_DIR}/src/api/wrap_stdin.c)
get_property(tacit_archives GLOBAL PROPERTY TACIT_ARCHIVES)
set_target_properties(tacit-shared PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
install(FILES $<TARGET_FILE:tacit-shared> DESTINATION tacit/_lib RENAME libtacit.so)
target_link_options(tacit-program PRIVATE -s)
set_target_properties(tacit-program PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
install(PROGRAMS $<TARGET_FILE:tacit-program> DESTINATION tacit/_lib)

# Their licences ask that copies come with them.
if(SKBUILD_METADATA_DIR)
  set(tacit_notices ${SKBUILD_METADATA_DIR}/licenses)
else()
  set(tacit_notices tacit/_lib/licenses)
endif()
foreach(library IN LISTS tacit_archives)
  set(notice /usr/share/doc/lib${library}-dev/copyright)
  if(EXISTS ${notice})
    install(FILES ${notice} DESTINATION ${tacit_notices} RENAME lib${library}.txt)
  else()
    message(WARNING "${notice} is missing: add the licence of lib${library} before you pass the package on")
  endif()
endforeach()
