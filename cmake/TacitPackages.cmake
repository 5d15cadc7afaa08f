# SPDX-License-Identifier: Apache-2.0
# cpack -G DEB, in the folder of the build or the source: packages for Debian, in packages/ there. A build for CMAKE_INSTALL_PREFIX
# /usr has the library in Debian's folder for the machine type; others have it in /usr/lib.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tacit)
set(CPACK_PACKAGE_VENDOR tacit)
# Who makes packages names himself as for other tools of Debian: DEBFULLNAME and DEBEMAIL in the environment of cmake.
if("$ENV{DEBFULLNAME}" STREQUAL "" OR "$ENV{DEBEMAIL}" STREQUAL "")
  set(tacit_contact "tacit maintainers <maintainers@tacit.example>")
else()
  set(tacit_contact "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_PACKAGE_CONTACT "${tacit_contact}" CACHE STRING "Maintainer of the packages: Name <address>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/debian_files.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

# tacit_package(COMPONENT package "what it contains"); further settings of CPack's Debian generator follow as pairs.
function(tacit_package component package text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "tacit sends fewer bytes in every step of training on several hosts, and hides\n\
the rest behind computation.\n${text}" PARENT_SCOPE)
  set(settings ${ARGN})
  while(settings)
    list(POP_FRONT settings key value)
    set(CPACK_DEBIAN_${upper}_PACKAGE_${key} ${value} PARENT_SCOPE)
  endwhile()
endfunction()

set(tacit_runtime libtacit${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(tacit_same "${tacit_runtime} (= ${PROJECT_VERSION})")
list(TRANSFORM TACIT_MPI_FOUND PREPEND libtacit-mpi- OUTPUT_VARIABLE tacit_plugins)
list(JOIN tacit_plugins " | " tacit_plugins)

# What others that link the library depend on, and what tells the loader of it.
set(tacit_control ${CMAKE_BINARY_DIR}/control)
file(WRITE ${tacit_control}/shlibs "libtacit ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${tacit_runtime} (>= ${PROJECT_VERSION})\n")
file(WRITE ${tacit_control}/triggers "activate-noawait ldconfig\n")

tacit_package(runtime ${tacit_runtime} "This is its library." SECTION libs RECOMMENDS "${tacit_plugins}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${tacit_control}/shlibs ${tacit_control}/triggers)
tacit_package(development libtacit-dev "These are its C headers, with files for pkg-config and CMake."
  SECTION libdevel DEPENDS "${tacit_same}")
tacit_package(program tacit "The program trains GPT-style networks, and measures and plans clusters."
  RECOMMENDS "${tacit_plugins}")
tacit_package(python python3-tacit "This is the module for Python 3, with or without PyTorch." SECTION python
  ARCHITECTURE all SHLIBDEPS OFF DEPENDS "python3:any, ${tacit_same}" SUGGESTS "python3-numpy, python3-torch")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/cmake/debian/postinst ${CMAKE_SOURCE_DIR}/cmake/debian/prerm)
set(tacit_name_openmpi "Open MPI")
set(tacit_name_mpich MPICH)
foreach(family IN LISTS TACIT_MPI_FOUND)
  tacit_package(${family} libtacit-mpi-${family}
    "With this plugin its processes find each other under launchers of ${tacit_name_${family}}." SECTION libs)
endforeach()

install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/tacit DESTINATION lib/python3/dist-packages COMPONENT python EXCLUDE_FROM_ALL
        PATTERN "__pycache__" EXCLUDE PATTERN "_lib" EXCLUDE)
set(CPACK_COMPONENTS_ALL runtime development program python ${TACIT_MPI_FOUND})
include(CPack)
