# SPDX-License-Identifier: BSD-3-Clause
#
# The engine for programs of the modified musl: the objects of libnvcache.so behind another host.
# libnvcache-musl.so needs nothing but the libc that loads it. libnvcache-musl.a holds one object, of
# which only __nvcache_attach is to be seen.
add_library(nvcache_musl_host STATIC attach.cc host.cc)
target_compile_options(nvcache_musl_host PRIVATE
  -fno-exceptions -fno-rtti -fno-threadsafe-statics -fvisibility=hidden -ftls-model=initial-exec
  -fno-stack-protector -U_FORTIFY_SOURCE -fasynchronous-unwind-tables)
target_link_libraries(nvcache_musl_host PRIVATE nvcache_warnings nvcache_calls nvcache_engine)

set(musl_lib ${NVCACHE_MUSL_PREFIX}/lib)
set(musl_object ${CMAKE_CURRENT_BINARY_DIR}/nvcache-musl.o)
set(musl_parts $<TARGET_FILE:nvcache_musl_host> $<TARGET_FILE:nvcache_calls> $<TARGET_FILE:nvcache_engine>)
add_custom_command(OUTPUT ${musl_lib}/libnvcache-musl.so ${musl_lib}/libnvcache-musl.a
  COMMAND ${CMAKE_LINKER} -r -u __nvcache_attach -o ${musl_object} ${musl_parts}
  COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=__nvcache_attach ${musl_object}
  COMMAND ${CMAKE_C_COMPILER} -shared -nostdlib -o ${musl_lib}/libnvcache-musl.so ${musl_object}
    -Wl,-soname,libnvcache-musl.so,-z,now,-z,relro,-z,noexecstack,--gc-sections
  COMMAND rm -f ${musl_lib}/libnvcache-musl.a
  COMMAND ${CMAKE_AR} rcs ${musl_lib}/libnvcache-musl.a ${musl_object}
  DEPENDS nvcache_musl_host nvcache_calls nvcache_engine
  VERBATIM)
