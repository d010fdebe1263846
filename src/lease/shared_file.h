// SPDX-License-Identifier: BSD-3-Clause
//
// The one file of leases of a user's processes. It has a plain name in a folder where everybody may
// make names, and nobody may take away those of others (the sticky bit).
//
//   nobody has the name    a file without a name is prepared whole, and gets it. Of two that do so
//                          at once one finds that it is taken
//   a file of ours has it  regular, of this user, with a header that only we write: that one
//   one of another version it goes if no process uses it
//   anybody else has it    there is none, so nothing may be cached
//
// A process that dies on the way leaves nothing. The name of a file of ours is taken away by
// another version alone, and by people: who has it open then shares it with nobody who comes later.
#ifndef NVCACHE_LEASE_SHARED_FILE_H_
#define NVCACHE_LEASE_SHARED_FILE_H_

#include <sys/stat.h>

namespace nvcache::lease {

// A descriptor of the file, open for reading and writing, and what it is; or -1, and why in a few
// words.
int OpenSharedFile(const char* folder, struct stat* st, const char** why);

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_SHARED_FILE_H_
