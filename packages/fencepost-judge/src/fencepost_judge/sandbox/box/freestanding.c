/* What a C library would provide: the start, the system calls, memory and strings.
 *
 * The usual one first asks the processor for its caches, leaf by leaf, to copy large blocks faster. In a virtual machine each question
 * goes to the host: half a millisecond, a sixth of a whole run. We copy no large blocks. Prototypes and types are the library's.
 */
#define _GNU_SOURCE
#include "box.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv);

uintptr_t __stack_chk_guard;
_Noreturn void __stack_chk_fail(void) { abort(); }

static long page_bytes = 4096, clock_ticks = 100;

#if defined(__x86_64__)
__asm__(".text\n.globl _start\n.type _start,@function\n_start:\n"
        "  xor %ebp,%ebp\n  mov %rsp,%rdi\n  and $-16,%rsp\n  call ground_begin\n  hlt\n");
/* start_on(flags, stack, pidfd, function, argument) */
__asm__(".text\n.type start_on,@function\nstart_on:\n"
        "  sub $16,%rsi\n  mov %rcx,(%rsi)\n  mov %r8,8(%rsi)\n  xor %r10d,%r10d\n  xor %r8d,%r8d\n"
        "  mov $56,%eax\n  syscall\n  test %rax,%rax\n  jz 1f\n  ret\n"
        "1:\n  xor %ebp,%ebp\n  pop %rax\n  pop %rdi\n  call *%rax\n  hlt\n");

static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return number;
}
#elif defined(__aarch64__)
__asm__(".text\n.globl _start\n.type _start,%function\n_start:\n"
        "  mov x29,#0\n  mov x30,#0\n  mov x0,sp\n  and x1,x0,#-16\n  mov sp,x1\n  bl ground_begin\n  brk #0\n");
__asm__(".text\n.type start_on,%function\nstart_on:\n"
        "  stp x3,x4,[x1,#-16]!\n  mov x3,#0\n  mov x4,#0\n  mov x8,#220\n  svc #0\n  cbz x0,1f\n  ret\n"
        "1:\n  mov x29,#0\n  mov x30,#0\n  ldp x1,x0,[sp],#16\n  blr x1\n  brk #0\n");

static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#endif

long start_on(unsigned long flags, void *stack, int *pidfd, int (*function)(void *), void *argument);

/* Our own addresses, which are known only now. Nothing before this may use a table of pointers. */
static void relocate(char *base, const Elf64_Dyn *dynamic) {
  size_t at = 0, size = 0;
  for (; dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag == DT_RELA) at = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_RELASZ) size = dynamic->d_un.d_val;
  }
  const Elf64_Rela *entry = (const Elf64_Rela *)(base + at);
  for (size_t i = 0; i < size / sizeof *entry; i++) *(char **)(base + entry[i].r_offset) = base + entry[i].r_addend;
}

extern const Elf64_Dyn _DYNAMIC[] __attribute__((visibility("hidden")));
extern char __ehdr_start[] __attribute__((visibility("hidden")));

/* The kernel leaves: the count, the arguments, the environment, what it has to say. */
_Noreturn void ground_begin(long *left) {
  relocate(__ehdr_start, _DYNAMIC);
  long *more = left + 1 + left[0] + 1;
  while (*more) more++;
  for (more++; more[0] != AT_NULL; more += 2) {
    if (more[0] == AT_PAGESZ) page_bytes = more[1];
    if (more[0] == AT_CLKTCK) clock_ticks = more[1];
    if (more[0] == AT_RANDOM) __stack_chk_guard = *(uintptr_t *)more[1] & ~(uintptr_t)255;
  }
  _exit(main((int)left[0], (char **)(left + 1)));
}

static int last_error;
int *__errno_location(void) { return &last_error; }

static long checked(long result) {
  if ((unsigned long)result < -4095ul) return result;
  errno = (int)-result;
  return -1;
}

#define CALL_(number, a, b, c, d, e, f, ...) checked(call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))
#define CALL(...) CALL_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

long syscall(long number, ...) {
  va_list given;
  long a[6];
  va_start(given, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(given, long);
  va_end(given);
  return checked(call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

_Noreturn void _exit(int code) {
  for (;;) CALL(SYS_exit_group, code);
}
_Noreturn void abort(void) {
  kill(getpid(), SIGABRT);
  _exit(127);
}

/* ---- files */
int openat(int folder, const char *path, int flags, ...) {
  va_list given;
  va_start(given, flags);
  int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(given, int) : 0;
  va_end(given);
  return (int)CALL(SYS_openat, folder, path, flags, mode);
}
int open(const char *path, int flags, ...) {
  va_list given;
  va_start(given, flags);
  int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(given, int) : 0;
  va_end(given);
  return (int)CALL(SYS_openat, AT_FDCWD, path, flags, mode);
}
int fcntl(int fd, int what, ...) {
  va_list given;
  va_start(given, what);
  long value = va_arg(given, long);
  va_end(given);
  return (int)CALL(SYS_fcntl, fd, what, value);
}
int close(int fd) { return (int)CALL(SYS_close, fd); }
ssize_t read(int fd, void *to, size_t size) { return CALL(SYS_read, fd, to, size); }
ssize_t write(int fd, const void *from, size_t size) { return CALL(SYS_write, fd, from, size); }
int access(const char *path, int mode) { return (int)CALL(SYS_faccessat, AT_FDCWD, path, mode); }
int chdir(const char *path) { return (int)CALL(SYS_chdir, path); }
int chmod(const char *path, mode_t mode) { return (int)CALL(SYS_fchmodat, AT_FDCWD, path, mode); }
int fchmod(int fd, mode_t mode) { return (int)CALL(SYS_fchmod, fd, mode); }
int chown(const char *path, uid_t uid, gid_t gid) { return (int)CALL(SYS_fchownat, AT_FDCWD, path, uid, gid, 0); }
int mkdirat(int folder, const char *path, mode_t mode) { return (int)CALL(SYS_mkdirat, folder, path, mode); }
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int rmdir(const char *path) { return (int)CALL(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); }
int mknod(const char *path, mode_t mode, dev_t device) { return (int)CALL(SYS_mknodat, AT_FDCWD, path, mode, device); }
int symlink(const char *to, const char *path) { return (int)CALL(SYS_symlinkat, to, AT_FDCWD, path); }
ssize_t readlink(const char *path, char *to, size_t size) { return CALL(SYS_readlinkat, AT_FDCWD, path, to, size); }
int stat(const char *path, struct stat *found) { return (int)CALL(SYS_newfstatat, AT_FDCWD, path, found, 0); }
int lstat(const char *path, struct stat *found) { return (int)CALL(SYS_newfstatat, AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW); }
int fstat(int fd, struct stat *found) { return (int)CALL(SYS_newfstatat, fd, "", found, AT_EMPTY_PATH); }
mode_t umask(mode_t mode) { return (mode_t)CALL(SYS_umask, mode); }
int dup3(int from, int to, int flags) { return (int)CALL(SYS_dup3, from, to, flags); }
int pipe2(int fds[2], int flags) { return (int)CALL(SYS_pipe2, fds, flags); }
int mount(const char *from, const char *to, const char *kind, unsigned long flags, const void *options) {
  return (int)CALL(SYS_mount, from, to, kind, flags, options);
}
int umount2(const char *path, int flags) { return (int)CALL(SYS_umount2, path, flags); }

/* Unlike dup3 it may be asked for the same one. */
int dup2(int from, int to) { return from == to ? (fcntl(from, F_GETFD, 0L) < 0 ? -1 : to) : dup3(from, to, 0); }

struct __dirstream { int fd; long at, end; char room[8192] __attribute__((aligned(8))); };

DIR *fdopendir(int fd) {
  if (fd < 0) return NULL;
  long place = CALL(SYS_mmap, 0, sizeof(struct __dirstream), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == -1) return NULL;
  DIR *listing = (DIR *)place;
  listing->fd = fd;
  return listing;
}
DIR *opendir(const char *path) { return fdopendir(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
struct dirent *readdir(DIR *listing) {
  if (listing->at >= listing->end) {
    listing->at = 0;
    listing->end = CALL(SYS_getdents64, listing->fd, listing->room, sizeof listing->room);
    if (listing->end <= 0) return NULL;
  }
  struct dirent *entry = (struct dirent *)(listing->room + listing->at);
  listing->at += entry->d_reclen;
  return entry;
}
int closedir(DIR *listing) {
  close(listing->fd);
  return (int)CALL(SYS_munmap, listing, sizeof *listing);
}

/* ---- processes and the clock */
pid_t getpid(void) { return (pid_t)CALL(SYS_getpid); }
uid_t getuid(void) { return (uid_t)CALL(SYS_getuid); }
uid_t geteuid(void) { return (uid_t)CALL(SYS_geteuid); }
gid_t getegid(void) { return (gid_t)CALL(SYS_getegid); }
int setresuid(uid_t a, uid_t b, uid_t c) { return (int)CALL(SYS_setresuid, a, b, c); }
int setresgid(gid_t a, gid_t b, gid_t c) { return (int)CALL(SYS_setresgid, a, b, c); }
int setfsuid(uid_t uid) { return (int)CALL(SYS_setfsuid, uid); }
int setfsgid(gid_t gid) { return (int)CALL(SYS_setfsgid, gid); }
int setgroups(size_t count, const gid_t *groups) { return (int)CALL(SYS_setgroups, count, groups); }
pid_t setsid(void) { return (pid_t)CALL(SYS_setsid); }
int sethostname(const char *name, size_t size) { return (int)CALL(SYS_sethostname, name, size); }
int unshare(int flags) { return (int)CALL(SYS_unshare, flags); }
int kill(pid_t pid, int number) { return (int)CALL(SYS_kill, pid, number); }
pid_t fork(void) { return (pid_t)CALL(SYS_clone, SIGCHLD); }
pid_t wait4(pid_t pid, int *status, int flags, struct rusage *used) { return (pid_t)CALL(SYS_wait4, pid, status, flags, used); }
pid_t waitpid(pid_t pid, int *status, int flags) { return wait4(pid, status, flags, NULL); }
int execve(const char *path, char *const args[], char *const env[]) { return (int)CALL(SYS_execve, path, args, env); }
int clock_gettime(clockid_t clock, struct timespec *now) { return (int)CALL(SYS_clock_gettime, clock, now); }

int prctl(int what, ...) {
  va_list given;
  unsigned long a[4];
  va_start(given, what);
  for (int i = 0; i < 4; i++) a[i] = va_arg(given, unsigned long);
  va_end(given);
  return (int)CALL(SYS_prctl, what, a[0], a[1], a[2], a[3]);
}

/* For a function that does not come back, on a stack of its own; the last argument is where the pidfd goes. */
int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) {
  va_list given;
  va_start(given, argument);
  int *pidfd = va_arg(given, int *);
  va_end(given);
  return (int)checked(start_on((unsigned)flags, stack, pidfd, function, argument));
}

/* Only SIG_IGN and SIG_DFL: for a function of ours the kernel would have to be told how to come back. */
void (*signal(int number, void (*handler)(int)))(int) {
  struct { void (*handler)(int); unsigned long rest[3]; } action = {handler, {0}};
  CALL(SYS_rt_sigaction, number, &action, NULL, 8);
  return handler;
}
int sigemptyset(sigset_t *set) {
  memset(set, 0, sizeof *set);
  return 0;
}
int sigprocmask(int how, const sigset_t *set, sigset_t *old) { return (int)CALL(SYS_rt_sigprocmask, how, set, old, 8); }

/* As the kernel numbers them: what all threads of the process have used, to the nanosecond. */
int clock_getcpuclockid(pid_t pid, clockid_t *clock) {
  *clock = (clockid_t)((~(unsigned)pid << 3) | 2);
  return 0;
}
int usleep(useconds_t us) {
  struct timespec time = {us / 1000000, us % 1000000 * 1000};
  return (int)CALL(SYS_nanosleep, &time, NULL);
}
int poll(struct pollfd *fds, nfds_t count, int ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000l};
  return (int)CALL(SYS_ppoll, fds, count, ms < 0 ? NULL : &time, NULL, 0);
}
int socketpair(int family, int kind, int protocol, int fds[2]) { return (int)CALL(SYS_socketpair, family, kind, protocol, fds); }
ssize_t sendmsg(int fd, const struct msghdr *head, int flags) { return CALL(SYS_sendmsg, fd, head, flags); }
ssize_t recvmsg(int fd, struct msghdr *head, int flags) { return CALL(SYS_recvmsg, fd, head, flags); }

static long processors(void) {
  unsigned long mask[128] = {0};
  long count = 0, size = CALL(SYS_sched_getaffinity, 0, sizeof mask, mask);
  for (long i = 0; i < size / (long)sizeof *mask; i++)
    for (unsigned long left = mask[i]; left; left &= left - 1) count++;
  return count;
}
long sysconf(int what) { return what == _SC_PAGESIZE ? page_bytes : what == _SC_CLK_TCK ? clock_ticks : processors(); }
