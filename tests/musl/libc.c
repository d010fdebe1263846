/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A walk through libc: prints what it says, the same with a front end and without. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <locale.h>
#include <netdb.h>
#include <poll.h>
#include <pwd.h>
#include <search.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <wchar.h>

#include "tests/kit/program.h"

static volatile sig_atomic_t signals;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn;
static __thread int own = 5;

static void Count(int signal) { signals += signal == SIGUSR1; }

static void Files(void) {
  char name[] = "/tmp/nvcache-musl-XXXXXX", line[64];
  const int fd = mkstemp(name);
  CHECK(fd >= 0);
  FILE* file = fdopen(fd, "w+");
  CHECK(file);
  for (int i = 0; i < 100000; i++) CHECK(fprintf(file, "%d %s\n", i, "line") > 0);
  CHECK(fseek(file, -5, SEEK_END) == 0 && fgets(line, sizeof(line), file));
  printf("file: %ld, %s", ftell(file), line);
  struct stat attributes;
  CHECK(fflush(file) == 0 && fstat(fd, &attributes) == 0 && attributes.st_size == ftell(file));
  char* map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && memcmp(map, "0 line\n1 line", 13) == 0 && munmap(map, 4096) == 0);
  CHECK(fclose(file) == 0 && unlink(name) == 0);
  FILE* temporary = tmpfile();
  CHECK(temporary && fputws(L"h\u00e9", temporary) >= 0 && fclose(temporary) == 0);
  char* text = NULL;
  size_t size = 0;
  FILE* memory = open_memstream(&text, &size);
  CHECK(memory && fprintf(memory, "%.3f %#x", 3.14159, 255) > 0 && fclose(memory) == 0);
  printf("memory: %s, %zu\n", text, size);
  free(text);
  CHECK(scanf("%d", &(int){0}) == EOF);
}

static int Visit(const char* path, const struct stat* attributes, int type, struct FTW* level) {
  (void)attributes;
  (void)path;
  return type == FTW_NS || level->level < 0;
}

static void Folders(void) {
  DIR* folder = opendir("/proc/self/fd");
  int entries = 0;
  CHECK(folder);
  while (readdir(folder)) entries++;
  CHECK(closedir(folder) == 0);
  glob_t found;
  CHECK(glob("/etc/pass*d", 0, NULL, &found) == 0);
  printf("folders: %d entries, %s, %d\n", entries, found.gl_pathv[0],
         nftw("/etc/default", Visit, 8, 0));
  globfree(&found);
  char* const roots[] = {"/etc/default", NULL};
  FTS* tree = fts_open(roots, FTS_PHYSICAL, NULL);
  CHECK(tree && fts_read(tree) && fts_close(tree) == 0);
}

static void* Ping(void* which) {
  const int me = *(int*)which;
  CHECK(own == 5);
  own = me;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < 1000; i++) {
    while (turn % 2 != me) pthread_cond_wait(&condition, &mutex);
    turn++;
    pthread_cond_broadcast(&condition);
  }
  pthread_mutex_unlock(&mutex);
  CHECK(own == me);
  return which;
}

static void Threads(void) {
  pthread_t threads[2];
  int which[2] = {0, 1};
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, Ping, &which[i]) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  sem_t* semaphore = sem_open("/nvcache-musl-test", O_CREAT, 0600, 1);
  CHECK(semaphore != SEM_FAILED && sem_wait(semaphore) == 0 && sem_close(semaphore) == 0);
  CHECK(sem_unlink("/nvcache-musl-test") == 0);
  printf("threads: %d, %d\n", turn, own);
}

static void Signals(void) {
  struct sigaction action = {.sa_handler = Count}, old;
  int ends[2];
  char byte;
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR1, NULL, &old) == 0);
  CHECK(old.sa_handler == Count && raise(SIGUSR1) == 0);
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    while (kill(getppid(), SIGUSR1) == 0) usleep(1000);
    _exit(0);
  }
  CHECK(read(ends[0], &byte, 1) == -1 && errno == EINTR);
  CHECK(kill(child, SIGKILL) == 0);
  while (waitpid(child, NULL, 0) != child) CHECK(errno == EINTR);
  signal(SIGUSR1, SIG_IGN);
  printf("signals: %s\n", signals > 1 ? "came" : "did not come");
}

static void Network(void) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
  CHECK(getaddrinfo("localhost", "80", &hints, &found) == 0);
  const struct sockaddr_in* address = (const struct sockaddr_in*)found->ai_addr;
  printf("localhost: %s\n", inet_ntoa(address->sin_addr));
  freeaddrinfo(found);
  int pair[2];
  char buffer[4];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && send(pair[0], "abc", 3, 0) == 3);
  struct pollfd poll_fd = {pair[1], POLLIN, 0};
  CHECK(poll(&poll_fd, 1, -1) == 1 && recv(pair[1], buffer, 4, 0) == 3);
  const int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLOUT};
  CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event) == 0 &&
        epoll_wait(epoll, &event, 1, -1) == 1);
  CHECK(close(epoll) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
}

static void Words(void) {
  wchar_t wide[8];
  char day[32];
  const time_t zero = 0;
  CHECK(mbstowcs(wide, "h\xc3\xa9", 8) == 2 && wide[1] == 0xe9);
  CHECK(strftime(day, sizeof(day), "%A %d %B %Y", gmtime(&zero)) > 0);
  printf("words: %s, %s, %g\n", day, getpwuid(0)->pw_name, strtod("0x1p-3", NULL));
  CHECK(getgrnam("root") && strcmp(strerror(ENOENT), "No such file or directory") == 0);
  char* block = malloc(100);
  CHECK(block && (block = realloc(block, 1 << 22)) && (block = realloc(block, 10)));
  free(block);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  CHECK(setlocale(LC_ALL, "C.UTF-8"));
  Files();
  Folders();
  Threads();
  Signals();
  Network();
  Words();
  return 0;
}
