/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Children: prints what happens, the same with a front end and without but for `vfork`. */
#define _GNU_SOURCE
#include <grp.h>
#include <sys/fsuid.h>

#include "fake.h"
#include "tests/kit/program.h"

static char stack[65536] __attribute__((aligned(16)));

static int Await(pid_t child) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void Ignore(int signal) { (void)signal; }

static void Spawn(void) {
  pid_t child;
  char* const arguments[] = {"sh", "-c", "exit $(cat)", NULL};
  char* const none[] = {"none", NULL};
  int ends[2];
  posix_spawn_file_actions_t actions;
  signal(SIGUSR1, Ignore);
  CHECK(pipe(ends) == 0 && write(ends[1], "6\n", 2) == 2);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", 0, 0);
  CHECK(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ) == 0);
  if (HasFake()) CHECK(fake.handed_over == 1 && fake.last_handed_over == ends[0]);
  close(ends[1]);
  close(ends[0]);
  printf("posix_spawn: %d\n", Await(child));
  printf("posix_spawnp: %s\n",
         strerror(posix_spawnp(&child, "no-such-program", NULL, NULL, none, environ)));
  printf("system: %d\n", WEXITSTATUS(system("exit 3")));
  char line[16];
  FILE* from = popen("echo from a child", "r");
  CHECK(from && fgets(line, sizeof(line), from) && pclose(from) == 0);
  printf("popen: %s\n", line);
  FILE* to = popen("cat >/dev/null; exit 4", "w");
  CHECK(to && fputs("x", to) >= 0);
  printf("pclose: %d\n", WEXITSTATUS(pclose(to)));
}

static void CheckSpawn(void) {
  if (!HasFake()) return;
  CHECK(fake.begun >= 5 && fake.begun == fake.ended);
  CHECK(fake.foreign == 0 && fake.spawned_offers > 0);
}

static void Vfork(void) {
  volatile int shared = 0;
  const pid_t child = vfork();
  if (child == 0) {
    shared = 1;
    _exit(7);
  }
  CHECK(Await(child) == 7);
  printf("vfork: %s\n", shared ? "the child shares memory" : "the child has a copy");
  if (HasFake()) CHECK(fake.offers[SYS_fork] == 1 && fake.offers[SYS_vfork] == 0);
}

static int Child(void* argument) { return *(int*)argument + (HasFake() ? (int)fake.left : 0); }

/* waitpid, and whether the front end was told to leave, by the parent and in the child's copy. */
static void Clone(const char* name, int flags, long wanted) {
  int five = 5;
  const long before = HasFake() ? fake.retired : 0;
  const int child = clone(Child, stack + sizeof(stack), flags | SIGCHLD, &five);
  CHECK(Await(child) == (HasFake() && (flags & CLONE_VM) == 0 ? 6 : 5));
  printf("clone, %s: 5\n", name);
  CHECK(!HasFake() || fake.retired == before + wanted);
}

static void* ForkInThread(void* unused) {
  const pid_t child = fork();
  if (child == 0) {
    FILE* file = fopen("/dev/null", "w"); /* locks and memory are usable */
    CHECK(file && fprintf(file, "x") == 1 && fclose(file) == 0);
    void* memory = malloc(1 << 20);
    CHECK(memory && pthread_self() && syscall(SYS_gettid) == getpid());
    free(memory);
    _exit(8);
  }
  printf("fork in a thread: %d\n", Await(child));
  return unused;
}

/* The front end is told around what libc does in each thread, and offered none of that. */
static void* ChangeRights(void* unused) {
  const gid_t group = getgid();
  CHECK(setuid(getuid()) == 0 && setegid(group) == 0 && setresgid(-1, group, -1) == 0);
  const long known = HasFake() ? fake.rights_begun : 0;
  CHECK(setgroups(1, &group) == 0 || errno == EPERM);
  CHECK(setfsuid((uid_t)-1) == (int)getuid());
  if (!HasFake()) return unused;
  CHECK(known >= 3 && fake.rights_begun == known + 1 && fake.rights_ended == known + 1);
  CHECK(fake.offers[SYS_setuid] == 0 && fake.offers[SYS_setresgid] == 0);
  CHECK(fake.offers[SYS_setgroups] == 0 && fake.offers[SYS_setfsuid] > 0);
  return unused;
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* nothing is left for a child to write */
  Spawn();
  CheckSpawn();
  Vfork();
  Clone("nothing shared", 0, 1);
  Clone("descriptors shared", CLONE_FILES, 1);
  Clone("memory shared", CLONE_VM | CLONE_VFORK, 1);
  Clone("all shared", CLONE_VM | CLONE_FILES | CLONE_VFORK, 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, ForkInThread, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(pthread_create(&thread, NULL, ChangeRights, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}
