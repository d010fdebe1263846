// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_TESTS_NAMES_RULES_H_
#define NVCACHE_TESTS_NAMES_RULES_H_

#include "tests/kit/rule.h"

namespace nvcache::names {

using kit::Rule;

inline constexpr kit::RuleText kRules[] = {
    // Calls.
    {"logged-after-call", "what makes a name is logged when the kernel has done it", 4},
    {"intent-first", "what destroys a name is announced before the call", 4},
    {"others-are-announced",
     "and so is a link, and a rename to a free name: recovery has to know both names", 254},
    {"intent-says-what", "and says which file loses the name", 1},
    {"outcome-committed", "its outcome is committed before it returns", 1},
    {"link-says-from-where",
     "a link says by which name the file was found: the log knows that one, too", 5},
    {"says-what-is-gone", "who removes a name says whether the file has another one", 106},
    {"says-of-others", "a record says whether the file has names that the log may not know", 5},
    {"as-said", "if the call has met other files than it looked up, nothing is committed: it syncs",
     507},
    {"known-before-name",
     "no rename or link before all bytes of the file are in the log or on the disk", 66},
    {"removed-is-unknown",
     "nothing is logged of a file that has lost its last name, once that is committed", 1032},
    {"known-if-unwritten",
     "a new file is known unless somebody has written to it before its record", 1002},
    {"settled-has-name",
     "a file that has no name after its sync is settled when the call that took it is over", 18317},
    {"fsync-under-lock", "an fsync that is elided passes through the lock of names", 9},
    // The checkpoint.
    {"checkpoint-under-lock",
     "C is drawn under the lock of names: no call is between its intent and its outcome", 153},
    {"checkpoint-before-sync", "and before the sync", 924},
    // The lock is taken from a process that has died, or seems to have.
    {"looked-at-before-intent", "who has lost the lock while it synced a file begins anew", 24432},
    {"locked-before-commit", "who has lost the lock commits nothing", 160},
    {"late-owner-syncs", "but moves the checkpoint before it returns", 3},
    {"thief-syncs", "who takes the lock from another one moves the checkpoint", 29},
    {"syncs-beside-the-late",
     "while one that has lost the lock may still make its call, nobody logs: all sync", 908},
    {"death-of-the-late-syncs", "and once more when that one has died, for it may have made it",
     40556},
    // Recovery.
    {"intent-not-done", "an intent without its outcome is not done: the names are as they were", 1},
    {"intent-done-if-shown",
     "but it is if the file that it destroys is nowhere, and cannot be made again", 3},
    {"removes-what-was-removed",
     "a name is removed only if it leads to a file that the log removed from it", 1478},
    {"replaces-what-was-removed", "and only then given to another file", 25},
    {"stays-where-it-was-moved",
     "a file that has only names which the log does not know stays there", 25},
    {"makes-what-is-whole", "a file is made again only if the log has all of its bytes", 1},
    {"continues-before-name", "the log says that X continues as Y before Y has a name of X", 3},
    {"continues-found", "and the next recovery takes Y for X", 4},
    {"safe-name-first", "a file whose name is given away has another one before that", 3},
    {"last-name-stays", "no file loses its last name but one that the log has removed altogether",
     100},
    {"synced-before-freed", "the checkpoint passes what recovery did when that is synced", 3},
};

consteval Rule operator""_rule(const char* name, size_t length) {
  return kit::RuleNamed(kRules, {name, length});
}

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_RULES_H_
