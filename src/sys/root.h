// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a path means the same to a process outside of this one's root.
#ifndef NVCACHE_SYS_ROOT_H_
#define NVCACHE_SYS_ROOT_H_

namespace nvcache::sys {

// At the program's start: remembers the root.
void RememberRoot();

// Before AtMachineRoot is asked: looks at the root once more. One call at a time.
void ExamineRoot();

// False in a chroot: there, or anywhere that is not the root of the first process, if that may be
// looked at; and when the root is not the remembered one any more. One system call.
bool AtMachineRoot();

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_ROOT_H_
