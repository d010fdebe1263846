// SPDX-License-Identifier: BSD-3-Clause
//
// The words of the command line on servers, keys and etcd, and this process's own names.
#ifndef NVCACHE_MIRROR_TOOL_IDENTITY_H_
#define NVCACHE_MIRROR_TOOL_IDENTITY_H_

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

#include "mirror/etcd/options.h"
#include "mirror/net/client.h"

namespace nvcache::tool {

struct Connecting {
  std::string name;  // the mirror's
  std::string keys;
  bool insecure = false;
  mirror::EtcdOptions etcd;
};

void AddConnecting(CLI::App* command, Connecting* connecting);
// A Failure names the option that is wrong.
void Check(const Connecting& connecting);
mirror::Identity IdentityOf(const Connecting& connecting);
// The name of this process; no other has the same. For people.
std::string Self();
// One line on standard error.
void Say(const std::string& text);

}  // namespace nvcache::tool

#endif  // NVCACHE_MIRROR_TOOL_IDENTITY_H_
