/* Too much of something: memory, time, output, files, processes. */
#include "zoo.h"

static void touch_for_ever(bool map) {
  for (;;) {
    char *p = map ? mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : malloc(1 << 20);
    if (p && p != MAP_FAILED) memset(p, 1, 1 << 20);
  }
}
static void spin(void) {
  for (volatile unsigned long i = 0;; i++) {}
}
static volatile char sink;
static int recurse(int depth) {
  volatile char frame[4096];
  frame[0] = (char)depth;
  sink = frame[0];
  return recurse(depth + 1) + frame[0];
}

CASE(memory_malloc, "MLE", SIGKILL) { touch_for_ever(false); return true; }
CASE(memory_mmap, "MLE", SIGKILL) { touch_for_ever(true); return true; }
CASE(memory_shared, "MLE", SIGKILL) {
  char *p = mmap(0, 1ul << 30, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(p, 1, 1ul << 30);
  return true;
}
CASE(memory_memfd, "MLE", SIGKILL) {
  static char block[1 << 16];
  for (int n = 0; n < 1000; n++) {
    int fd = (int)syscall(SYS_memfd_create, "m", 0);
    for (int i = 0; i < 15; i++)
      if (write(fd, block, sizeof block) < 0) return false;
    mmap(0, sizeof block, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
  }
  return true;
}
CASE(memory_stack, "MLE", -1) { return recurse(0) == 1; }
CASE(memory_children, "MLE", -1) {
  for (int i = 0; i < 8; i++)
    if (!fork()) {
      char *p = malloc(20 << 20);
      memset(p, 1, 20 << 20);
      pause();
    }
  spin();
  return true;
}
CASE(memory_big_static, "MLE", SIGKILL) {
  static char block[256 << 20];
  memset(block, 1, sizeof block);
  return block[5] != 1;
}
CASE(memory_fork_then_eat, "MLE", -1) {
  if (fork()) wait(NULL);
  else touch_for_ever(false);
  return false;
}
CASE(memory_below_the_limit, "OK", 0) {
  char *volatile p = malloc(32 << 20);
  memset(p, 1, 32 << 20);
  return p[99] != 1;
}
/* What four processes share is there once. */
CASE(memory_shared_by_forks, "OK", 0) {
  char *volatile p = malloc(32 << 20);
  memset(p, 1, 32 << 20);
  for (int i = 0; i < 3; i++)
    if (!fork()) pause();
  usleep(100000);
  return p[99] != 1;
}
CASE(memory_reserved_only, "OK", 0) {
  return mmap(0, 1ul << 33, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED;
}

CASE(memory_grows_in_place, "MLE", SIGKILL) {
  size_t size = 1 << 20;
  char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (;; size *= 2) {
    p = mremap(p, size, 2 * size, MREMAP_MAYMOVE);
    if (p == MAP_FAILED) return false;
    memset(p, 1, 2 * size);
  }
}
CASE(memory_break, "MLE", SIGKILL) {
  for (;;) {
    char *p = sbrk(1 << 20);
    if (p == (void *)-1) return false;
    memset(p, 1, 1 << 20);
  }
}
static void *eat(void *nothing) {
  touch_for_ever(true);
  return nothing;
}
CASE(memory_by_threads, "MLE", SIGKILL) {
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, eat, 0);
  pause();
  return true;
}
CASE(memory_by_a_daemon, "MLE", -1) {
  if (!fork()) {
    setsid();
    if (!fork()) touch_for_ever(true);
    _exit(0);
  }
  for (;;) pause();
}
/* What the kernel keeps for pipes is bounded by the descriptors that there may be. */
CASE(memory_in_pipes, "OK", 0) {
  static char block[1 << 16];
  for (int pair[2]; !pipe(pair);) {
    fcntl(pair[1], F_SETFL, O_NONBLOCK);
    if (write(pair[1], block, sizeof block) < 0) return false;
  }
  return errno != EMFILE;
}
CASE(time_spin, "TLE", SIGKILL) { spin(); return true; }
CASE(time_in_the_kernel, "TLE", SIGKILL) {
  for (;;) getppid(), syscall(SYS_getuid);
}
CASE(time_threads, "TLE", SIGKILL) {
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, (void *(*)(void *))spin, 0);
  spin();
  return true;
}
CASE(time_children, "TLE", SIGKILL) {
  for (int i = 0; i < 3; i++)
    if (!fork()) spin();
  wait(NULL);
  return true;
}
CASE(time_child_chain, "TLE", SIGKILL) {
  for (;;) {
    pid_t child = fork();
    if (child == 0) {
      for (volatile int i = 0; i < 3000000; i++) {}
      _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
  }
}
CASE(time_by_a_daemon, "TLE", SIGKILL) {
  if (!fork()) {
    setsid();
    if (!fork()) spin();
    _exit(0);
  }
  for (;;) pause();
}
CASE(time_polls, "TLE", SIGKILL) {
  fd_set none;
  for (;;) {
    FD_ZERO(&none);
    struct timeval wait = {0, 1000};
    select(0, &none, 0, 0, &wait);
  }
}
CASE(time_waits_for_itself, "TLE", SIGKILL) {
  int pair[2];
  char c;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return true;
  return read(pair[0], &c, 1) == 1;
}
CASE(time_execs_for_ever, "TLE", SIGKILL) {
  execl("/app/zoo", "zoo", "time_execs_for_ever", NULL);
  return true;
}
CASE(time_sleep, "TLE", SIGKILL) { sleep(3600); return true; }
CASE(time_pause, "TLE", SIGKILL) { pause(); return true; }
CASE(time_reads_nothing, "TLE", SIGKILL) {
  int pair[2];
  char c;
  if (pipe(pair)) return true;
  return read(pair[0], &c, 1) >= 0;
}
CASE(time_stopped, "TLE", SIGKILL) { raise(SIGSTOP); return true; }
CASE(time_ignores_signals, "TLE", SIGKILL) {
  for (int i = 1; i < 65; i++) signal(i, SIG_IGN);
  spin();
  return true;
}
CASE(time_blocks_signals, "TLE", SIGKILL) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  spin();
  return true;
}
CASE(time_deadlock, "TLE", SIGKILL) {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  pthread_mutex_lock(&lock);
  return true;
}
CASE(time_fork_and_exit_race, "OK", 0) {
  /* Children that live on when the program has ended. */
  for (int i = 0; i < 10; i++)
    if (!fork()) {
      setsid();
      if (!fork()) spin();
      _exit(0);
    }
  return false;
}

CASE(output_stdout, "OLE", -1) {
  static char block[1 << 16];
  for (;;)
    if (write(1, block, sizeof block) < 0) return false;
}
CASE(output_stderr, "OLE", -1) {
  static char block[1 << 16];
  for (;;)
    if (write(2, block, sizeof block) < 0) return false;
}
CASE(output_ignores_the_signal, "OLE", 0) {
  static char block[1 << 16];
  signal(SIGXFSZ, SIG_IGN);
  while (write(1, block, sizeof block) > 0) {}
  _exit(0);
}
CASE(output_by_children, "OLE", -1) {
  static char block[1 << 16];
  for (int i = 0; i < 4; i++)
    if (!fork())
      for (;;)
        if (write(1, block, sizeof block) < 0) _exit(0);
  while (wait(NULL) > 0) {}
  _exit(0);
}
CASE(output_by_a_copy, "OLE", -1) {
  static char block[1 << 16];
  int out = dup(1);
  close(1);
  for (;;)
    if (pwrite(out, block, sizeof block, lseek(out, 0, SEEK_END)) < 0) _exit(0);
}
CASE(output_sparse, "OLE", -1) {
  if (ftruncate(1, 1l << 40)) return false;
  return true;
}
CASE(output_seek_far, "OLE", -1) {
  lseek(1, 1l << 40, SEEK_SET);
  return write(1, "x", 1) == 1;
}
CASE(disk_one_file, "OLE", SIGXFSZ) {
  static char block[1 << 16];
  int fd = open("/box/big", O_CREAT | O_WRONLY, 0644);
  while (write(fd, block, sizeof block) > 0) {}
  return false;
}
CASE(disk_many_files, "OK", 0) {
  static char block[1 << 16];
  char path[64];
  for (int i = 0; i < 3000; i++) {
    snprintf(path, sizeof path, "/tmp/%d", i);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    if (fd < 0 || write(fd, block, sizeof block) != sizeof block) return false;
    close(fd);
  }
  return true;
}
CASE(disk_inodes, "OK", 0) {
  char path[64];
  for (int i = 0; i < 100000; i++) {
    snprintf(path, sizeof path, "/tmp/%d", i);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    if (fd < 0) return errno != ENOSPC;
    close(fd);
  }
  return true;
}
CASE(disk_folders, "OK", 0) {
  for (int i = 0; i < 100000; i++)
    if (mkdir("d", 0755) || chdir("d")) return false;
  return true;
}
CASE(disk_long_names, "OK", 0) {
  char path[280];
  for (int i = 0; i < 100000; i++) {
    snprintf(path, sizeof path, "/tmp/%0240d", i);
    if (symlink(path, path)) return errno != ENOSPC;
  }
  return true;
}
CASE(disk_links, "OK", 0) {
  char path[64];
  close(open("/tmp/one", O_CREAT | O_WRONLY, 0644));
  for (int i = 0; i < 100000; i++) {
    snprintf(path, sizeof path, "/tmp/%d", i);
    if (link("/tmp/one", path)) return errno != ENOSPC;
  }
  return true;
}
CASE(disk_after_removal, "OK", 0) {
  /* Removed files that are still open take room. */
  static char block[1 << 16];
  for (int i = 0; i < 60; i++) {
    int fd = open("/tmp/gone", O_CREAT | O_RDWR, 0644);
    unlink("/tmp/gone");
    for (int n = 0; n < 15; n++)
      if (write(fd, block, sizeof block) != sizeof block) return errno != ENOSPC;
  }
  return true;
}
CASE(disk_shared_memory, "OLE", SIGXFSZ) {
  int fd = open("/dev/shm/x", O_CREAT | O_RDWR, 0600);
  return fallocate(fd, 0, 0, 1 << 20) == 0 && fallocate(fd, 0, 0, 1 << 29) == 0;
}
CASE(open_files, "OK", 0) {
  for (int i = 0; i < 5000; i++)
    if (dup(0) < 0) return errno != EMFILE;
  return true;
}

CASE(fork_bomb, "TLE", SIGKILL) {
  for (;;) fork();
}
CASE(fork_until_refused, "OK", 0) {
  for (int i = 0; i < 10000; i++) {
    pid_t child = fork();
    if (child < 0) return errno != EAGAIN;
    if (child == 0) pause(), _exit(0);
  }
  return true;
}
CASE(threads_until_refused, "OK", 0) {
  pthread_t thread;
  for (int i = 0; i < 10000; i++)
    if (pthread_create(&thread, 0, (void *(*)(void *))pause, 0)) return false;
  return true;
}
CASE(thread_bomb, "TLE", -1) {
  for (;;) {
    pthread_t thread;
    if (!pthread_create(&thread, 0, (void *(*)(void *))spin, 0)) pthread_detach(thread);
  }
}
CASE(sessions_until_refused, "OK", 0) {
  for (int i = 0; i < 10000; i++) {
    pid_t child = fork();
    if (child < 0) return errno != EAGAIN;
    if (child == 0) {
      setsid();
      prctl(PR_SET_PDEATHSIG, 0);
      for (;;) pause();
    }
  }
  return true;
}
CASE(vfork_bomb, "TLE", -1) {
  for (;;)
    if (vfork() == 0) _exit(0);
}
