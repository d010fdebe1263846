// SPDX-License-Identifier: BSD-3-Clause
//
// The rules of the protocol, each of which can be broken. A rule that no broken run betrays is
// either not needed, or not explored.
#ifndef NVCACHE_TESTS_PROTOCOL_RULES_H_
#define NVCACHE_TESTS_PROTOCOL_RULES_H_

#include <cstdint>

namespace nvcache::protocol {

enum class Rule : uint8_t {
  kLsnUnderLock,
  kLsnAfterCall,
  kEpochCheckedBeforeCommit,
  kEpochCheckedAfterLsn,
  kStolenIsUnknown,
  kLateOwnerIsPast,
  kSettledDrawnBeforeSync,
  kSettledCommitted,
  kSettledBeforePassing,
  kLostSettledBeforePassing,
  kPassingIsPast,
  kPastIsCounted,
  kUnknownFsyncIsReal,
  kFsyncUnderLock,
  kCheckpointDrawnBeforeSync,
  kCheckpointTwice,
  kCutHasBound,
  kBoundBeforeLsn,
  kMarkBeforeProbe,
  kOpenBeforeLook,
  kPromotedUnderLock,
  kUnpublishedHasBound,
  kOrphanHasBound,
  kOrphanIsPublished,
  kOnlyTheDeadAreRevoked,
  kOnlyTheDeadAreReplaced,
  kNumber,
};

struct RuleText {
  Rule rule;
  const char* name;
  const char* text;
};

inline constexpr RuleText kRules[] = {
    {Rule::kLsnUnderLock, "lsn-under-lock", "a group's LSN is drawn under the lock of its file"},
    {Rule::kLsnAfterCall, "lsn-after-call",
     "a write draws its LSN after the real call, so that a checkpoint above it has synced the "
     "call"},
    {Rule::kEpochCheckedBeforeCommit, "epoch-before-commit",
     "a writer that has lost the lock does not commit"},
    {Rule::kEpochCheckedAfterLsn, "epoch-after-lsn",
     "the epoch of the lock is looked at after the LSN was drawn"},
    {Rule::kStolenIsUnknown, "stolen-is-unknown",
     "a lock that is taken away makes its file unknown"},
    {Rule::kLateOwnerIsPast, "late-owner-past",
     "a process whose lock was taken away counts as past the log until it says so, or is dead"},
    {Rule::kSettledDrawnBeforeSync, "settled-before-sync",
     "the bound of settled is drawn before the sync begins"},
    {Rule::kSettledCommitted, "settled-committed",
     "a sync of an unknown file ends with a settled record"},
    {Rule::kSettledBeforePassing, "settled-before-passing",
     "no write goes past the log while its file has groups that count"},
    {Rule::kLostSettledBeforePassing, "lost-settled-before-passing",
     "nor while a process whose lock was taken away may still commit one"},
    {Rule::kPassingIsPast, "passing-is-past",
     "a process says that it goes past the log before it does"},
    {Rule::kPastIsCounted, "past-counted",
     "a process that was past the log and comes back is counted, for syncs that began before"},
    {Rule::kUnknownFsyncIsReal, "unknown-fsync-real", "fsync of an unknown file is real"},
    {Rule::kFsyncUnderLock, "fsync-under-lock", "an elided fsync passes through the lock"},
    {Rule::kCheckpointDrawnBeforeSync, "checkpoint-before-sync",
     "the checkpoint is drawn before the sync begins"},
    {Rule::kCheckpointTwice, "checkpoint-twice",
     "a file is forgotten, and room used again, only when both copies have the checkpoint"},
    {Rule::kCutHasBound, "cut-has-bound",
     "a truncation, which commits before its call, holds the checkpoint back until the call was "
     "made"},
    {Rule::kBoundBeforeLsn, "bound-before-lsn", "that bound is published before its LSN is drawn"},
    {Rule::kMarkBeforeProbe, "mark-before-probe",
     "a process marks a file as written back before it looks for others that have it open"},
    {Rule::kOpenBeforeLook, "open-before-look", "a process looks for the mark after its open"},
    {Rule::kPromotedUnderLock, "promoted-under-lock",
     "a file is written back only if its lock was not taken away while others were looked for"},
    {Rule::kUnpublishedHasBound, "unpublished-has-bound",
     "a group that is not published holds the checkpoint back, from before its LSN"},
    {Rule::kOrphanHasBound, "orphan-has-bound", "so does one that a dead process has left"},
    {Rule::kOrphanIsPublished, "orphan-is-published",
     "what a dead process has left is published before anybody else has the file"},
    {Rule::kOnlyTheDeadAreRevoked, "only-the-dead-are-revoked",
     "write-back is taken away from the dead only: the living may be about to publish old bytes"},
    {Rule::kOnlyTheDeadAreReplaced, "only-the-dead-are-replaced",
     "so is the publishing of what another one has left"},
};
static_assert(sizeof(kRules) / sizeof(kRules[0]) == static_cast<unsigned>(Rule::kNumber));

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_RULES_H_
