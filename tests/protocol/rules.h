// SPDX-License-Identifier: BSD-3-Clause
//
// The rules of the protocol, each of which can be broken. A rule that no broken run betrays is
// either not needed, or not explored.
#ifndef NVCACHE_TESTS_PROTOCOL_RULES_H_
#define NVCACHE_TESTS_PROTOCOL_RULES_H_

#include <cstdint>

namespace nvcache::protocol {

enum class Rule : uint8_t {
  kPassingBeforeLook,
  kPassingUntilEnd,
  kOwnerPasses,
  kMappingPasses,
  kPastIsUnknown,
  kPastExits,
  kPastUnderLock,
  kSettledBeforePast,
  kPastSettlesUncounted,
  kSettleScans,
  kScanBeforeSync,
  kExitsBeforeScan,
  kKnownInOneStep,
  kSettledDrawnBeforeSync,
  kExitsBeforeSettled,
  kStateAfterSettled,
  kSettledCommitted,
  kSettledSeenWhenCommitted,
  kSettledThroughOnly,
  kLsnUnderLock,
  kLsnAfterCall,
  kLockedBeforeCommit,
  kLockedAfterLsn,
  kLsnRaised,
  kLsnRaisedBeforeLook,
  kTheftIsUnknown,
  kTheftExits,
  kUnknownFsyncIsReal,
  kFsyncUnderLock,
  kRemovedUnderLock,
  kRemovedNotPending,
  kRemovedInOneStep,
  kStateBeforeRemovalsLock,
  kRemovalExits,
  kCheckpointBeforeSync,
  kCheckpointTwice,
  kOneCheckpointer,
  kSyncMovesCheckpoint,
  kDeadSegmentsWait,
  kMarkBeforeProbe,
  kOpenBeforeLook,
  kPromotedSettled,
  kDrainWrites,
  kDrainSyncs,
  kDrainMovesCheckpoint,
  kOnlyTheDeadAreAdopted,
  kOneAdopter,
  kAdoptedFromNewest,
  kNumber,
};

struct RuleText {
  Rule rule;
  const char* name;
  const char* text;
};

inline constexpr RuleText kRules[] = {
    // Passing.
    {Rule::kPassingBeforeLook, "passing-before-look",
     "a process raises its passing count before it looks for the tag"},
    {Rule::kPassingUntilEnd, "passing-until-end", "and lowers it when the real call is over"},
    {Rule::kOwnerPasses, "owner-passes",
     "the count stays up while a write is logged: the lock may be taken away, and the call be "
     "late"},
    {Rule::kMappingPasses, "mapping-passes", "a mapping that can write passes as long as it is"},
    {Rule::kPastIsUnknown, "past-is-unknown", "a call past the log makes the file unknown"},
    {Rule::kPastExits, "past-exits",
     "it raises exits, though the file may be unknown: a sync may be under way"},
    {Rule::kPastUnderLock, "past-under-lock",
     "it does so with the lock: a logged write may be under way"},
    {Rule::kSettledBeforePast, "settled-before-past",
     "it settles first if a group counts, or may come"},
    {Rule::kPastSettlesUncounted, "past-settles-uncounted",
     "its own count counts in that settling, which does not make the file known"},
    // Settling.
    {Rule::kSettleScans, "settle-scans", "a file gets known only if no process was passing"},
    {Rule::kScanBeforeSync, "scan-before-sync", "settling looks at the counts before it syncs"},
    {Rule::kExitsBeforeScan, "exits-before-scan", "and reads exits before it looks at them"},
    {Rule::kKnownInOneStep, "known-in-one-step",
     "a file gets known in one step that fails if exits has changed"},
    {Rule::kSettledDrawnBeforeSync, "settled-before-sync", "s is drawn before the sync begins"},
    {Rule::kExitsBeforeSettled, "exits-before-settled",
     "and after exits was read: each group below what is known later is older, or void"},
    {Rule::kStateAfterSettled, "state-after-settled",
     "tag and exits are the same after s was drawn: the tally may be another file's by now"},
    {Rule::kSettledCommitted, "settled-committed", "a sync of an unknown file leaves a record"},
    {Rule::kSettledSeenWhenCommitted, "settled-seen-when-committed",
     "others see the new bound when the record is durable"},
    {Rule::kSettledThroughOnly, "settled-through-only",
     "the record says nothing of write-back groups: the kernel may lack these"},
    // Logged writes.
    {Rule::kLsnUnderLock, "lsn-under-lock", "a group's LSN is drawn with the lock of its file"},
    {Rule::kLsnAfterCall, "lsn-after-call",
     "and after the real call, so that a sync above it covers the call"},
    {Rule::kLockedBeforeCommit, "locked-before-commit",
     "a writer that has lost the lock does not commit"},
    {Rule::kLockedAfterLsn, "locked-after-lsn", "it looks for that after the LSN was drawn"},
    {Rule::kLsnRaised, "lsn-raised", "the tally knows the LSN of a group"},
    {Rule::kLsnRaisedBeforeLook, "lsn-raised-before-look",
     "before its writer looks whether it still has the lock: it may commit at any time after that"},
    // The lock is taken away.
    {Rule::kTheftIsUnknown, "theft-is-unknown", "a lock that is taken away makes the file unknown"},
    {Rule::kTheftExits, "theft-exits", "it raises exits"},
    // fsync.
    {Rule::kUnknownFsyncIsReal, "unknown-fsync-real", "fsync of an unknown file is real"},
    {Rule::kFsyncUnderLock, "fsync-under-lock", "fsync looks with the lock whether it is known"},
    // The tag goes.
    {Rule::kRemovedUnderLock, "removed-under-lock", "a tag is removed with the lock"},
    {Rule::kRemovedNotPending, "removed-not-pending", "when nothing of the file is pending"},
    {Rule::kRemovedInOneStep, "removed-in-one-step", "in one step that fails if exits has changed"},
    {Rule::kStateBeforeRemovalsLock, "state-before-removals-lock",
     "since before the lock was taken: it may be lost by now"},
    {Rule::kRemovalExits, "removal-exits", "which raises exits: the file may get a tag again"},
    // The checkpoint of write-through.
    {Rule::kCheckpointBeforeSync, "checkpoint-before-sync",
     "the checkpoint is read before the sync begins"},
    {Rule::kCheckpointTwice, "checkpoint-twice", "others see it when both records have it"},
    {Rule::kOneCheckpointer, "one-checkpointer", "one process at a time moves it"},
    {Rule::kSyncMovesCheckpoint, "sync-moves-checkpoint",
     "sync and syncfs move it: a call that has not committed may be newer than a group"},
    {Rule::kDeadSegmentsWait, "dead-segments-wait",
     "a dead process's segments wait for it as well, though its groups are settled"},
    // Write-back.
    {Rule::kMarkBeforeProbe, "mark-before-probe",
     "a process marks a file as written back before it looks for others that have it open"},
    {Rule::kOpenBeforeLook, "open-before-look", "a process looks for the mark after its open"},
    {Rule::kPromotedSettled, "promoted-settled", "a file is settled before it is written back"},
    {Rule::kDrainWrites, "drain-writes", "a file is written out before others have it"},
    {Rule::kDrainSyncs, "drain-syncs", "and synced before its groups count no more"},
    {Rule::kDrainMovesCheckpoint, "drain-moves-checkpoint",
     "and the seat's checkpoint is durable before others have it"},
    {Rule::kOnlyTheDeadAreAdopted, "only-the-dead-are-adopted",
     "write-back is taken from the dead only: the living may be about to write old bytes"},
    {Rule::kOneAdopter, "one-adopter", "by one process, unless that is dead as well"},
    {Rule::kAdoptedFromNewest, "adopted-from-newest",
     "which begins at the newer of the two records of the seat's checkpoint"},
};
static_assert(sizeof(kRules) / sizeof(kRules[0]) == static_cast<unsigned>(Rule::kNumber));

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_RULES_H_
