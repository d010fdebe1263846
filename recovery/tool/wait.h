// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache run --wait: the program as a child, its end, and then the disk.
#ifndef NVCACHE_RECOVERY_TOOL_WAIT_H_
#define NVCACHE_RECOVERY_TOOL_WAIT_H_

#include <atomic>
#include <functional>
#include <string>

namespace nvcache::tool {

// `become` makes the program of a child, or throws there. Signals that others send to this process
// are passed on to it, and when the terminal stops it, this process stops as well. Its wait status.
int RunAsChild(const std::function<void()>& become);

// Until nothing is pending in the pool that was by now, in whatever process. A Failure if something
// cannot be brought to the disk. False: there is no such pool that can be looked at. What the dead
// have left is recovered here, or it is `theirs` who have the pool.
enum class Dead { kOurs, kTheirs };
// `ends`: once it is true nobody wants to know any more, and the answer is no.
bool AwaitDisk(const std::string& pool, Dead dead = Dead::kOurs,
               const std::atomic<bool>* ends = nullptr);

// The exit status, or the signal, with which that program ended.
int EndAs(int wait_status);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_WAIT_H_
