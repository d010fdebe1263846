// SPDX-License-Identifier: BSD-3-Clause
//
// The order in which others see a file. A writer has some places in a file, and writes to them in
// turn, always in the same order, the number of the round. Somebody who looks sees of these writes
// a beginning, at any time: all up to some one, and none that came later. What was to be seen once
// stays.
//
//   order write FILE PLACES SEED SYNC EVENTS    until it is killed; goes on where the file is.
//                                               SYNC: after each write, or each round. EVENTS: it
//                                               forks, asks, cuts and grows the file meanwhile
//   order write ... HOW FD MOST                 and says how many writes were made, after each:
//                                               pipe, socket: to FD; rename: in FILE.said, which
//                                               is made anew and renamed; exit: by its end, after
//                                               MOST writes
//   order play MUTANT FILE PLACES SEED          plays a write-back that breaks the order, and
//                                               looks after each of its writes (below)
//   order read HOW FILE PLACES SEED COUNT MS    looks so often, but so long at most.
//                                               HOW: pread, map, copy, tar
//   order told HOW FILE PLACES SEED COUNT MS WAY LIFE SYNC EVENTS SETTING...
//                                               the same, and starts the writer, with these
//                                               variables; before each look it is told how many
//                                               writes were made, and each of these must be seen.
//                                               LIFE: so often before the writer is killed; 0:
//                                               never
//
// PLACES: 2 to 4, or 2/2 to 4/2, where they lie in FILE and FILE.b in turn. The reader says how
// often it has looked, how often it saw something new, the newest write, and how often it saw what
// cannot be.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  kPage = 4096,
  kMostPlaces = 4,
  kMostFiles = 2,
  kPages = 48,
  kBlock = 6000,
  kTail = 3 * kPage
};
static const off_t kSize = (off_t)kPages * kPage;

#define CHECK(condition) ((condition) ? (void)0 : Die(#condition, __LINE__))
static void Die(const char* what, int line) {
  fprintf(stderr, "order.c:%d: %s: %s\n", line, what, strerror(errno));
  _exit(2);
}

static uint64_t random_state;
static uint64_t Random(uint64_t below) {
  random_state += 0x9e3779b97f4a7c15u;
  uint64_t z = random_state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % below;
}

// In the order of writing. A long one is filled with its number.
static struct Place {
  off_t offset;
  size_t length;
  int file;
} places[kMostPlaces];
static int count, files;

// The last one to be written comes first in the file, or they lie in any order; two may share a
// page.
static void FindPlaces(const char* text, uint64_t seed) {
  files = 1;
  const int n = atoi(text);
  CHECK(n >= 2 && n <= kMostPlaces);
  if (strchr(text, '/') != NULL) files = atoi(strchr(text, '/') + 1);
  CHECK(files >= 1 && files <= kMostFiles);
  count = n;
  random_state = seed;
  const bool backwards = seed % 2 == 0;
  for (int i = 0; i < n; ++i) {
    const off_t strip = kSize / n;
    places[i].offset = (backwards ? n - 1 - i : i) * strip + (off_t)Random(kPages / n - 3) * kPage +
                       (off_t)Random(kPage / 8) * 8;
    places[i].length = Random(4) == 0 ? kBlock : 8;
  }
  if (seed % 3 == 1) {
    places[0] = (struct Place){.offset = 7 * kPage + 800, .length = 8};
    places[n - 1] = (struct Place){.offset = 7 * kPage + 8, .length = 8};
  }
  for (int i = 0; i < n; ++i) places[i].file = i % files;
}

static const char* NameOf(const char* file, int number) {
  static char name[4096];
  snprintf(name, sizeof(name), number == 0 ? "%s" : "%s.b", file);
  return name;
}

// ---------------------------------------------------------------------------------------------
// The writer.

static uint64_t WordAt(int fd, off_t offset) {
  uint64_t word = 0;
  CHECK(pread(fd, &word, 8, offset) >= 0);
  return word;
}

// And rests now and then, so that others look where it is at.
static void Put(int fd, int place, uint64_t n) {
  if (Random(40) == 0) usleep(60);
  static uint64_t block[kBlock / 8];
  for (size_t i = 0; i < places[place].length / 8; ++i) block[i] = n;
  const ssize_t length = (ssize_t)places[place].length;
  CHECK(pwrite(fd, block, places[place].length, places[place].offset) == length);
}

static void Happen(int fd, uint64_t n) {
  struct stat st;
  switch (n % 8) {
    case 0: {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      CHECK(waitpid(child, NULL, 0) == child);
      break;
    }
    case 1:
      CHECK(fstat(fd, &st) == 0);
      break;
    case 2:
      CHECK(ftruncate(fd, kSize + (off_t)Random(kTail)) == 0);
      break;
    case 3:
      CHECK(pwrite(fd, "tail", 4, kSize + (off_t)Random(kTail)) == 4);
      break;
    case 4:
      CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kSize, kPage) == 0 ||
            errno == EOPNOTSUPP);
      break;
    case 5:
      CHECK(lseek(fd, 0, SEEK_DATA) >= 0);
      break;
    default:;
  }
}

// How many writes were made, since the file is there.
struct Teller {
  const char* way;
  const char* file;
  int fd;
  uint64_t most;
};

static void Tell(const struct Teller* teller, uint64_t made) {
  if (strcmp(teller->way, "rename") == 0) {
    char said[4096], made_new[4096];
    snprintf(said, sizeof(said), "%s.said", teller->file);
    snprintf(made_new, sizeof(made_new), "%s.said.new", teller->file);
    const int fd = open(made_new, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, &made, sizeof(made)) == sizeof(made));
    if (made % 3 == 0) CHECK(fsync(fd) == 0);
    CHECK(close(fd) == 0 && rename(made_new, said) == 0);
  } else if (teller->fd >= 0) {
    CHECK(write(teller->fd, &made, sizeof(made)) == sizeof(made));
  }
}

// As a program that goes on after a crash: at the write behind the newest that is there.
static uint64_t NextWrite(const int* fds) {
  uint64_t next = 0;
  for (int i = 0; i < count; ++i) {
    // A long one that a kill has found halfway is written again.
    const uint64_t first = WordAt(fds[places[i].file], places[i].offset);
    const uint64_t last =
        WordAt(fds[places[i].file], places[i].offset + (off_t)places[i].length - 8);
    const uint64_t n = first < last ? first : last;
    if (n > 0 && (n - 1) * (uint64_t)count + (uint64_t)i + 1 > next) {
      next = (n - 1) * (uint64_t)count + (uint64_t)i + 1;
    }
  }
  return next;
}

static void Write(const char* file, const char* sync, bool events, const struct Teller* teller) {
  const bool each = strcmp(sync, "each") == 0;
  int fds[kMostFiles];
  for (int i = 0; i < files; ++i) {
    fds[i] = open(NameOf(file, i), O_RDWR | O_CREAT, 0600);
    CHECK(fds[i] >= 0);
  }
  uint64_t next = NextWrite(fds);
  for (int i = 0; i < files; ++i) {
    if (lseek(fds[i], 0, SEEK_END) < kSize) CHECK(ftruncate(fds[i], kSize) == 0);
    // It becomes hot.
    CHECK(fsync(fds[i]) == 0 && fsync(fds[i]) == 0);
  }
  for (const uint64_t end = next + teller->most; next < end; ++next) {
    const int place = (int)(next % (uint64_t)count), fd = fds[places[place].file];
    Put(fd, place, next / (uint64_t)count + 1);
    Tell(teller, next + 1);
    if (each) CHECK(fdatasync(fd) == 0);
    for (int i = 0; !each && place == count - 1 && i < files; ++i) CHECK(fdatasync(fds[i]) == 0);
    if (events && next % 97 == 0) Happen(fd, next / 97);
  }
}

// ---------------------------------------------------------------------------------------------
// The reader.

// Every write up to this one was made, as far as was seen: they are counted from 1.
static uint64_t made;
static uint64_t bad;

// The place was just seen to have the word. A write may be under way, so a long one tells only that
// those before it were made.
static void See(int place, uint64_t word) {
  const uint64_t n = (uint64_t)count, at = (uint64_t)place;
  const uint64_t least = made > at ? (made - at - 1) / n + 1 : 0;
  if (word < least && bad++ < 3) {
    printf("place %d of %d has %" PRIu64 ", and write %" PRIu64 " was seen: %" PRIu64 " at least\n",
           place, count, word, made, least);
  }
  if (word == 0) return;
  const uint64_t seen = (word - 1) * n + at + 1 - (places[place].length > 8 ? 1 : 0);
  if (seen > made) made = seen;
}

static void LookBackwards(uint64_t (*word_at)(int, off_t)) {
  const int from = (int)Random((uint64_t)count);
  for (int i = 0; i < count; ++i) {
    const int place = (from + count - i) % count;
    const size_t last = places[place].length - 8;
    See(place,
        word_at(places[place].file, places[place].offset + (Random(2) == 0 ? 0 : (off_t)last)));
  }
}

static int reader_fds[kMostFiles];
static uint64_t ByPread(int file, off_t offset) { return WordAt(reader_fds[file], offset); }

static const uint8_t* maps[kMostFiles];
static uint64_t ByMap(int file, off_t offset) {
  return __atomic_load_n((const uint64_t*)(const void*)(maps[file] + offset), __ATOMIC_SEQ_CST);
}

// Of a copy that was made from the front to the end.
static void SeeCopy(int file, const uint8_t* copy) {
  bool done[kMostPlaces] = {false};
  for (;;) {
    int next = -1;
    for (int j = 0; j < count; ++j) {
      if (done[j] || places[j].file != file) continue;
      if (next < 0 || places[j].offset < places[next].offset) next = j;
    }
    if (next < 0) return;
    done[next] = true;
    uint64_t word;
    memcpy(&word, copy + places[next].offset, 8);
    See(next, word);
  }
}

static uint8_t copy_of_file[kPages * kPage];

static void LookByCopy(const char* file, int number) {
  char name[4096];
  snprintf(name, sizeof(name), "%s.copy", file);
  const int to = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  off_t in = 0, out = 0;
  while (in < kSize) {
    const ssize_t n = copy_file_range(reader_fds[number], &in, to, &out, (size_t)(kSize - in), 0);
    CHECK(n >= 0);
    if (n == 0) break;
  }
  memset(copy_of_file, 0, sizeof(copy_of_file));
  CHECK(pread(to, copy_of_file, sizeof(copy_of_file), 0) >= 0);
  close(to);
  SeeCopy(number, copy_of_file);
}

static void LookByTar(const char* file, int number) {
  char command[5000];
  snprintf(command, sizeof(command), "exec tar -cPf - --format=ustar '%s' 2>/dev/null",
           NameOf(file, number));
  FILE* tar = popen(command, "r");
  CHECK(tar != NULL);
  static uint8_t header[512], rest[1 << 16];
  memset(copy_of_file, 0, sizeof(copy_of_file));
  CHECK(fread(header, 1, sizeof(header), tar) == sizeof(header));
  CHECK(fread(copy_of_file, 1, sizeof(copy_of_file), tar) > 0);
  while (fread(rest, 1, sizeof(rest), tar) > 0) continue;
  pclose(tar);
  SeeCopy(number, copy_of_file);
}

static uint64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void OpenForReading(const char* file) {
  for (int i = 0; i < files; ++i) {
    struct stat st;
    while (stat(NameOf(file, i), &st) != 0 || st.st_size < kSize) usleep(1000);
    reader_fds[i] = open(NameOf(file, i), O_RDONLY);
    CHECK(reader_fds[i] >= 0);
    maps[i] = mmap(NULL, (size_t)kSize, PROT_READ, MAP_SHARED, reader_fds[i], 0);
    CHECK(maps[i] != MAP_FAILED);
  }
}

static void Look(const char* how, const char* file) {
  if (strcmp(how, "pread") == 0) LookBackwards(ByPread);
  if (strcmp(how, "map") == 0) LookBackwards(ByMap);
  if (strcmp(how, "copy") != 0 && strcmp(how, "tar") != 0) return;
  const int first = (int)Random((uint64_t)files);
  for (int i = 0; i < files; ++i) {
    const int number = (first + i) % files;
    if (strcmp(how, "copy") == 0) LookByCopy(file, number);
    if (strcmp(how, "tar") == 0) LookByTar(file, number);
  }
}

static void Report(uint64_t looks, uint64_t changes) {
  printf("looks %" PRIu64 " changes %" PRIu64 " writes %" PRIu64 " bad %" PRIu64 "\n", looks,
         changes, made, bad);
}

// A file that never changes shows no order.
enum { kLeastChanges = 5, kPatience = 60000 };
static bool IsEnough(uint64_t looks, uint64_t wanted, uint64_t end, uint64_t changes) {
  const uint64_t now = looks % 16 == 0 ? Now() : 0;
  return (looks >= wanted || now >= end) && (changes >= kLeastChanges || now >= end + kPatience);
}

static int Read(const char* how, const char* file, uint64_t wanted, uint64_t milliseconds) {
  OpenForReading(file);
  random_state = (uint64_t)getpid();
  uint64_t looks = 0, changes = 0, before = 0;
  const uint64_t end = Now() + milliseconds;
  for (; !IsEnough(looks, wanted, end, changes); ++looks) {
    Look(how, file);
    changes += made != before;
    before = made;
    if (looks % 8 == 0) sched_yield();  // where there are few processors
  }
  Report(looks, changes);
  return 0;
}

// ---------------------------------------------------------------------------------------------
// What a reader must find: batches of some rounds that are brought to the file
//
//   file     each place once, as it is in the end, in the order of the file
//   newest   the same, in the order of the newest write to each
//   cut      in the order of writing, but a part of the batch lacks its first place
//   again    in the order of writing, twice
//   right    in the order of writing: nothing is to be found
//
// The process itself looks after each write, so there is none that nobody sees.
static void PutAndLook(int fd, int place, uint64_t n) {
  Put(fd, place, n);
  LookBackwards(ByPread);
}

static void Apply(int fd, uint64_t from, uint64_t to) {
  for (uint64_t n = from; n < to; ++n) {
    for (int i = 0; i < count; ++i) PutAndLook(fd, i, n);
  }
}

static int Play(const char* mutant, const char* file) {
  enum { kRounds = 20, kBatches = 5 };
  const int fd = open(file, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && ftruncate(fd, kSize) == 0);
  reader_fds[0] = fd;
  const bool in_file = strcmp(mutant, "file") == 0;
  for (uint64_t n = 1; n < kBatches * kRounds; n += kRounds) {
    const uint64_t last = n + kRounds - 1;
    if (in_file || strcmp(mutant, "newest") == 0) {
      bool done[kMostPlaces] = {false};
      for (int i = 0; i < count; ++i) {
        int next = -1;
        for (int j = 0; j < count; ++j) {
          if (done[j]) continue;
          if (next < 0 || (in_file && places[j].offset < places[next].offset)) next = j;
        }
        PutAndLook(fd, next, last);
        done[next] = true;
      }
    } else if (strcmp(mutant, "cut") == 0) {
      Apply(fd, n, n + kRounds / 2);
      for (uint64_t m = n + kRounds / 2; m <= last; ++m) {
        for (int i = 1; i < count; ++i) PutAndLook(fd, i, m);
      }
      for (uint64_t m = n + kRounds / 2; m <= last; ++m) PutAndLook(fd, 0, m);
    } else if (strcmp(mutant, "again") == 0) {
      Apply(fd, n, last + 1);
      Apply(fd, n, last + 1);
    } else {
      Apply(fd, n, last + 1);
    }
  }
  printf("bad %" PRIu64 "\n", bad);
  return 0;
}

// ---------------------------------------------------------------------------------------------
// Who is told, and then looks: nothing is older than what was said.

enum { kWritesOfOne = 30, kMostSaid = 8192 };

struct Told {
  const char *way, *sync, *events;  // of the writer
  char** settings;
  const char *file, *places, *seed;
  pid_t writer;  // 0: there is none
  int fd;        // what it says by a pipe or a socket
  uint64_t newest;
};

static void StartWriter(struct Told* told) {
  int ends[2] = {-1, -1};
  if (strcmp(told->way, "pipe") == 0) CHECK(pipe(ends) == 0);
  if (strcmp(told->way, "socket") == 0) CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  told->fd = ends[0];
  told->writer = fork();
  CHECK(told->writer >= 0);
  if (told->writer == 0) {
    if (ends[0] >= 0) close(ends[0]);
    for (char** setting = told->settings; *setting != NULL; ++setting) putenv(*setting);
    char fd[16], most[32];
    snprintf(fd, sizeof(fd), "%d", ends[1]);
    snprintf(most, sizeof(most), "%d", strcmp(told->way, "exit") == 0 ? kWritesOfOne : 1 << 30);
    execl("/proc/self/exe", "order", "write", told->file, told->places, told->seed, told->sync,
          told->events, told->way, fd, most, NULL);
    Die("exec", __LINE__);
  }
  if (ends[1] >= 0) close(ends[1]);
}

// Of what it says one after the other, the newest. Whether it says something.
static bool HearNumbers(struct Told* told) {
  static uint64_t said[kMostSaid];
  const ssize_t n = read(told->fd, said, sizeof(said));
  CHECK(n >= 0 && n % 8 == 0);
  if (n > 0) told->newest = said[n / 8 - 1];
  return n > 0;
}

static void HearName(struct Told* told) {
  char name[4096];
  snprintf(name, sizeof(name), "%s.said", told->file);
  int fd;
  while ((fd = open(name, O_RDONLY)) < 0) CHECK(errno == ENOENT && usleep(1000) == 0);
  CHECK(read(fd, &told->newest, 8) == 8);
  close(fd);
}

static void HearEnd(struct Told* told) {
  int status;
  CHECK(waitpid(told->writer, &status, 0) == told->writer && status == 0);
  told->writer = 0;
  told->newest += kWritesOfOne;
}

static void Hear(struct Told* told) {
  if (told->writer == 0) StartWriter(told);
  if (strcmp(told->way, "exit") == 0) return HearEnd(told);
  if (strcmp(told->way, "rename") == 0) return HearName(told);
  CHECK(HearNumbers(told));
}

// What it has said counts.
static void KillWriter(struct Told* told) {
  if (told->writer == 0) return;
  CHECK(kill(told->writer, SIGKILL) == 0 && waitpid(told->writer, NULL, 0) == told->writer);
  told->writer = 0;
  if (told->fd < 0) return HearName(told);
  while (HearNumbers(told)) continue;
  close(told->fd);
}

static int BeTold(struct Told* told, const char* how, uint64_t wanted, uint64_t milliseconds,
                  uint64_t life) {
  StartWriter(told);
  OpenForReading(told->file);
  random_state = (uint64_t)getpid();
  uint64_t looks = 0, changes = 0;
  const uint64_t end = Now() + milliseconds;
  for (; !IsEnough(looks, wanted, end, changes); ++looks) {
    Hear(told);
    if (life > 0 && Random(life) == 0) KillWriter(told);
    changes += told->newest > made;
    if (told->newest > made) made = told->newest;
    Look(how, told->file);
  }
  KillWriter(told);
  made = told->newest;
  Look(how, told->file);
  Report(looks + 1, changes);
  return 0;
}

// ---------------------------------------------------------------------------------------------

int main(int n, char** words) {
  CHECK(n >= 6);
  const bool writes = strcmp(words[1], "write") == 0;
  if (writes) {
    FindPlaces(words[3], strtoull(words[4], NULL, 10));
    CHECK(n == 7 || n == 10);
    struct Teller teller = {.way = "", .file = words[2], .fd = -1, .most = 1u << 30};
    if (n == 10) {
      teller.way = words[7];
      teller.fd = atoi(words[8]);
      teller.most = strtoull(words[9], NULL, 10);
    }
    Write(words[2], words[5], strcmp(words[6], "events") == 0, &teller);
    return 0;
  }
  FindPlaces(words[4], strtoull(words[5], NULL, 10));
  if (strcmp(words[1], "play") == 0) return Play(words[2], words[3]);
  CHECK(n >= 8);
  const uint64_t wanted = strtoull(words[6], NULL, 10), most = strtoull(words[7], NULL, 10);
  if (strcmp(words[1], "read") == 0) return Read(words[2], words[3], wanted, most);
  CHECK(n >= 12);
  struct Told told = {.way = words[8],
                      .sync = words[10],
                      .events = words[11],
                      .settings = words + 12,
                      .file = words[3],
                      .places = words[4],
                      .seed = words[5],
                      .fd = -1};
  return BeTold(&told, words[2], wanted, most, strtoull(words[9], NULL, 10));
}
