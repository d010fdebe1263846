// SPDX-License-Identifier: BSD-3-Clause
//
// The rules of names in the log, each of which can be broken. A rule that no broken run betrays is
// either not needed, or not explored.
#ifndef NVCACHE_TESTS_NAMES_RULES_H_
#define NVCACHE_TESTS_NAMES_RULES_H_

#include <cstddef>

namespace nvcache::names {

enum class Rule {
  kLoggedAfterCall,
  kIntentFirst,
  kOthersAreAnnounced,
  kIntentSaysWhat,
  kOutcomeCommitted,
  kLinkSaysFromWhere,
  kAsSaid,
  kSaysWhatIsGone,
  kSaysOfOthers,
  kKnownBeforeName,
  kKnownIfUnwritten,
  kSettledHasName,
  kFsyncUnderLock,
  kCheckpointUnderLock,
  kCheckpointBeforeSync,
  kLookedAtBeforeIntent,
  kLockedBeforeCommit,
  kLateOwnerSyncs,
  kThiefSyncs,
  kSyncsBesideTheLate,
  kDeathOfTheLateSyncs,
  kIntentNotDone,
  kIntentDoneIfShown,
  kRemovesWhatWasRemoved,
  kReplacesWhatWasRemoved,
  kStaysWhereItWasMoved,
  kMakesWhatIsWhole,
  kContinuesBeforeName,
  kContinuesFound,
  kSafeNameFirst,
  kLastNameStays,
  kSyncedBeforeFreed,
  kNumber,
};

struct RuleText {
  Rule rule;
  const char* name;
  const char* text;
};

inline constexpr RuleText kRules[] = {
    // Calls.
    {Rule::kLoggedAfterCall, "logged-after-call",
     "what makes a name is logged when the kernel has done it"},
    {Rule::kIntentFirst, "intent-first", "what destroys a name is announced before the call"},
    {Rule::kOthersAreAnnounced, "others-are-announced",
     "and so is a link, and a rename to a free name: recovery has to know both names"},
    {Rule::kIntentSaysWhat, "intent-says-what", "and says which file loses the name"},
    {Rule::kOutcomeCommitted, "outcome-committed", "its outcome is committed before it returns"},
    {Rule::kLinkSaysFromWhere, "link-says-from-where",
     "a link says by which name the file was found: the log knows that one, too"},
    {Rule::kSaysWhatIsGone, "says-what-is-gone",
     "who removes a name says whether the file has another one"},
    {Rule::kSaysOfOthers, "says-of-others",
     "a record says whether the file has names that the log may not know"},
    {Rule::kAsSaid, "as-said",
     "if the call has met other files than it looked up, nothing is committed: it syncs"},
    {Rule::kKnownBeforeName, "known-before-name",
     "no rename or link before all bytes of the file are in the log or on the disk"},
    {Rule::kKnownIfUnwritten, "known-if-unwritten",
     "a new file is known unless somebody has written to it before its record"},
    {Rule::kSettledHasName, "settled-has-name",
     "a file that has no name after its sync is settled when the call that took it is over"},
    {Rule::kFsyncUnderLock, "fsync-under-lock",
     "an fsync that is elided passes through the lock of names"},
    // The checkpoint.
    {Rule::kCheckpointUnderLock, "checkpoint-under-lock",
     "C is drawn under the lock of names: no call is between its intent and its outcome"},
    {Rule::kCheckpointBeforeSync, "checkpoint-before-sync", "and before the sync"},
    // The lock is taken from a process that has died, or seems to have.
    {Rule::kLookedAtBeforeIntent, "looked-at-before-intent",
     "who has lost the lock while it synced a file begins anew"},
    {Rule::kLockedBeforeCommit, "locked-before-commit", "who has lost the lock commits nothing"},
    {Rule::kLateOwnerSyncs, "late-owner-syncs", "but moves the checkpoint before it returns"},
    {Rule::kThiefSyncs, "thief-syncs", "who takes the lock from another one moves the checkpoint"},
    {Rule::kSyncsBesideTheLate, "syncs-beside-the-late",
     "while one that has lost the lock may still make its call, nobody logs: all sync"},
    {Rule::kDeathOfTheLateSyncs, "death-of-the-late-syncs",
     "and once more when that one has died, for it may have made it"},
    // Recovery.
    {Rule::kIntentNotDone, "intent-not-done",
     "an intent without its outcome is not done: the names are as they were"},
    {Rule::kIntentDoneIfShown, "intent-done-if-shown",
     "but it is if the file that it destroys is nowhere, and cannot be made again"},
    {Rule::kRemovesWhatWasRemoved, "removes-what-was-removed",
     "a name is removed only if it leads to a file that the log removed from it"},
    {Rule::kReplacesWhatWasRemoved, "replaces-what-was-removed",
     "and only then given to another file"},
    {Rule::kStaysWhereItWasMoved, "stays-where-it-was-moved",
     "a file that has only names which the log does not know stays there"},
    {Rule::kMakesWhatIsWhole, "makes-what-is-whole",
     "a file is made again only if the log has all of its bytes"},
    {Rule::kContinuesBeforeName, "continues-before-name",
     "the log says that X continues as Y before Y has a name of X"},
    {Rule::kContinuesFound, "continues-found", "and the next recovery takes Y for X"},
    {Rule::kSafeNameFirst, "safe-name-first",
     "a file whose name is given away has another one before that"},
    {Rule::kLastNameStays, "last-name-stays",
     "no file loses its last name but one that the log has removed altogether"},
    {Rule::kSyncedBeforeFreed, "synced-before-freed",
     "the checkpoint passes what recovery did when that is synced"},
};
static_assert(sizeof(kRules) / sizeof(kRules[0]) == static_cast<size_t>(Rule::kNumber));

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_RULES_H_
