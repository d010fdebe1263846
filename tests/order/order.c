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
//   order play MUTANT FILE PLACES SEED          plays a write-back that breaks the order, and
//                                               looks after each of its writes (below)
//   order read HOW FILE PLACES SEED COUNT MS    looks so often, but so long at most.
//                                               HOW: pread, map, copy, tar
//
// The reader says how often it has looked, how often it saw something new, the newest write, and
// how often it saw what cannot be.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kMostPlaces = 4, kPages = 48, kBlock = 6000, kTail = 3 * kPage };
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
} places[kMostPlaces];
static int count;

// The last one to be written comes first in the file, or they lie in any order; two may share a
// page.
static void FindPlaces(int n, uint64_t seed) {
  CHECK(n >= 2 && n <= kMostPlaces);
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

__attribute__((noreturn)) static void Write(const char* file, const char* sync, bool events) {
  const bool each = strcmp(sync, "each") == 0;
  const int fd = open(file, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  // As a program that goes on after a crash: at the write behind the newest that is there.
  uint64_t next = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t n = WordAt(fd, places[i].offset);
    if (n > 0 && (n - 1) * (uint64_t)count + (uint64_t)i + 1 > next) {
      next = (n - 1) * (uint64_t)count + (uint64_t)i + 1;
    }
  }
  if (lseek(fd, 0, SEEK_END) < kSize) CHECK(ftruncate(fd, kSize) == 0);
  // It becomes hot.
  CHECK(fsync(fd) == 0 && fsync(fd) == 0);
  for (;; ++next) {
    const int place = (int)(next % (uint64_t)count);
    Put(fd, place, next / (uint64_t)count + 1);
    if (each || place == count - 1) CHECK(fdatasync(fd) == 0);
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

static void LookBackwards(uint64_t (*word_at)(off_t)) {
  const int from = (int)Random((uint64_t)count);
  for (int i = 0; i < count; ++i) {
    const int place = (from + count - i) % count;
    const size_t last = places[place].length - 8;
    See(place, word_at(places[place].offset + (Random(2) == 0 ? 0 : (off_t)last)));
  }
}

static int reader_fd;
static uint64_t ByPread(off_t offset) { return WordAt(reader_fd, offset); }

static const uint8_t* map;
static uint64_t ByMap(off_t offset) {
  return __atomic_load_n((const uint64_t*)(const void*)(map + offset), __ATOMIC_SEQ_CST);
}

// Of a copy that was made from the front to the end.
static void SeeCopy(const uint8_t* copy) {
  bool done[kMostPlaces] = {false};
  for (int i = 0; i < count; ++i) {
    int next = -1;
    for (int j = 0; j < count; ++j) {
      if (!done[j] && (next < 0 || places[j].offset < places[next].offset)) next = j;
    }
    done[next] = true;
    uint64_t word;
    memcpy(&word, copy + places[next].offset, 8);
    See(next, word);
  }
}

static uint8_t copy_of_file[kPages * kPage];

static void LookByCopy(const char* file) {
  char name[4096];
  snprintf(name, sizeof(name), "%s.copy", file);
  const int to = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  off_t in = 0, out = 0;
  while (in < kSize) {
    const ssize_t n = copy_file_range(reader_fd, &in, to, &out, (size_t)(kSize - in), 0);
    CHECK(n >= 0);
    if (n == 0) break;
  }
  memset(copy_of_file, 0, sizeof(copy_of_file));
  CHECK(pread(to, copy_of_file, sizeof(copy_of_file), 0) >= 0);
  close(to);
  SeeCopy(copy_of_file);
}

static void LookByTar(const char* file) {
  char command[5000];
  snprintf(command, sizeof(command), "exec tar -cPf - --format=ustar '%s' 2>/dev/null", file);
  FILE* tar = popen(command, "r");
  CHECK(tar != NULL);
  static uint8_t header[512], rest[1 << 16];
  memset(copy_of_file, 0, sizeof(copy_of_file));
  CHECK(fread(header, 1, sizeof(header), tar) == sizeof(header));
  CHECK(fread(copy_of_file, 1, sizeof(copy_of_file), tar) > 0);
  while (fread(rest, 1, sizeof(rest), tar) > 0) continue;
  pclose(tar);
  SeeCopy(copy_of_file);
}

static uint64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int Read(const char* how, const char* file, uint64_t wanted, uint64_t milliseconds) {
  struct stat st;
  while (stat(file, &st) != 0 || st.st_size < kSize) usleep(1000);
  reader_fd = open(file, O_RDONLY);
  CHECK(reader_fd >= 0);
  map = mmap(NULL, (size_t)kSize, PROT_READ, MAP_SHARED, reader_fd, 0);
  CHECK(map != MAP_FAILED);
  random_state = (uint64_t)getpid();
  uint64_t looks = 0, changes = 0, before = 0;
  const uint64_t end = Now() + milliseconds;
  // A file that never changes shows no order.
  enum { kLeastChanges = 5, kPatience = 60000 };
  for (;; ++looks) {
    const uint64_t now = looks % 16 == 0 ? Now() : 0;
    if ((looks >= wanted || now >= end) && (changes >= kLeastChanges || now >= end + kPatience))
      break;
    if (strcmp(how, "pread") == 0) LookBackwards(ByPread);
    if (strcmp(how, "map") == 0) LookBackwards(ByMap);
    if (strcmp(how, "copy") == 0) LookByCopy(file);
    if (strcmp(how, "tar") == 0) LookByTar(file);
    changes += made != before;
    before = made;
    if (looks % 8 == 0) sched_yield();  // where there are few processors
  }
  printf("looks %" PRIu64 " changes %" PRIu64 " writes %" PRIu64 " bad %" PRIu64 "\n", looks,
         changes, made, bad);
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
  reader_fd = fd;
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

int main(int n, char** words) {
  CHECK(n >= 6);
  const bool writes = strcmp(words[1], "write") == 0;
  if (writes) {
    FindPlaces(atoi(words[3]), strtoull(words[4], NULL, 10));
    CHECK(n == 7);
    Write(words[2], words[5], strcmp(words[6], "events") == 0);
  }
  FindPlaces(atoi(words[4]), strtoull(words[5], NULL, 10));
  if (strcmp(words[1], "play") == 0) return Play(words[2], words[3]);
  CHECK(n == 8);
  return Read(words[2], words[3], strtoull(words[6], NULL, 10), strtoull(words[7], NULL, 10));
}
