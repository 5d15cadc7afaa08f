# SPDX-License-Identifier: Apache-2.0
# cpack runs this between installation and packaging. Debian wants a licence and a changelog in every package, compressed
# manual pages, and plugins without a search path of their own: its MPI libraries are in the usual folders.
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(folder ${root}/share/doc/${package})
  file(WRITE ${folder}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
    "Files: *\nCopyright: 2026 the contributors of tacit\nLicense: Apache-2.0\n"
    " Debian systems have its text in /usr/share/common-licenses/Apache-2.0.\n")
  file(WRITE ${folder}/changelog "${package} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
    "  * Version ${CPACK_PACKAGE_VERSION}. CHANGELOG.md of the source says what is new.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
  file(GLOB pages ${root}/share/man/man1/*.1)
  execute_process(COMMAND gzip -9nf ${folder}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB_RECURSE plugins ${root}/*/libtacit-mpi-*.so)
  foreach(plugin IN LISTS plugins)
    file(RPATH_REMOVE FILE ${plugin})
  endforeach()
  file(GLOB_RECURSE files ${folder}/* ${root}/share/man/*.gz)
  file(CHMOD ${files} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()
