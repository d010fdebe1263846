// SPDX-License-Identifier: BSD-3-Clause
//
// The answers of etcd to the requests of a client. Each `error` is one line, or empty.
#ifndef NVCACHE_MIRROR_ETCD_ANSWERS_H_
#define NVCACHE_MIRROR_ETCD_ANSWERS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "mirror/core/record.h"

namespace nvcache::mirror {

// The number of a change of the key; 0: the key does not exist.
using Revision = int64_t;

struct ReadAnswer {
  // False: etcd has not answered, and nothing is known. `error` says why.
  bool reached = false;
  // None though `revision` is not 0: what is there is no record. `error` says why.
  std::optional<Record> record = std::nullopt;
  Revision revision = 0;
  std::string error = "";
};

struct WriteAnswer {
  // kUnknown also for a request that was refused or has not left. `error` says why.
  Outcome outcome = Outcome::kUnknown;
  Revision revision = 0;  // the new one, if it is kDone
  std::string error = "";
};

struct HoldAnswer {
  bool held = false;
  std::string by = "";     // the text of the one who holds it; empty: unknown
  std::string error = "";  // why it is unknown
};

struct WriterAnswer {
  // False: nothing is known. `error` says why.
  bool reached = false;
  std::string by = "";  // the text of the one who holds the writer's key; empty: nobody does
  std::string error = "";
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_ANSWERS_H_
