// SPDX-License-Identifier: BSD-3-Clause
//
// Standard I/O on files that may be cached: modes, positions, buffers, flags of the FILE, whose
// number a stream has and who gets it next. Prints what it sees; the output must be the same
// whoever makes the file calls.
//
//   stdio DIRECTORY PLUGIN     (an empty directory on a disk)
#define _GNU_SOURCE
#include <iconv.h>
#include <locale.h>
#include <mntent.h>
#include <pwd.h>
#include <stdio_ext.h>
#include <wchar.h>

#include "libc.h"
#include "tests/kit/program.h"

// No file of this test is larger than it may be, but for one.
enum { kLargest = 1000000 };

static void make_file(const char* path, const char* text) {
  const int fd = created(path);
  if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) abort();
  close(fd);
}

// Not of a stream that libc may map, nor whether the process has threads (0x80).
static void show_stream(FILE* f) {
#ifdef __GLIBC__
  const int flags2 = f->_flags2 & ~0x80;
  printf("    flags %x %x offset %ld", (unsigned)f->_flags, (unsigned)flags2, (long)f->_offset);
#else
  printf("    writing %d reading %d", __fwriting(f), __freading(f));
#endif
  const long place = ftell(f);
  printf(" tell %ld seek %ld", place, (long)lseek(fileno(f), 0, SEEK_CUR));
  printf(" fd %x %x wide %d\n", (unsigned)fcntl(fileno(f), F_GETFL),
         (unsigned)fcntl(fileno(f), F_GETFD), fwide(f, 0));
}

// ---------------------------------------------------------------------------------------------

static void try_mode(const char* mode, int exists) {
  unlink("m");
  if (exists) make_file("m", "0123456789");
  errno = 4711;
  FILE* f = fopen("m", mode);
  printf("fopen %s %s: %s errno %d\n", mode, exists ? "old" : "new", f ? "opened" : "failed",
         errno);
  if (f != NULL) {
    if (strchr(mode, 'm') == NULL) show_stream(f);
    if (fwide(f, 0) > 0) {
      SHOW(fgetwc(f), fputwc(L'x', f));
    } else {
      SHOW(fgetc(f), ferror(f));
      clearerr(f);
      SHOW(fseek(f, 0, SEEK_CUR), fputc('x', f));
    }
    SHOW(ferror(f), fflush(f));
    if (strchr(mode, 'm') == NULL) show_stream(f);
    SHOW(fseek(f, 2, SEEK_SET), ftell(f), fclose(f));
  }
  show_file("m");
}

static void check_modes(void) {
  title("modes");
  char modes[] =
      "r|r+|w|w+|a|a+|rb|r+b|rb+|wx|w+x|ae|re|rm|rc|wce|a+e|rw|ax|am|rmc|r,,,,,+|r,,,,,,+|"
      "rt|w+bxecmt||x|+r|rbbbbb+|rbbbbbb+|r+m|r,ccs=UTF-8|w,ccs=UTF-8|r+,ccs=ISO-8859-1|"
      "a,ccs=UTF-16LE|r,ccs=nonsense|rm,ccs=UTF-8|r,ccs=macintosh";
  char* rest = modes;
  for (char* mode = strsep(&rest, "|"); mode != NULL; mode = strsep(&rest, "|")) {
    try_mode(mode, 1);
    try_mode(mode, 0);
  }
  SHOW(fopen("nosuch/file", "w") == NULL, errno, fopen(".", "w") == NULL, errno);
  FILE* f = fopen(".", "r");
  SHOW(fgetc(f), ferror(f), fclose(f));
  f = fopen("/dev/null", "a");
  show_stream(f);
  SHOW(fclose(f));
  unlink("m");
}

// Every size around the buffer's: no byte of the last buffer is lost.
static void check_last_bytes(void) {
  title("last bytes");
  static const int sizes[] = {0, 1, 4095, 4096, 4097, 8191, 8192, 8193, 100001};
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    FILE* f = fopen("last", "w");
    for (int byte = 0; byte < sizes[i]; ++byte) fputc('a' + byte % 26, f);
    SHOW(fclose(f));
    show_file("last");
    f = fopen("last", "a");
    SHOW(fputc('!', f), fclose(f));
    show_file("last");
  }
}

static void check_reading(void) {
  title("reading and writing");
  enum { kSize = 300000 };
  char* data = malloc(kSize);
  char* back = malloc(kSize + 1);
  for (int i = 0; i < kSize; ++i) data[i] = (char)(i % 60 == 59 ? '\n' : 'a' + i * 7 % 26);
  FILE* f = fopen("large", "w+");
  SHOW(fwrite(data, 1, 100, f));
  SHOW(fwrite(data + 100, 1, kSize - 100, f));  // past the buffer
  SHOW(ftell(f));
  struct stat st;
  SHOW(fstat(fileno(f), &st));
  SHOW(st.st_size);  // but for the buffer
  rewind(f);
  SHOW(fread(back, 1, 10, f), fread(back + 10, 1, kSize, f), feof(f), memcmp(data, back, kSize));
  SHOW(fseek(f, -10, SEEK_END), fwrite("overwrites", 1, 10, f), fwrite("and grows", 1, 9, f));
  SHOW(fseek(f, -19, SEEK_CUR), fread(back, 1, 100, f), back[0], fseek(f, 200000, SEEK_SET));
  SHOW(getc_unlocked(f), ungetc('#', f), ftell(f), getc(f));
  fpos_t place;
  SHOW(fgetpos(f, &place));
  char* line = NULL;
  size_t length = 0;
  SHOW(getline(&line, &length, f), getdelim(&line, &length, 'z', f), fsetpos(f, &place));
  SHOW(getline(&line, &length, f));
  free(line);
  SHOW(fseek(f, -1, SEEK_SET), fseeko(f, 1L << 33, SEEK_SET), fgetc(f), fseek(f, 5000, SEEK_SET));
  SHOW(fgetc(f));
  // The reader goes back to where the program is.
  SHOW(fflush(f), lseek(fileno(f), 0, SEEK_CUR), write(fileno(f), "RAW", 3));
  SHOW(fseek(f, 5000, SEEK_SET), fread(back, 1, 6, f));
  printf("    %.6s\n", back);
  SHOW(ftruncate(fileno(f), 150000), fseek(f, 0, SEEK_END), ftell(f), fputs("end", f));
  SHOW(fflush(NULL));
  show_file("large");
  SHOW(fclose(f));
  free(data);
  free(back);
}

// What one way of access has written, the others see.
static void check_beside(void) {
  title("beside descriptors");
  const int fd = created("beside");
  FILE* f = fopen("beside", "r+");
  SHOW(write(fd, "0123456789", 10), fseek(f, 0, SEEK_END), ftell(f), fputs("stream", f));
  struct stat st;
  SHOW(stat("beside", &st), st.st_size, fflush(f), stat("beside", &st), st.st_size);
  char b[32] = {0};
  SHOW(read(fd, b, sizeof(b)));
  printf("    %s\n", b);
  FILE* a1 = fopen("beside", "a");
  FILE* a2 = fopen("beside", "a+");
  SHOW(fgetc(a2), fputs("one ", a1), fflush(a1), fseek(a2, 0, SEEK_CUR), fputs("two ", a2));
  SHOW(fflush(a2), fputs("three", a1), ftell(a1), ftell(a2), fclose(a1), fclose(a2));
  show_file("beside");
  SHOW(rename("beside", "beside2"), fputs(" renamed", f), fclose(f));
  show_file("beside2");
  f = fopen("beside2", "r+");
  SHOW(unlink("beside2"), fputs("gone", f), fflush(f), fclose(f), close(fd));
}

static void check_buffers(void) {
  title("buffers");
  static const int kinds[] = {_IOFBF, _IOLBF, _IONBF};
  for (int i = 0; i < 3; ++i) {
    FILE* f = fopen("buffers", "w+");
    char buffer[100];
    SHOW(setvbuf(f, i == 2 ? NULL : buffer, kinds[i], i == 2 ? 0 : sizeof(buffer)));
    for (int n = 0; n < 30; ++n) fprintf(f, "%d%s", n, n % 7 == 0 ? "\n" : " ");
    show_file("buffers");
    SHOW(__fpending(f));
    rewind(f);
    int number = 0;
    SHOW(fscanf(f, "%*d %d", &number), number, fclose(f));
  }
}

static void check_fdopen(void) {
  title("fdopen");
  static const char* const modes[] = {"r",  "r+", "w", "w+", "a",     "a+",
                                      "rm", "wx", "",  "y",  "w,,,,+"};
  static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND};
  for (size_t i = 0; i < COUNT(modes); ++i) {
    for (int j = 0; j < 4; ++j) {
      make_file("fd", "0123456789");
      const int fd = open("fd", flags[j]);
      lseek(fd, 4, SEEK_SET);
      printf("fdopen %s %x\n", modes[i], (unsigned)flags[j]);
      FILE* f;
      SHOW((f = fdopen(fd, modes[i])) == NULL);
      if (f == NULL) {
        SHOW(close(fd));
        continue;
      }
      show_stream(f);
      SHOW(fgetc(f), fseek(f, 0, SEEK_CUR), fputs("xyz", f), fflush(f), pwrite(fd, "P", 1, 0));
      SHOW(lseek(fd, 1, SEEK_SET), write(fd, "W", 1), fclose(f), close(fd));
      show_file("fd");
    }
  }
  SHOW(fdopen(-1, "r") == NULL, errno);
}

static void check_freopen(void) {
  title("freopen");
  FILE* f = fopen("re1", "w");
  SHOW(fputs("first", f), freopen("re2", "w+", f) == f);
  show_stream(f);
  SHOW(fputs("second", f), fflush(f));
  show_file("re1");
  show_file("re2");
  SHOW(freopen("re1", "a", f) == f);
  show_stream(f);
  SHOW(fputs(" appended", f), freopen("re1", "r", f) == f);
  show_stream(f);
  SHOW(fgetc(f), freopen(NULL, "r+", f) == f);
  show_stream(f);
  SHOW(fputs("F", f), freopen("re1", "rm", f) == f, fgetc(f));
  SHOW(freopen("re1", "r+,ccs=UTF-8", f) == f, fgetwc(f), freopen("re3", "wx", f) == f);
  show_stream(f);
  SHOW(fputs("exclusively", f), freopen("re3", "we", f) == f);
  show_stream(f);
  SHOW(fputs("anew", f), fclose(f));
  show_file("re1");
  show_file("re3");

  // The number is free afterwards.
  f = fopen("re4", "w");
  SHOW(fputs("lost?", f), freopen("nosuch/re", "w", f) == NULL);
  const int fd = created("re5");
  SHOW(fd, write(fd, "new", 3), close(fd));
  show_file("re4");
  show_file("re5");

  f = fopen("re4", "w+");
  SHOW(fputs("released", f), freopen("nosuch/re", "w", f) == NULL);
  int pipes[2];
  SHOW(pipe(pipes), pipes[0], write(pipes[1], "piped", 5));
  char piped[8] = {0};
  SHOW(read(pipes[0], piped, sizeof(piped)), close(pipes[0]) | close(pipes[1]));
  show_file("re4");
  f = fopen("re4", "r+");
  SHOW(fputs("R", f), freopen(NULL, "w+", f) == f);
  show_stream(f);
  show_file("re4");
  SHOW(fputs("short", f), fclose(f));
  show_file("re4");

  // A stream that libc maps sees what others write, and is closed in another way.
  make_file("re9", "0123456789");
  f = freopen("re9", "rm", fopen("/dev/null", "r"));
  const int mapped = fileno(f);
  SHOW(fgetc(f));
  int writer;
  SHOW(writer = open("re9", O_RDWR), pwrite(writer, "MAPPED", 6, 3));
  char seen[16] = {0};
  SHOW(fread(seen, 1, 8, f));
  printf("    %s\n", seen);
  SHOW(fclose(f), pipe(pipes), pipes[0] == mapped, write(pipes[1], "piped", 5));
  SHOW(read(pipes[0], piped, sizeof(piped)), close(pipes[0]) | close(pipes[1]) | close(writer));
  show_file("re9");

  // Streams that are there from the start.
  fflush(stdout);
  const int output = dup(1);
  FILE* to = freopen("re6", "w", stdout);
  printf("printed %d\n", to == stdout);
  fflush(stdout);
  const ssize_t written = write(1, "written\n", 8);
  printf("printed again %zd\n", written);
  puts("put");
  fflush(stdout);
  dup2(output, 1);
  close(output);
  SHOW(1);
  show_file("re6");
  const int errors = dup(2);
  SHOW(freopen("re7", "w+", stderr) == stderr);
  fprintf(stderr, "printed to stderr\n");
  fflush(stderr);
  errno = ENOENT;
  perror("perror");
  psignal(SIGUSR1, "psignal");
  siginfo_t info = {.si_signo = SIGUSR2, .si_code = SI_USER};
  psiginfo(&info, "psiginfo");
  fprintf(stderr, "printed again\n");
  fflush(stderr);
  SHOW(dup2(errors, 2), close(errors));
  show_file("re7");
  make_file("re8", "12 34");
  SHOW(freopen("re8", "r", stdin) == stdin);
  int a = 0;
  int b = 0;
  SHOW(scanf("%d%d", &a, &b), a + b, freopen("/dev/null", "r", stdin) == stdin);
}

// Whoever gets a stream's number next has a file of his own.
static void check_numbers(void) {
  title("numbers");
  FILE* f = fopen("n1", "w");
  const int number = fileno(f);
  SHOW(fputs("stream", f), fclose(f));
  int fd = created("n2");
  SHOW(fd == number, write(fd, "descriptor", 10));
  show_file("n1");
  show_file("n2");
  SHOW(close(fd));
  f = fopen("n1", "r+");
  SHOW(fileno(f) == number, fgetc(f), close(number));
  SHOW(fgetc(f));  // buffered
  SHOW(fclose(f));

  // A program's mistakes: they do what they did.
  f = fopen("n1", "w");
  SHOW(fputs("nowhere", f), close(number), fclose(f));
  show_file("n1");
  f = fopen("n1", "w");
  SHOW(fputs("elsewhere", f), close(number), fd = open("n2", O_RDWR | O_TRUNC), fclose(f));
  SHOW(write(fd, "x", 1));
  show_file("n1");
  show_file("n2");

  f = fopen("n3", "w+");
  SHOW(fputs("before ", f), fflush(f));
  fd = created("n4");
  SHOW(write(fd, "raw ", 4), dup2(fd, number) == number, fputs("after", f), fflush(f));
  SHOW(write(fd, " raw", 4), close(fd), fclose(f), close(number));
  show_file("n3");
  show_file("n4");

  // Pipes and streams that libc opens by itself take numbers that were ours.
  f = fopen("n5", "w");
  SHOW(fputs("5", f), fclose(f));
  f = popen("cat > n6", "w");
  SHOW(fileno(f) == number, fputs("piped", f), pclose(f));
  f = popen("echo from a pipe", "r");
  char line[64];
  SHOW(fgets(line, sizeof(line), f) == line, pclose(f) == 0);
  f = fopen("n5", "a");
  SHOW(fileno(f) == number, fputs("6", f), fclose(f));
  show_file("n5");
  show_file("n6");
  f = fopen("n7", "rm");
  SHOW(f == NULL);
  make_file("n7", "mapped, perhaps");
  f = fopen("n7", "rm");
  SHOW(fgets(line, 5, f) == line, fclose(f));
  fd = created("n8");
  SHOW(fd == number, write(fd, "eight", 5), close(fd));
  show_file("n7");
  show_file("n8");
}

static void check_errors(void) {
  title("errors");
  FILE* f = fopen("/dev/full", "w");
  SHOW(fputs("no room", f), fflush(f), ferror(f), fclose(f));

  // RLIMIT_FSIZE
  f = fopen("e1", "w");
  SHOW(fputs("allowed", f), fflush(f));
  static char block[2 * kLargest];
  memset(block, 'b', sizeof(block));
  SHOW(fwrite(block, 1, sizeof(block), f) < sizeof(block), ferror(f));
  clearerr(f);
  SHOW(fseek(f, 7, SEEK_SET), fputs(" again", f), fflush(f), ftell(f), ftruncate(fileno(f), 13));
  SHOW(fclose(f));
  show_file("e1");

  // A descriptor under the stream that is not for its direction, or not there.
  f = fopen("e1", "w");
  const int read_only = open("e1", O_RDONLY);
  SHOW(dup2(read_only, fileno(f)) == fileno(f), fputs("?", f), fflush(f), ferror(f));
  SHOW(close(fileno(f)), fflush(f), fclose(f));
  f = fopen("e1", "r");
  const int write_only = open("e1", O_WRONLY);
  SHOW(dup2(write_only, fileno(f)) == fileno(f), fgetc(f), ferror(f), fputc('x', f), fclose(f));
  SHOW(close(read_only) | close(write_only));

  // Blocks that go past the buffer, from memory that is not there.
  char* gone = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SHOW(mprotect(gone, 8192, PROT_READ | PROT_WRITE));
  f = fopen("e2", "w+");
  SHOW(setvbuf(f, NULL, _IONBF, 0), fwrite(gone, 1, 1 << 20, f) < 1 << 20, ferror(f));
  SHOW(fwrite(gone + 8192, 1, 1 << 19, f), fclose(f));
  make_file("e2", "of no use");
  f = fopen("e2", "r+");
  SHOW(setvbuf(f, NULL, _IONBF, 0), fread(gone + 8192, 1, 1 << 19, f), ferror(f), fclose(f));
  SHOW(munmap(gone, 1 << 20));
}

static ssize_t cookie_write(void* cookie, const char* bytes, size_t count) {
  return (ssize_t)fwrite(bytes, 1, count, cookie);
}

static int cookie_close(void* cookie) { return fclose(cookie); }

static void check_other_streams(void) {
  title("streams without a file, and libc's own");
  char memory[32] = {0};
  FILE* f = fmemopen(memory, sizeof(memory), "w+");
  SHOW(fileno(f), fputs("in memory", f), fclose(f));
  printf("    %s\n", memory);
  char* grown = NULL;
  size_t size = 0;
  f = open_memstream(&grown, &size);
  for (int i = 0; i < 1000; ++i) fprintf(f, "%d ", i);
  SHOW(fclose(f), size);
  free(grown);
  FILE* under = fopen("cookie", "w");
  f = fopencookie(under, "w",
                  (cookie_io_functions_t){.write = cookie_write, .close = cookie_close});
  SHOW(fileno(f), fputs("by a cookie", f), fclose(f));
  show_file("cookie");
  f = tmpfile();
  show_stream(f);
  SHOW(fputs("temporary", f));
  rewind(f);
  SHOW(fgets(memory, 5, f) == memory, fclose(f));

  SHOW(getpwuid(0)->pw_uid);
  setpwent();
  SHOW(getpwent() == NULL);
  endpwent();
  SHOW(setlocale(LC_ALL, "C.UTF-8") == NULL);
  iconv_t conversion = iconv_open("ISO-8859-15", "UTF-8");
  SHOW(conversion == (iconv_t)-1, iconv_close(conversion));
  FILE* mounts = setmntent("table", "w");
  struct mntent entry = {"disk", "/there", "ext4", "rw", 0, 0};
  SHOW(addmntent(mounts, &entry), endmntent(mounts));
  mounts = setmntent("table", "r");
  SHOW(getmntent(mounts)->mnt_fsname[0], endmntent(mounts));
  show_file("table");

  f = fopen("wide", "w+");
  SHOW(fwide(f, 1), fputws(L"gr\u00fc\u00dfe\n", f));
  for (int i = 0; i < 5000; ++i) fputwc(L'\u20ac', f);
  SHOW(fflush(f));
  show_file("wide");
  rewind(f);
  wchar_t line[32];
  SHOW(fgetws(line, 32, f) == line, wcslen(line), fgetwc(f), ftell(f), fseek(f, 0, SEEK_END));
  SHOW(ftell(f), fclose(f));

  const int fd = created("dprintf");
  SHOW(write(fd, "raw ", 4), dprintf(fd, "%d %s ", 12, "dprintf"), lseek(fd, 0, SEEK_CUR));
  SHOW(write(fd, "raw", 3), dprintf(fd, "%9000d", 1), lseek(fd, 1, SEEK_SET), dprintf(fd, "-"));
  SHOW(close(fd), dprintf(fd, "closed"));
  show_file("dprintf");
}

// How a child ends, with bytes in the buffers of a stream of its own and of one it inherited.
static void check_end(const char* how) {
  printf("end by %s\n", how);
  FILE* inherited = fopen("inherited", "w");
  FILE* reader = fopen("modes", "r");  // made by main
  SHOW(fgetc(reader), fputs("twice ", inherited));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    FILE* own = fopen("own", "w");
    FILE* flushed = fopen("flushed", "w");
    fputs("buffered", own);
    fputs("to the file", flushed);
    fflush(flushed);
    fputs(" and buffered", flushed);
    fgetc(reader);
    switch (how[0]) {
      case 'e':
        exit(3);
      case 'q':
        quick_exit(4);
      default:
        _exit(5);
    }
  }
  show_status(child);
  SHOW(lseek(fileno(reader), 0, SEEK_CUR), fputs("once", inherited), fclose(inherited));
  SHOW(fgetc(reader), fclose(reader));
  show_file("own");
  show_file("flushed");
  show_file("inherited");
}

static FILE* g_stream;
static pthread_barrier_t g_pending;

static void* write_cancelled(void* writes) {
  pthread_barrier_wait(&g_pending);  // no cancellation point
  pthread_barrier_wait(&g_pending);
  if (writes != NULL) {
    fputs("cancelled", g_stream);
    fflush(g_stream);
  } else {
    fgetc(g_stream);
  }
  return NULL;
}

static void check_cancellation(void) {
  title("cancellation");
  static const char* const modes[] = {"w", "wc", "r+", "r+c"};
  for (int i = 0; i < 4; ++i) {
    make_file("cancelled", "content");
    g_stream = fopen("cancelled", modes[i]);
    pthread_barrier_init(&g_pending, NULL, 2);
    pthread_t thread;
    void* result;
    pthread_create(&thread, NULL, write_cancelled, i < 2 ? "" : NULL);
    pthread_barrier_wait(&g_pending);
    SHOW(pthread_cancel(thread));
    pthread_barrier_wait(&g_pending);
    SHOW(pthread_join(thread, &result));
    printf("    %s: %s\n", modes[i], result == PTHREAD_CANCELED ? "cancelled" : "finished");
    SHOW(ftrylockfile(g_stream));  // not left locked
    funlockfile(g_stream);
    show_file("cancelled");
    SHOW(fclose(g_stream));
    show_file("cancelled");
  }
}

int main(int argc, char** argv) {
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  umask(027);
  signal(SIGXFSZ, SIG_IGN);
  // Before the library has a file to watch, and after it has its pool.
  close(open("first", O_RDWR | O_CREAT, 0644));
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = kLargest;
  setrlimit(RLIMIT_FSIZE, &limit);
  make_file("modes", "0123456789");
  check_modes();
  check_last_bytes();
  check_reading();
  check_beside();
  check_buffers();
  check_fdopen();
  check_freopen();
  check_numbers();
  check_errors();
  check_other_streams();
  check_end("exit");
  check_end("quick_exit");
  check_end("_exit");
  check_cancellation();
#ifdef __GLIBC__
  SHOW(fcloseall());
#endif
  // Left open: written by exit, after the library's destructor.
  FILE* last = fopen("atexit", "w");
  for (int i = 0; i < 2000; ++i) fprintf(last, "line %d\n", i);
  FILE* appended = fopen("atexit2", "a");
  fputs("appended", appended);
  fflush(appended);
  fputs(" and again", appended);
  title("end");
  return 0;
}
