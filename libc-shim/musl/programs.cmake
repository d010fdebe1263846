# SPDX-License-Identifier: BSD-3-Clause
#
# Programs for the C library that NVCache is built into.
#
#   add_musl_executable(NAME STATIC|DYNAMIC SOURCES FILE... [OPTIONS FLAG...] [LIBRARIES -lNAME...])
#
# makes ${NVCACHE_MUSL_PROGRAMS}/NAME of C and C++ sources, and a target NAME. OPTIONS are for the
# compiler. NVCACHE_MUSL_TARGETS, which libc-shim/musl sets, is what has to be there before (targets),
# and what makes a program stale (files); NVCACHE_MUSL_CXX_TARGETS if one of its sources is C++.
set(NVCACHE_MUSL_PROGRAMS ${PROJECT_BINARY_DIR}/musl-programs CACHE INTERNAL "")

function(add_musl_executable name form)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;OPTIONS;LIBRARIES")
  if(NOT form MATCHES "^(STATIC|DYNAMIC)$" OR NOT arg_SOURCES)
    message(FATAL_ERROR "add_musl_executable(${name}): STATIC or DYNAMIC, and SOURCES")
  endif()
  set(compilers ${PROJECT_BINARY_DIR}/musl/bin)
  set(c ${CMAKE_COMMAND} -E env "REALGCC=${CMAKE_C_COMPILER_LAUNCHER} gcc"
      ${compilers}/nvcache-musl-gcc)
  set(cc ${CMAKE_COMMAND} -E env "REALGXX=${CMAKE_CXX_COMPILER_LAUNCHER} g++"
      ${compilers}/nvcache-musl-g++ -std=c++20)
  set(linker ${c})
  set(before ${NVCACHE_MUSL_TARGETS})
  if(arg_SOURCES MATCHES "\\.cc(;|$)")
    set(before ${NVCACHE_MUSL_CXX_TARGETS})
  endif()
  set(flags -O2 -g -Wall -Wextra -Wpedantic -Wconversion -Wshadow ${NVCACHE_WERROR_FLAG} -I${PROJECT_SOURCE_DIR})

  set(folder ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.musl)
  file(MAKE_DIRECTORY ${folder} ${NVCACHE_MUSL_PROGRAMS})
  set(objects)
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(file ${source} NAME)
    get_filename_component(path ${source} ABSOLUTE)
    set(compiler ${c})
    if(file MATCHES "\\.cc$")
      set(compiler ${cc})
      set(linker ${cc})
    endif()
    set(object ${folder}/${file}.o)
    add_custom_command(OUTPUT ${object} DEPFILE ${object}.d
      COMMAND ${compiler} ${flags} ${arg_OPTIONS} -MD -MF ${object}.d -MT ${object}
              -c ${path} -o ${object}
      DEPENDS ${path} ${before}
      COMMENT "musl: ${name}: ${file}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()

  set(program ${NVCACHE_MUSL_PROGRAMS}/${name})
  add_custom_command(OUTPUT ${program}
    COMMAND ${linker} $<$<STREQUAL:${form},STATIC>:-static> ${objects} ${arg_LIBRARIES}
            -o ${program}
    DEPENDS ${objects} ${before}
    COMMENT "musl: ${name}" COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${program})
endfunction()
