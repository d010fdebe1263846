# SPDX-License-Identifier: BSD-3-Clause
#
# libstdc++ and nvcache-musl-g++, in the tree of the modified musl (target musl, before this one).
# The source is Debian's, fetched when it is not there.
set(tree ${PROJECT_BINARY_DIR}/musl)
set(source ${PROJECT_BINARY_DIR}/sources/gcc-12)
set(here ${CMAKE_CURRENT_LIST_DIR})

add_custom_command(OUTPUT ${source}/.fetched
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/fetch-source gcc-12 ${source}
  COMMENT "Fetching the source of GCC" VERBATIM)
add_custom_command(OUTPUT ${tree}/lib/libstdc++.a
  COMMAND ${CMAKE_COMMAND} -E env "REALGCC=${CMAKE_C_COMPILER_LAUNCHER} gcc"
    ${here}/build-libstdc++ --source ${source} --prefix ${tree}
  DEPENDS musl ${source}/.fetched ${here}/build-libstdc++ ${here}/dl_find_object.c
    ${here}/nvcache-musl-g++
  COMMENT "Building libstdc++ for the modified musl (some minutes)" VERBATIM)
add_custom_target(musl_cxx ALL DEPENDS ${tree}/lib/libstdc++.a)
