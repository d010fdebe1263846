// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_TESTS_PROTOCOL_RULES_H_
#define NVCACHE_TESTS_PROTOCOL_RULES_H_

#include "tests/kit/rule.h"

namespace nvcache::protocol {

using kit::Rule;

inline constexpr kit::RuleText kRules[] = {
    // Passing.
    {"passing-before-look", "a process raises its passing count before it looks for the tag",
     3742102112},
    {"passing-until-end", "and lowers it when the real call is over"},
    {"owner-passes",
     "the count stays up while a write is logged: the lock may be taken away, and the call be "
     "late"},
    {"mapping-passes", "a mapping that can write passes as long as it is"},
    {"past-is-unknown", "a call past the log makes the file unknown"},
    {"past-exits", "it raises exits, though the file may be unknown: a sync may be under way"},
    {"past-under-lock", "it does so with the lock: a logged write may be under way"},
    {"settled-before-past", "it settles first if a group counts, or may come"},
    {"past-settles-uncounted",
     "its own count counts in that settling, which does not make the file known"},
    // Settling.
    {"settle-scans", "a file gets known only if no process was passing"},
    {"scan-before-sync", "settling looks at the counts before it syncs"},
    {"exits-before-scan", "and reads exits before it looks at them", 3742184976},
    {"known-in-one-step", "a file gets known in one step that fails if exits has changed"},
    {"settled-before-sync", "s is drawn before the sync begins"},
    {"exits-before-settled",
     "and after exits was read: each group below what is known later is older, or void",
     3742655890},
    {"state-after-settled",
     "tag and exits are the same after s was drawn: the tally may be another file's by now",
     3742258498},
    {"settled-committed", "a sync of an unknown file leaves a record"},
    {"settled-seen-when-committed", "others see the new bound when the record is durable"},
    {"settled-through-only",
     "the record says nothing of write-back groups that are not published: the kernel may lack "
     "these",
     3742265305},
    // Logged writes.
    {"lsn-under-lock", "a group's LSN is drawn with the lock of its file"},
    {"lsn-after-call", "and after the real call, so that a sync above it covers the call"},
    {"locked-before-commit", "a writer that has lost the lock does not commit"},
    {"locked-after-lsn", "it looks for that after the LSN was drawn"},
    {"lsn-raised", "the tally knows the LSN of a group"},
    {"lsn-raised-before-look",
     "before its writer looks whether it still has the lock: it may commit at any time after that"},
    // The lock is taken away.
    {"theft-is-unknown", "a lock that is taken away makes the file unknown"},
    {"theft-exits", "it raises exits"},
    // fsync.
    {"unknown-fsync-real", "fsync of an unknown file is real"},
    {"fsync-under-lock", "fsync looks with the lock whether it is known"},
    // The tag goes.
    {"removed-under-lock", "a tag is removed with the lock"},
    {"removed-not-pending", "when nothing of the file is pending"},
    {"removed-in-one-step", "in one step that fails if exits has changed"},
    {"state-before-removals-lock", "since before the lock was taken: it may be lost by now"},
    {"removal-exits", "which raises exits: the file may get a tag again"},
    // The checkpoint of write-through.
    {"checkpoint-before-sync", "the checkpoint is read before the sync begins"},
    {"checkpoint-twice", "others see it when both records have it"},
    {"one-checkpointer", "one process at a time moves it"},
    {"sync-moves-checkpoint",
     "sync and syncfs move it: a call that has not committed may be newer than a group"},
    {"dead-segments-wait",
     "a dead process's segments wait for it as well, though its groups are settled"},
    // Opening.
    {"opened-is-unknown",
     "a file that nobody has open is made unknown by who opens it: a stranger may have written"},
    {"opened-before-asked", "who opens it asks for the others when he has it open"},
    {"opened-before-said", "and says that he has it when it is unknown: others rely on that"},
    {"said-by-the-living", "what the dead said counts no more"},
    // Write-back.
    {"mark-before-probe",
     "a process marks a file as written back before it looks for others that have it open"},
    {"open-before-look", "a process looks for the mark after its open"},
    {"promoted-settled", "a file is settled before it is written back"},
    {"drain-writes", "a file is written out before others have it"},
    {"drain-syncs", "and synced before its groups count no more"},
    {"drain-moves-checkpoint", "and the seat's checkpoint is durable before others have it"},
    {"only-the-dead-are-adopted",
     "write-back is taken from the dead only: the living may be about to write old bytes"},
    {"one-adopter", "by one process, unless that is dead as well"},
    {"adopted-from-newest",
     "which begins at the newer of the two records of the seat's checkpoint"},
    // Written back no more, without a sync: published.
    {"published-after-writing",
     "p is drawn when the kernel has every byte: a sync above p covers them", 3742121360},
    {"published-tagged", "the tag is set before others have the file"},
    {"published-raises-lsn", "the tally knows p, as it knows the LSN of a write-through group"},
    {"published-lsn-before-tag", "before the tag is set: who removes it may have looked already",
     3742125262},
    {"published-scans", "the file gets known only if no process was passing", 3742345207},
    {"published-tag-before-scan", "which is looked at when the tag was set"},
    {"published-known-in-one-step", "in one step that fails if tag or exits have changed since"},
    {"published-known-first", "before others have the file: a stranger may write from then on"},
    {"published-committed", "Published(p) is durable before others have the file"},
    {"published-void-when-synced",
     "published groups are void when a sync began after p, and not before"},
    {"published-void-by-settled", "that of a settling, s > p"},
    {"published-void-by-checkpoint", "or that of the checkpoint of write-through, C > p"},
    {"published-not-again",
     "who adopts a log does not write them again: the kernel may have newer bytes"},
    {"published-passed-when-synced",
     "the seat's checkpoint passes them after a sync that began after p"},
    {"published-synced", "it is a sync of those files as well that are written back no more"},
    {"published-alone", "and passes no other group with them: the kernel may lack those"},
    {"left-checkpoint-first",
     "the checkpoint of a seat that was left is durable before its segments are free"},
    {"left-found-before-draw", "the seats that were left are found before C is drawn", 3742120178},
};

consteval Rule operator""_rule(const char* name, size_t length) {
  return kit::RuleNamed(kRules, {name, length});
}

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_RULES_H_
