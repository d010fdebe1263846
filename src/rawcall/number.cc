// SPDX-License-Identifier: BSD-3-Clause
#include "src/rawcall/number.h"

#include <sys/syscall.h>

namespace nvcache::rawcall {

namespace {

constexpr uint16_t kHarmless[] = {
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_rt_sigsuspend,
    SYS_sigaltstack,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_pause,
    SYS_alarm,
    SYS_getitimer,
    SYS_setitimer,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_getoverrun,
    SYS_timer_delete,
    SYS_clock_settime,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_gettimeofday,
    SYS_settimeofday,
    SYS_time,
    SYS_times,
    SYS_sched_yield,
    SYS_sched_setparam,
    SYS_sched_getparam,
    SYS_sched_setscheduler,
    SYS_sched_getscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval,
    SYS_sched_setaffinity,
    SYS_sched_getaffinity,
    SYS_sched_setattr,
    SYS_sched_getattr,
    SYS_getpriority,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_ioprio_get,
    SYS_futex,
    449 /* futex_waitv */,
    454 /* futex_wake */,
    455 /* futex_wait */,
    456 /* futex_requeue */,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_set_tid_address,
    SYS_restart_syscall,
    SYS_rseq,
    SYS_getcpu,
    SYS_getrandom,
    SYS_membarrier,
    SYS_exit,
    SYS_wait4,
    SYS_waitid,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getpgrp,
    SYS_getpgid,
    SYS_setpgid,
    SYS_getsid,
    SYS_setsid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_capget,
    SYS_getrlimit,
    SYS_getrusage,
    SYS_umask,
    SYS_arch_prctl,
    SYS_uname,
    SYS_sysinfo,
    SYS_poll,
    SYS_epoll_wait,
    SYS_epoll_pwait,
    SYS_madvise,
    SYS_mincore,
    SYS_mlock,
    SYS_munlock,
    SYS_brk,
    SYS_mbind,
    SYS_set_mempolicy,
    SYS_get_mempolicy,
    SYS_migrate_pages,
    SYS_move_pages,
    426 /* io_uring_enter */,
    427 /* io_uring_register */,
    SYS_perf_event_open,
};

// An operand of one byte is a part of EAX, without REX, if its number is 0 (AL) or 4 (AH).
bool IsInEax(unsigned number, bool extended, bool byte, const Instruction& i) {
  if (extended) return false;
  return number == 0 || (byte && i.rex == 0 && number == 4);
}
bool RegIsEax(const Instruction& i, bool byte = false) {
  return IsInEax(i.reg(), i.extends_reg(), byte, i);
}
bool RmIsEax(const Instruction& i, bool byte = false) {
  return i.mod() == 3 && IsInEax(i.rm(), i.extends_rm(), byte, i);
}

// The first quarter: ADD to XOR change their destination, CMP does not.
bool ArithmeticChanges(const Instruction& i) {
  if (i.opcode >= 0x38) return false;
  const bool byte = (i.opcode & 1) == 0;
  switch (i.opcode & 7) {
    case 0:
    case 1:
      return RmIsEax(i, byte);
    case 2:
    case 3:
      return RegIsEax(i, byte);
    default:
      return true;  // AL or EAX and an immediate
  }
}

// An opcode of one byte, from 40 on, leaves EAX, whatever its operands are.
bool OneLeaves(uint8_t op) {
  if (op >= 0x70 && op <= 0x7f) return true;  // conditional jumps
  if (op >= 0x50 && op <= 0x57) return true;  // push
  if (op >= 0xd8 && op <= 0xde) return true;  // x87
  switch (op) {
    case 0x68:
    case 0x6a:
    case 0x84:
    case 0x85:
    case 0x99:  // cqo
    case 0x9c:
    case 0x9d:
    case 0xa4:
    case 0xa5:
    case 0xa6:
    case 0xa7:
    case 0xa8:
    case 0xa9:
    case 0xaa:
    case 0xab:
    case 0xc9:
    case 0xf5:
    case 0xf8:
    case 0xf9:
    case 0xfc:
    case 0xfd:
      return true;
    default:
      return false;
  }
}

// An opcode of one byte, from 40 on, may change EAX, as one may that nobody has thought about.
bool OneChanges(const Instruction& i) {
  const uint8_t op = i.opcode;
  const bool byte = (op & 1) == 0;
  if (OneLeaves(op)) return false;
  if (op >= 0x58 && op <= 0x5f) return (op & 7) == 0 && !i.extends_rm();
  if (op >= 0xb0 && op <= 0xb7) {
    return !i.extends_rm() && ((op & 7) == 0 || (i.rex == 0 && (op & 7) == 4));
  }
  if (op >= 0xb8 && op <= 0xbf) return (op & 7) == 0 && !i.extends_rm();
  switch (op) {
    case 0x63:
    case 0x69:
    case 0x6b:
    case 0x8b:
    case 0x8d:
      return RegIsEax(i);
    case 0x8a:
      return RegIsEax(i, true);
    case 0x80:
    case 0x81:
    case 0x83:
      return i.reg() != 7 && RmIsEax(i, byte);
    case 0x88:
    case 0x89:
    case 0x8f:
    case 0xc0:
    case 0xc1:
    case 0xc6:
    case 0xc7:
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
    case 0xfe:
      return RmIsEax(i, byte);
    case 0x86:
    case 0x87:
      return RmIsEax(i, byte) || RegIsEax(i, byte);
    case 0xf6:
    case 0xf7:
      return i.reg() >= 4 || (i.reg() >= 2 && RmIsEax(i, byte));
    case 0xff:
      return i.reg() != 6 && (i.reg() >= 2 || RmIsEax(i));
    case 0x90:
      return i.extends_rm();
    default:
      return true;
  }
}

bool Two0fChanges(const Instruction& i) {
  const uint8_t op = i.opcode;
  if (op >= 0x40 && op <= 0x4f) return RegIsEax(i);       // cmov
  if (op >= 0x80 && op <= 0x8f) return false;             // conditional jumps
  if (op >= 0x90 && op <= 0x9f) return RmIsEax(i, true);  // set
  if (op >= 0xc9 && op <= 0xcf) return false;             // bswap
  if ((op >= 0x10 && op <= 0x17) || (op >= 0x51 && op <= 0x76) || op == 0x7f) return false;
  if (op >= 0xd1 && op <= 0xfe) return op == 0xd7 && RegIsEax(i);
  switch (op) {
    case 0x0b:  // ud2
    case 0x0d:
    case 0x18:
    case 0x1e:  // endbr64
    case 0x1f:  // nop
    case 0x28:
    case 0x29:
    case 0x2a:
    case 0x2b:
    case 0x2e:
    case 0x2f:
    case 0xa3:
    case 0xae:  // fences
    case 0xc2:
    case 0xc3:
    case 0xc6:
      return false;
    case 0x2c:
    case 0x2d:
    case 0x50:
    case 0xaf:
    case 0xb6:
    case 0xb7:
    case 0xb8:
    case 0xbc:
    case 0xbd:
    case 0xbe:
    case 0xbf:
      return RegIsEax(i);
    case 0x7e:
    case 0xa4:
    case 0xa5:
    case 0xab:
    case 0xac:
    case 0xad:
    case 0xb3:
    case 0xbb:
      return RmIsEax(i);
    case 0xba:
      return i.reg() != 4 && RmIsEax(i);
    case 0xc8:
      return !i.extends_rm();
    default:
      return true;
  }
}

bool Changes(const Instruction& i) {
  switch (i.map) {
    case OpcodeMap::kOne:
      return i.opcode < 0x40 ? ArithmeticChanges(i) : OneChanges(i);
    case OpcodeMap::k0f:
      return Two0fChanges(i);
    default:
      // A register of vectors, as a rule; some of general use.
      return !i.has_modrm || i.reg() == 0 || (i.mod() == 3 && i.rm() == 0);
  }
}

// mov $n, %eax in both forms, and xor %eax, %eax.
bool Sets(const Instruction& i, int64_t* value) {
  if (i.map != OpcodeMap::kOne || i.small) return false;
  if (i.opcode == 0xb8 && !i.extends_rm()) {
    *value = i.immediate;
    return true;
  }
  if (i.opcode == 0xc7 && i.reg() == 0 && RmIsEax(i)) {
    *value = i.immediate;
    return true;
  }
  if ((i.opcode == 0x31 || i.opcode == 0x33) && RmIsEax(i) && RegIsEax(i)) {
    *value = 0;
    return true;
  }
  return false;
}

// mov %reg, %eax in both forms, from a kept register.
unsigned KeptSource(const Instruction& i) {
  if (i.map != OpcodeMap::kOne || i.small || i.mod() != 3) return kNoRegister;
  unsigned number = kNoRegister;
  if (i.opcode == 0x89 && RmIsEax(i)) number = i.reg() | (i.extends_reg() ? 8u : 0u);
  if (i.opcode == 0x8b && RegIsEax(i)) number = i.rm() | (i.extends_rm() ? 8u : 0u);
  return IsKept(number) ? number : kNoRegister;
}

}  // namespace

bool IsHarmless(int64_t number) {
  for (const uint16_t each : kHarmless) {
    if (number == each) return true;
  }
  return false;
}

void Accumulator::Step(const Instruction& i) {
  const bool one = i.map == OpcodeMap::kOne;
  const int64_t pushed = pushed_;
  pushed_ = one && (i.opcode == 0x6a || i.opcode == 0x68) ? i.immediate : kUnknownNumber;
  if (int64_t value; Sets(i, &value)) {
    value_ = value;
    source_ = kNoRegister;
  } else if (one && i.opcode == 0x58 && !i.extends_rm()) {
    value_ = pushed;
    source_ = kNoRegister;
  } else if (Changes(i)) {
    value_ = kUnknownNumber;
    source_ = KeptSource(i);
  }
}

// ------------------------------------------------------------------------------ A kept register

// An operand of one byte without REX: 7 is BH.
bool KeptConstant::Is(unsigned number, const Instruction& i) const {
  const bool set = i.opcode >= 0x90 && i.opcode <= 0x9f;
  const bool byte =
      i.map == OpcodeMap::kOne ? (i.opcode & 1) == 0 : set || i.opcode == 0xb0 || i.opcode == 0xc0;
  return number == number_ || (number_ == 3 && number == 7 && i.rex == 0 && byte);
}
bool KeptConstant::IsReg(const Instruction& i) const {
  return Is(i.reg() | (i.extends_reg() ? 8u : 0u), i);
}
bool KeptConstant::IsRm(const Instruction& i) const {
  return i.mod() == 3 && Is(i.rm() | (i.extends_rm() ? 8u : 0u), i);
}

bool KeptConstant::Step(const Instruction& i) {
  const unsigned in_opcode = (i.opcode & 7u) | (i.extends_rm() ? 8u : 0u);
  const bool one = i.map == OpcodeMap::kOne;
  if (one && i.opcode >= 0xb8 && i.opcode <= 0xbf && !i.small && in_opcode == number_) {
    if (value_ != kUnknownNumber && value_ != i.immediate) return false;
    value_ = i.immediate;
    return true;
  }
  return !MayChange(i);
}

// An instruction may change it that is not known to leave it. A pop brings back what the function's
// callers have there, at the end.
bool KeptConstant::MayChange(const Instruction& i) const {
  const unsigned in_opcode = (i.opcode & 7u) | (i.extends_rm() ? 8u : 0u);
  const uint8_t op = i.opcode;
  if (i.map == OpcodeMap::kOne) {
    if (op == 0xb7 && i.rex == 0) return number_ == 3;  // mov $n, %bh
    if ((op >= 0xb0 && op <= 0xbf) || (op >= 0x91 && op <= 0x97)) return in_opcode == number_;
    if (!i.has_modrm) return op == 0xc8;  // enter
    const bool tests = op == 0x84 || op == 0x85 || (op >= 0x38 && op <= 0x3b);
    const bool reads_reg = tests || op == 0x88 || op == 0x89;
    const bool reads_rm = tests || op == 0x8a || op == 0x8b || op == 0x63;
    const bool compares = (op == 0x80 || op == 0x81 || op == 0x83) && i.reg() == 7;
    const bool has_reg = op < 0xc0 && (op < 0x80 || op > 0x83);  // else it is a part of the opcode
    return (has_reg && IsReg(i) && !reads_reg) || (IsRm(i) && !reads_rm && !compares);
  }
  if (i.map == OpcodeMap::k0f) {
    if (op == 0xa2 || op == 0xc7) return number_ == 3;  // cpuid, cmpxchg16b
    if (op >= 0xc8 && op <= 0xcf) return in_opcode == number_;
    return i.has_modrm && (IsReg(i) || IsRm(i));
  }
  // The rest is of vectors, as a rule; how they extend a number is not looked at.
  return i.has_modrm && (i.reg() == (number_ & 7) || (i.mod() == 3 && i.rm() == (number_ & 7)));
}

}  // namespace nvcache::rawcall
