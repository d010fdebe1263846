// SPDX-License-Identifier: BSD-3-Clause
//
// A process that gives up rights, by every call there is, keeps nothing of a pool that will be
// recovered with them: it is mapped nowhere, no descriptor leads to it, and it does not come back.
// Each way is gone by a child of its own. Without a pool the output is the same.
//
//   rights DIRECTORY PLUGIN
#define _GNU_SOURCE
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>

#include "libc.h"
#include "tests/kit/program.h"

int capset(struct __user_cap_header_struct* header, const struct __user_cap_data_struct* data);

enum { kUser = 54321, kGroup = 54322 };

// In musl, whatever libc does in all threads at once counts as a loss.
#ifdef __GLIBC__
enum { kSeen = 1 };
#else
enum { kSeen = 0 };
#endif

// ---------------------------------------------------------------------------------------------
// What the process has of the pool.

// Opened while the rights are there: afterwards /proc may not be read.
static FILE* g_maps;
static int g_descriptors = -1;

static int mappings(const char* pool) {
  char line[4400];
  int count = 0;
  rewind(g_maps);
  fflush(g_maps);
  while (fgets(line, sizeof(line), g_maps) != NULL) count += strstr(line, pool) != NULL;
  return count;
}

static int descriptors(const char* pool) {
  char name[16], target[4096];
  int count = 0;
  for (int fd = 0; fd < 4100; ++fd) {
    snprintf(name, sizeof(name), "%d", fd);
    const ssize_t n = readlinkat(g_descriptors, name, target, sizeof(target) - 1);
    if (n < 0) continue;
    target[n] = '\0';
    count += strcmp(target, pool) == 0;
  }
  return count;
}

static int has_pool(void) {
  const char* pool = getenv("NVCACHE_POOL");
  return pool == NULL ? 0 : mappings(pool) + descriptors(pool);
}

// "yes", if there is a pool at all.
static const char* as_wished(int wanted) {
  if (getenv("NVCACHE_POOL") == NULL) return "yes";
  return (has_pool() != 0) == wanted ? "yes" : "NO";
}

// ---------------------------------------------------------------------------------------------
// The ways. 0, or what the call gave.

// The capabilities that remain effective, of the lower 32.
static long set_effective(uint32_t remain, int by_number) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) != 0) return -1;
  data[0].effective &= remain;
  return by_number ? syscall(SYS_capset, &header, data) : capset(&header, data);
}

static gid_t g_team[] = {kGroup};

static long restrict_self(void) {
  struct {
    uint64_t files;
  } rules = {1u << 1};  // LANDLOCK_ACCESS_FS_WRITE_FILE
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const long fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
  if (fd < 0) return 0;  // a kernel without it: nothing is given up, and nothing has to go
  const long result = syscall(SYS_landlock_restrict_self, fd, 0);
  close((int)fd);
  return result;
}

static void* set_in_thread(void* unused) {
  (void)unused;
  return (void*)syscall(SYS_setresuid, -1, kUser, -1);  // of this thread alone
}
static long by_thread(void) { return (long)in_thread(set_in_thread, NULL); }

#define WAY(name, call, keeps) \
  static long name(void) { return call; }
#define WAYS                                                           \
  WAY(do_setuid, setuid(kUser), 0)                                     \
  WAY(do_seteuid, seteuid(kUser), 0)                                   \
  WAY(do_setreuid, setreuid(-1, kUser), 0)                             \
  WAY(do_setresuid, setresuid(-1, kUser, -1), 0)                       \
  WAY(do_setfsuid, setfsuid(kUser), 0)                                 \
  WAY(do_setgid, setgid(kGroup), 0)                                    \
  WAY(do_setegid, setegid(kGroup), 0)                                  \
  WAY(do_setregid, setregid(-1, kGroup), 0)                            \
  WAY(do_setresgid, setresgid(-1, kGroup, -1), 0)                      \
  WAY(do_setfsgid, setfsgid(kGroup), 0)                                \
  WAY(do_setgroups, setgroups(1, g_team), 0)                           \
  WAY(do_initgroups, initgroups("root", kGroup), 0)                    \
  WAY(do_capset, set_effective(0, 0), 0)                               \
  WAY(do_capset_some, set_effective(~(1u << CAP_DAC_OVERRIDE), 0), 0)  \
  WAY(do_unshare, unshare(CLONE_NEWUSER), 0)                           \
  WAY(number_setuid, syscall(SYS_setuid, kUser), 0)                    \
  WAY(number_setreuid, syscall(SYS_setreuid, -1, kUser), 0)            \
  WAY(number_setresuid, syscall(SYS_setresuid, -1, kUser, kUser), 0)   \
  WAY(number_setfsuid, syscall(SYS_setfsuid, kUser), 0)                \
  WAY(number_setgid, syscall(SYS_setgid, kGroup), 0)                   \
  WAY(number_setregid, syscall(SYS_setregid, -1, kGroup), 0)           \
  WAY(number_setresgid, syscall(SYS_setresgid, -1, kGroup, kGroup), 0) \
  WAY(number_setfsgid, syscall(SYS_setfsgid, kGroup), 0)               \
  WAY(number_setgroups, syscall(SYS_setgroups, 1, g_team), 0)          \
  WAY(number_capset, set_effective(0, 1), 0)                           \
  WAY(number_unshare, syscall(SYS_unshare, CLONE_NEWUSER), 0)          \
  WAY(number_landlock, restrict_self(), 0)                             \
  WAY(same_setuid, setuid(getuid()), kSeen)                            \
  WAY(same_setreuid, setreuid(-1, -1), kSeen)                          \
  WAY(same_setresgid, setresgid(getgid(), -1, getegid()), kSeen)       \
  WAY(same_setfsuid, setfsuid(-1), 1)                                  \
  WAY(bounding_set, prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0), 1)
WAYS
#undef WAY

    static const struct {
  const char* name;
  long (*go)(void);
  int keeps, returns;
} kWays[] = {
#define WAY(name, call, keeps) {#name, name, keeps, strncmp(#name, "same", 4) == 0 || keeps},
    WAYS
#undef WAY
};

// ---------------------------------------------------------------------------------------------

static void write_file(int fd, const char* text) {
  if (write(fd, text, strlen(text)) < 0) printf("  write: %s\n", strerrorname_np(errno));
}

static void look(void) {
  g_maps = fopen("/proc/self/maps", "re");
  g_descriptors = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
  setvbuf(g_maps, NULL, _IONBF, 0);
}

// `keeps`: the call takes nothing. `returns`: nor has this thread lost anything.
static void go(const char* name, long (*way)(void), int keeps, int returns) {
  char second[64];
  snprintf(second, sizeof(second), "%s.2", name);
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
  const int other = open(second, O_RDWR | O_CREAT | O_TRUNC, 0666);
  close(other);
  write_file(fd, "before ");
  look();
  printf("%s: cached %s", name, as_wished(1));
  const long result = way();
  printf(", gives %ld, gone %s", result, as_wished(keeps));
  write_file(fd, "after");
  char back[16];
  printf(", reads %zd", pread(fd, back, sizeof(back), 0));
  const int again = open(second, O_RDWR);  // may not be allowed by now
  if (again >= 0) write_file(again, "again");
  // A call that fails, as in a chroot, has taken nothing.
  printf(", then %s\n", as_wished(returns || result == -1));
  close(again);
  close(fd);
}

// There and back.
static void check_return(void) {
  const int fd = created("return");
  write_file(fd, "before ");
  look();
  printf("return: cached %s", as_wished(1));
  for (int i = 0; i < 3; ++i) {
    printf(", %d", seteuid(kUser));
    printf(" gone %s", as_wished(0));
    printf(", %d", seteuid(getuid()));
    const int other = open("return.2", O_RDWR | O_CREAT, 0644);
    write_file(other, "back");
    printf(" back %s", as_wished(1));
    close(other);
  }
  putchar('\n');
  close(fd);
}

// Threads that open and write all the time have nothing in the moment in which it matters.
static volatile int g_stop;
static void* write_much(void* number) {
  char name[32];
  snprintf(name, sizeof(name), "busy.%ld", (long)number);
  while (!g_stop) {
    const int fd = open(name, O_RDWR | O_CREAT, 0666);
    if (fd < 0) continue;  // the other user may not
    if (pwrite(fd, "busy", 4, 0) != 4) printf("busy: %s\n", strerrorname_np(errno));
    close(fd);
  }
  return NULL;
}

static void check_busy(void) {
  pthread_t threads[3];
  look();
  for (long i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, write_much, (void*)i);
  const char* pool = getenv("NVCACHE_POOL") != NULL ? getenv("NVCACHE_POOL") : "/no pool";
  int kept = 0, failed = 0;
  for (int i = 0; i < 30; ++i) {
    failed += seteuid(kUser) != 0;
    kept += mappings(pool);
    failed += seteuid(getuid()) != 0;
  }
  g_stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  printf("busy: failed %d, kept %d\n", failed, kept);
}

// A child has what its parent had mapped: nothing.
static void check_child(void) {
  const int fd = created("child");
  write_file(fd, "parent ");
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    look();
    printf("child of fork: nothing %s\n", as_wished(0));
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  close(fd);
}

static void in_child(void (*check)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    check();
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) printf("status %x\n", status);
}

static int g_way;
static void go_way(void) {
  go(kWays[g_way].name, kWays[g_way].go, kWays[g_way].keeps, kWays[g_way].returns);
}
static void go_by_thread(void) { go("by_thread", by_thread, 0, 1); }

int main(int argc, char** argv) {
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  if (getuid() != 0) {
    puts("only root has rights to give up");
    return 77;
  }
  umask(0);
  for (g_way = 0; g_way < (int)COUNT(kWays); ++g_way) in_child(go_way);
  in_child(go_by_thread);
  in_child(check_return);
  in_child(check_busy);
  in_child(check_child);
  return 0;
}
