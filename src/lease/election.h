// SPDX-License-Identifier: BSD-3-Clause
//
// The processes of a user choose the one file of leases.
//
// It lies in a folder where everybody may make names, and nobody may take away those of others
// (the sticky bit): the first to come may have the name that we meant, and may free it again in
// the wrong moment. But others cannot make a file that is ours. So all processes of the user
// choose one among the files that are: regular, of this user, with a name that begins as ours do,
// and with a header that only we write.
//
//   stranger   everything else, an own file without a header among it
//   candidate  made by one of us, not chosen
//   elected    the one: its header says so, and it stays
//
// Nearly always the file with the plain name is elected, and that is that. Else:
//
//   list the candidates; if one is elected, that is it
//   if there is none, make one: under the plain name, or, if somebody has it, under a random one
//   lock all of them
//   list again. If it is the same, and still none is elected: elect one, and remove the others
//
// and from the start when something is not as it should be. A candidate is removed only by a
// process that has it locked, an elected one by nobody.
//
// Two are never elected. Say that A elects F, and later B elects G. Both are candidates first, so
// each has the header of one from its making on.
//
//   B's second list has F: B has F locked, from before that list until it elects G. A elected F
//   under the same lock, so before B took it (for A was earlier), and B's list says that F is
//   elected.
//
//   B's second list lacks F: it was made after that list had begun, since nobody removes it. G is
//   older: B had it locked by then. A's second list began when F was there, so after B's, and G was
//   there. So A had G locked while it looked and elected; B had, from before A looked until after A
//   elected. Both at once cannot be.
//
// A process that dies on the way leaves candidates, unlocked: the next one elects among them.
#ifndef NVCACHE_LEASE_ELECTION_H_
#define NVCACHE_LEASE_ELECTION_H_

#include <sys/stat.h>

#include <cstdint>

#include "src/sys/text.h"

namespace nvcache::lease {

class Election {
 public:
  explicit Election(const char* folder);
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  // A descriptor of the elected file, open for reading and writing; or -1, and why in a few words.
  int Run(const char** why);

 private:
  static constexpr uint32_t kMaxCandidates = 64;
  using Name = sys::Text<64>;

  struct Candidate {
    int fd;
    uint64_t inode;
    Name name;
  };
  // Open files; closed with it.
  struct List {
    List() = default;
    ~List();
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    // False: there is no memory. The file is closed if it has no place in the list.
    bool Add(int fd, uint64_t inode, const char* name);
    bool SameAs(const List& other) const;

    Candidate* candidates = nullptr;  // in the order of their inodes; kMaxCandidates
    uint32_t count = 0;
    bool more = false;  // than there is room for
    int elected = -1;
  };

  enum class FileKind { kIsStranger, kIsCandidate, kIsElected, kIsOutdated };
  enum class Step { kDone, kAgain, kLater, kFailed };

  int Noted(long fd);
  int Open(int folder, const char* name, struct stat* st);
  static FileKind FileKindOf(int fd, const struct stat& st);
  Step Look(const char* name, List* list);
  Step Collect(List* list);
  Step Try(int* fd);
  bool Make();
  bool Prepare(int fd);
  static bool LockAll(const List& list);
  Step Elect(const List& list, int* fd);
  bool RemoveOutdated(int fd, const char* name) const;
  void Remove(int fd, const char* name) const;
  void Withdraw();

  const char* path_;  // the folder's
  int folder_ = -1;   // where the plain name did not do
  Name name_;         // the plain one
  Name own_;          // the candidate's that we have made, if any
  const char* why_ = "";
  bool out_of_descriptors_ = false;
};

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_ELECTION_H_
