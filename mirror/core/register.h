// SPDX-License-Identifier: BSD-3-Clause
//
// The record as one process sees it that may change it. A change is insisted on until its outcome
// is known: an attempt without an answer may still be done later, so nothing else is tried
// meanwhile, and whatever rests on the record has to hold for both.
#ifndef NVCACHE_MIRROR_CORE_REGISTER_H_
#define NVCACHE_MIRROR_CORE_REGISTER_H_

#include <cstdint>
#include <optional>

#include "mirror/core/record.h"

namespace nvcache::mirror {

class Register {
 public:
  // etcd's side. Each is answered by one call of Found() or Written(), later.
  class Keeper {
   public:
    virtual ~Keeper() = default;
    virtual void ReadRecord() = 0;
    // If the record's revision is still this one; 0: if there is none.
    virtual void WriteRecord(const Record& record, uint64_t revision) = 0;
  };
  enum class News {
    kNothing,  // no answer, or one that changes nothing
    kKnown,    // the record was read: known() is it
    kDone,     // the change is done
    kLost,     // the change is not done, and never will be; known() is what is there
  };

  explicit Register(Keeper* keeper, Time retry) : keeper_(*keeper), retry_(retry) {}

  // Nothing is known any more: Tick() reads.
  void Ask() { asks_ = true; }
  // The change that is wanted next. None may be under way. Its version is set here.
  void Change(Record wanted);
  // Asks etcd again, when it is time to.
  void Tick(Time now);

  News Found(bool reached, const std::optional<Record>& record, uint64_t revision);
  News Written(Outcome outcome, uint64_t revision);

  // The record that was last seen; others may have changed it since.
  const std::optional<Record>& known() const { return known_; }
  // The record that may be in its place: a change whose outcome is not known.
  const std::optional<Record>& wanted() const { return wanted_; }

 private:
  Keeper& keeper_;
  const Time retry_;
  std::optional<Record> known_;
  uint64_t revision_ = 0;
  std::optional<Record> wanted_;
  bool asks_ = true;     // read before anything else
  bool waits_ = false;   // for an answer
  bool reached_ = true;  // the last answer says so
  Time again_ = 0;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_REGISTER_H_
