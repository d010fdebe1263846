// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/tool/identity.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <random>

#include "mirror/core/ids.h"
#include "mirror/net/keys.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {

void AddConnecting(CLI::App* command, Connecting* connecting) {
  command->add_option("--name", connecting->name, "Of the mirror: the key of its record in etcd")
      ->required();
  command
      ->add_option("--etcd,--mirror", connecting->etcd.endpoints,
                   "http://HOST:PORT or https://HOST:PORT of etcd; may be given more than once")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--etcd-ca", connecting->etcd.ca, "Authority of etcd's certificate (PEM)");
  command->add_option("--etcd-cert", connecting->etcd.certificate, "Own certificate (PEM)");
  command->add_option("--etcd-key", connecting->etcd.key, "Its key (PEM)");
  command->add_option("--keys", connecting->keys,
                      "File whose first line is the key for the servers: IDENTITY:HEX");
  command->add_flag("--insecure", connecting->insecure, "No key: only for servers on this machine");
}

void Check(const Connecting& connecting) {
  if (!mirror::IsName(connecting.name)) {
    throw Failure{kUsage, fmt::format("--name {}: give 1 to {} letters, digits, '.', '_' and '-', "
                                      "a letter or digit first",
                                      connecting.name, mirror::kMaxName)};
  }
  if (connecting.insecure == !connecting.keys.empty()) {
    throw Failure{kUsage, "give --keys FILE; or, for servers on this machine, --insecure"};
  }
  if (std::string problem = mirror::Problem(connecting.etcd); !problem.empty()) {
    throw Failure{kUsage, problem};
  }
}

mirror::Identity IdentityOf(const Connecting& connecting) {
  if (connecting.insecure) return {};
  return mirror::Identity(mirror::ReadKeys(connecting.keys)[0]);
}

std::string Self() {
  std::array<char, HOST_NAME_MAX + 1> host = {};
  gethostname(host.data(), host.size() - 1);
  std::random_device random;
  return fmt::format("{} {} {:08x}{:08x}", host.data(), getpid(), random(), random());
}

void Say(const std::string& text) {
  fmt::print(stderr, "nvcache: {}\n", Printable(text));
  fflush(stderr);
}

}  // namespace nvcache::tool
