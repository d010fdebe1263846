// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_TESTS_PROTOCOL_RULES_H_
#define NVCACHE_TESTS_PROTOCOL_RULES_H_

#include "tests/kit/rule.h"

namespace nvcache::protocol {

using kit::Rule;

inline constexpr kit::RuleText kRules[] = {
    // Passing.
    {"passing-before-look", "a process raises its passing count before it looks for the tag", 2867},
    {"passing-until-end", "and lowers it when the real call is over", 10152},
    {"owner-passes",
     "the count stays up while a write is logged: the lock may be taken away, and the call be "
     "late",
     5142},
    {"mapping-passes", "a mapping that can write passes as long as it is", 6501},
    {"past-is-unknown", "a call past the log makes the file unknown", 1373},
    {"past-bypasses", "it raises bypasses, though the file may be unknown: a sync may be under way",
     5318},
    {"past-under-lock", "it does so with the lock: a logged write may be under way", 1529},
    {"settled-before-past", "it settles first if a group counts, or may come", 59},
    {"past-settles-uncounted",
     "its own count counts in that settling, which does not make the file known", 9260},
    // Settling.
    {"settle-scans", "a file gets known only if no process was passing", 406},
    {"scan-before-sync", "settling looks at the counts before it syncs", 7418},
    {"bypasses-before-scan", "and reads bypasses before it looks at them", 29926},
    {"known-in-one-step", "a file gets known in one step that fails if bypasses has changed", 446},
    {"settled-before-sync", "s is drawn before the sync begins", 259},
    {"bypasses-before-settled",
     "and after bypasses was read: each group below what is known later is older, or void", 33455},
    {"state-after-settled",
     "tag and bypasses are the same after s was drawn: the entry may be another file's by now",
     159118},
    {"settled-committed", "a sync of an unknown file leaves a record", 32},
    {"settled-seen-when-committed", "others see the new bound when the record is durable", 2341},
    {"settled-through-only",
     "the record says nothing of write-back groups that are not handed over: the kernel may lack "
     "these",
     67200},
    // Logged writes.
    {"lsn-under-lock", "a group's LSN is drawn with the lock of its file", 1},
    {"lsn-after-call", "and after the real call, so that a sync above it covers the call", 435},
    {"locked-before-commit", "a writer that has lost the lock does not commit", 4709},
    {"locked-after-lsn", "it looks for that after the LSN was drawn", 10193},
    {"lsn-raised", "the entry knows the LSN of a group", 116},
    {"lsn-raised-before-look",
     "before its writer looks whether it still has the lock: it may commit at any time after that",
     17542},
    // The lock is taken away.
    {"theft-is-unknown", "a lock that is taken away makes the file unknown", 737},
    {"theft-bypasses", "it raises bypasses", 133987},
    // fsync.
    {"unknown-fsync-real", "fsync of an unknown file is real", 22},
    {"fsync-under-lock", "fsync looks with the lock whether it is known", 30},
    // The tag goes.
    {"removed-under-lock", "a tag is removed with the lock", 1153},
    {"removed-not-pending", "when nothing of the file is pending", 215},
    {"removed-in-one-step", "in one step that fails if bypasses has changed", 29403},
    {"state-before-removals-lock", "since before the lock was taken: it may be lost by now", 4424},
    {"removal-bypasses", "which raises bypasses: the file may get a tag again", 8975},
    // The checkpoint of write-through.
    {"checkpoint-before-sync", "the checkpoint is read before the sync begins", 340},
    {"checkpoint-twice", "others see it when both records have it", 41},
    {"one-checkpointer", "one process at a time moves it", 8526},
    {"sync-moves-checkpoint",
     "sync and syncfs move it: a call that has not committed may be newer than a group", 328},
    {"dead-segments-wait",
     "a dead process's segments wait for it as well, though its groups are settled", 345},
    // Opening.
    {"opened-is-unknown",
     "a file that nobody has open is made unknown by who opens it: a stranger may have written",
     1056},
    {"opened-before-asked", "who opens it asks for the others when he has it open", 391},
    {"opened-before-said", "and says that he has it when it is unknown: others rely on that", 2174},
    {"said-by-the-living", "what the dead said counts no more", 43256},
    // Write-back.
    {"mark-before-probe",
     "a process marks a file as written back before it looks for others that have it open", 76132},
    {"open-before-look", "a process looks for the mark after its open", 7392},
    {"promoted-settled", "a file is settled before it is written back", 79},
    {"drain-writes", "a file is written out before others have it", 153},
    {"drain-syncs", "and synced before its groups count no more", 153},
    {"drain-moves-checkpoint", "and the seat's checkpoint is durable before others have it", 306},
    {"only-the-dead-are-adopted",
     "write-back is taken from the dead only: the living may be about to write old bytes", 14},
    {"one-adopter", "by one process, unless that is dead as well", 1543},
    {"adopted-from-newest", "which begins at the newer of the two records of the seat's checkpoint",
     6978},
    // Written back no more, without a sync: handed over.
    {"handed-over-after-writing",
     "p is drawn when the kernel has every byte: a sync above p covers them", 96648},
    {"handed-over-tagged", "the tag is set before others have the file", 1997},
    {"handed-over-raises-lsn", "the entry knows p, as it knows the LSN of a write-through group",
     669},
    {"handed-over-lsn-before-tag", "before the tag is set: who removes it may have looked already",
     16032},
    {"handed-over-scans", "the file gets known only if no process was passing", 156500},
    {"handed-over-tag-before-scan", "which is looked at when the tag was set", 1271272},
    {"handed-over-known-in-one-step",
     "in one step that fails if tag or bypasses have changed since", 164473},
    {"handed-over-known-first", "before others have the file: a stranger may write from then on",
     297145},
    {"handed-over-committed", "Handed over(p) is durable before others have the file", 669},
    {"handed-over-void-when-synced",
     "handed over groups are void when a sync began after p, and not before", 167},
    {"handed-over-void-by-settled", "that of a settling, s > p", 669},
    {"handed-over-void-by-checkpoint", "or that of the checkpoint of write-through, C > p", 1997},
    {"handed-over-not-again",
     "who adopts a log does not write them again: the kernel may have newer bytes", 1997},
    {"handed-over-passed-when-synced",
     "the seat's checkpoint passes them after a sync that began after p", 243},
    {"handed-over-synced", "it is a sync of those files as well that are written back no more",
     243},
    {"handed-over-alone", "and passes no other group with them: the kernel may lack those", 5068},
    {"left-checkpoint-first",
     "the checkpoint of a seat that was left is durable before its segments are free", 1997},
    {"left-found-before-draw", "the seats that were left are found before C is drawn", 58566},
};

consteval Rule operator""_rule(const char* name, size_t length) {
  return kit::RuleNamed(kRules, {name, length});
}

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_RULES_H_
