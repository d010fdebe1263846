// SPDX-License-Identifier: BSD-3-Clause
//
// swapon, mount and others that give the kernel a file.
#include "libc-shim/calls/lend.h"

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT int swapon(const char* path, int flags) noexcept {
  return LendPath(AT_FDCWD, path, [=] { return NVCACHE_REAL(swapon)(path, flags); });
}

NVCACHE_EXPORT int acct(const char* path) noexcept {
  return LendPath(AT_FDCWD, path, [=] { return NVCACHE_REAL(acct)(path); });
}

NVCACHE_EXPORT int mount(const char* source, const char* target, const char* type,
                         unsigned long flags, const void* data) noexcept {
  return LendPath(AT_FDCWD, source,
                  [=] { return NVCACHE_REAL(mount)(source, target, type, flags, data); });
}

NVCACHE_EXPORT int fsconfig(int fd, unsigned command, const char* key, const void* value,
                            int auxiliary) noexcept {
  return ConfigureMount(command, value, auxiliary,
                        [=] { return NVCACHE_REAL(fsconfig)(fd, command, key, value, auxiliary); });
}

NVCACHE_EXPORT int quotactl(int command, const char* device, int id, char* argument) noexcept {
  return Quota(command, argument,
               [=] { return NVCACHE_REAL(quotactl)(command, device, id, argument); });
}

NVCACHE_EXPORT int fanotify_init(unsigned flags, unsigned event_flags) noexcept {
  return WatchFiles([=] { return NVCACHE_REAL(fanotify_init)(flags, event_flags); });
}
