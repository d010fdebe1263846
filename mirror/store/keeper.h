// SPDX-License-Identifier: BSD-3-Clause
//
// systemd keeps descriptors for a service while the service's process is gone (sd_notify(3),
// sd_listen_fds(3)). These are the few bytes of its protocol that this takes.
#ifndef NVCACHE_MIRROR_STORE_KEEPER_H_
#define NVCACHE_MIRROR_STORE_KEEPER_H_

#include <string>
#include <utility>
#include <vector>

#include "src/sys/descriptor.h"

namespace nvcache::mirror {

// The kept descriptors, by their names; none, if this process was not started by systemd. Once: the
// variables are gone from the environment then.
std::vector<std::pair<std::string, sys::Descriptor>> TakeKept();

// True: somebody listens to Notify() and Keep().
bool HasKeeper();
// "READY=1", for one. False: it was not sent.
bool Notify(const std::string& state);
// From when it returns true, `fd` outlives this process under that name, which has no ':'.
bool Keep(const std::string& name, int fd);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_STORE_KEEPER_H_
