/* Hostile programs, each a case with the verdict that it must get.
 *
 *   zoo --list      name, verdict and signal of every case
 *   zoo NAME        be it: prints "held" when the sandbox held, "ESCAPED" when it did not
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

struct zoo_case {
  const char *name, *verdict;
  int signal;
  bool (*escaped)(void);
};
void zoo_add(const char *name, const char *verdict, int signal, bool (*escaped)(void));

/* The body answers whether it got out. */
#define CASE(name, verdict, signal)                                                            \
  static bool escape_##name(void);                                                             \
  __attribute__((constructor)) static void add_##name(void) {                                  \
    zoo_add(#name, verdict, signal, escape_##name);                                            \
  }                                                                                            \
  static bool escape_##name(void)

#define CALL(name, ...) CASE(call_##name, "OK", 0) { return syscall(__VA_ARGS__) != -1; }
#define READS(name, path) CASE(read_##name, "OK", 0) { return open(path, O_RDONLY) >= 0; }
#define WRITES(name, path) CASE(write_##name, "OK", 0) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) >= 0; }
#define SOCKET(name, ...) CASE(socket_##name, "OK", 0) { return socket(__VA_ARGS__) >= 0; }
#define DIES(name, number) CASE(dies_##name, "RE", number) { raise(number); return true; }
