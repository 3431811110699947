/* I: process 1 of one run. A program must not be it: process 1 does not die of its own signals. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

_Noreturn static void fail(int socket, const char *what) {
  wire_fail(socket, what, errno);
  _exit(1);
}

/* Before there is an order: the next one would fare no better. */
_Noreturn static void unfit(int socket, const char *what) {
  wire_fail(socket, what, errno);
  _exit(INIT_UNFIT);
}

static void mount_scratch(int socket) {
  if (mount("w", "/w", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,nr_inodes=16,mode=755") || mkdir("/w/box", 0755) ||
      mkdir("/w/tmp", 0777) || mkdir("/w/shm", 0777) || mkdir("/w/out", 0755))
    unfit(socket, "scratch");
}

static void bound_scratch(int socket, const struct order *order) {
  char options[96];
  snprintf(options, sizeof options, "size=%ldk,nr_inodes=%ld", order->disk_kb, order->inodes);
  if (mount("w", "/w", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, options)) fail(socket, "scratch");
}

static int place_in_store(const struct site *site, const char *root) {
  for (int i = 0; i < site->root_count; i++)
    if (!strcmp(site->roots[i], root)) return i;
  errno = ENOENT;
  return -1;
}

static void show_roots(const struct order *order, const struct run_files *files) {
  for (int i = 0; i < order->root_count; i++) {
    char source[64];
    int place = place_in_store(files->site, order->roots[i]);
    snprintf(source, sizeof source, "/store/%d", place);
    if (place < 0 || mount(source, order->roots[i], NULL, MS_BIND | MS_REC, NULL)) fail(files->socket, order->roots[i]);
  }
}

/* A target outside the prepared places lies in the scratch folder, where it can be made. */
static void show_binds(int socket, const struct order *order) {
  for (int i = 0; i < order->bind_count; i++) {
    char source[NAME_MAX_BYTES + 16];
    struct stat kind;
    snprintf(source, sizeof source, "/workspace/%s", order->binds[i].source);
    if (lstat(source, &kind)) fail(socket, "bind");
    if (S_ISREG(kind.st_mode)) {
      int fd = open(order->binds[i].target, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
      if (fd >= 0) close(fd);
    } else {
      mkdir(order->binds[i].target, 0755);
    }
    if (mount(source, order->binds[i].target, NULL, MS_BIND, NULL)) fail(socket, order->binds[i].target);
  }
}

/* What a validator left in the last pass is there in the next, and its own. */
static void fill_out(int socket, const struct order *order) {
  char source[NAME_MAX_BYTES + 16];
  if (!order->out_from) return;
  snprintf(source, sizeof source, "/workspace/%s", order->out_from);
  int from = open(source, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const char *wrong = from < 0 ? "out_from" : copy_out(from, "/w/out", order->out_kb, order->out_files);
  if (wrong) fail(socket, wrong);
  close(from);
}

/* Mounted over, not unmounted: what came from a more privileged namespace is locked in place. */
static void hide_store(int socket) {
  if (mount("/none", "/store", NULL, MS_BIND, NULL) || mount("/none", "/workspace", NULL, MS_BIND, NULL))
    fail(socket, "hide");
}

void init_mount_proc(int socket) {
  unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  /* Init's own entry would show the command line of the judge, and the mounts with their places outside. */
  if (mount("proc", "/proc", "proc", flags, "subset=pid,hidepid=2") && mount("proc", "/proc", "proc", flags, "hidepid=2"))
    fail(socket, "proc");
}

void init_arm(int parent_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct pollfd parent = {.fd = parent_pipe, .events = POLLIN};
  if (poll(&parent, 1, 0) > 0 && (parent.revents & POLLHUP)) _exit(0);
}

static void report(int socket, const char *error_message) {
  struct message message = {.kind = MSG_FAILED};
  snprintf(message.text, sizeof message.text, "%s", error_message);
  wire_send(socket, &message, sizeof message, NULL, 0);
}

struct program {
  pid_t pid;
  int pidfd, control;
  struct start *start;
};

static int be_program(void *start) { guard_exec(start); }

/* In our own memory until it is executed, as vfork does it: nothing is copied only to be thrown away. We wait for it, so that
 * never two of us use that memory at once. */
static struct program fork_program(const struct order *order, int socket, int outside) {
  static char stack[65536] __attribute__((aligned(16)));
  static struct start start;
  struct program program = {.start = &start, .pidfd = -1};
  int control[2];
  char ready;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control)) unfit(socket, "socketpair");
  start = (struct start){.order = order, .control = control[1], .hide_mounts = outside >= 0, .outside = outside};
  program.pid = clone(be_program, stack + sizeof stack, CLONE_VM | CLONE_PIDFD | SIGCHLD, &start, &program.pidfd);
  if (program.pid < 0) unfit(socket, "fork");
  close(control[1]);
  program.control = control[0];
  if (wire_receive(control[0], &ready, 1, NULL, NULL, 0) != 1) report(socket, start.error_message), _exit(INIT_UNFIT);
  return program;
}

/* Its descriptors are its own from here on: a pipe to another program ends when the program's own end does. */
static void let_go(const struct program *program, int socket, const int *fds, int fd_count) {
  struct message started = {.kind = MSG_PROGRAM};
  wire_send(socket, &started, sizeof started, &program->pidfd, 1);
  close(program->pidfd);
  if (wire_send(program->control, "g", 1, fds, fd_count) != 1) fail(socket, "control");
  for (int i = 0; i < fd_count; i++) close(fds[i]);
}

static int take_order(const struct run_files *files, struct order *order, int *fds) {
  static char words[ORDER_BYTES_MAX];
  int fd_count = 8;
  ssize_t length = wire_receive(files->orders, words, sizeof words, fds, &fd_count, 0);
  if (length <= 0) _exit(0);
  const char *wrong = fd_count < 3 || fd_count > 6 ? "descriptors" : order_read(order, words, (size_t)length);
  if (wrong) errno = EINVAL, fail(files->socket, wrong);
  return fd_count;
}

_Noreturn void init_wait(int socket, const struct order *order, pid_t program, const char *error_message) {
  pid_t gone;
  struct message ended = {.kind = MSG_ENDED};
  int status, out = -1;
  while ((gone = wait4(-1, &status, 0, NULL)) != program)
    if (gone < 0 && errno != EINTR) fail(socket, "wait");
  if (*error_message) report(socket, error_message), _exit(1);
  ended.status = status;
  /* Whatever the program left behind, daemons in sessions of their own included. */
  kill(-1, SIGKILL);
  while (wait4(-1, NULL, 0, NULL) > 0 || errno == EINTR) {}
  struct rusage used;
  syscall(SYS_getrusage, RUSAGE_CHILDREN, &used);
  ended.cpu_us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000u +
                 (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  ended.maxrss_kb = (uint64_t)used.ru_maxrss;
  if (order->out_dir) out = open("/w/out", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  wire_send(socket, &ended, sizeof ended, &out, out >= 0);
  _exit(0);
}

_Noreturn void init_main(const struct run_files *files) {
  static struct order taken, *order = &taken;
  int fds[8];
  init_arm(files->parent_pipe);
  mount_scratch(files->socket);
  umask(022);
  struct program program = fork_program(order, files->socket, files->outside);
  int fd_count = take_order(files, order, fds);
  show_roots(order, files);
  bound_scratch(files->socket, order);
  show_binds(files->socket, order);
  fill_out(files->socket, order);
  if (order->proc) init_mount_proc(files->socket);
  hide_store(files->socket);
  let_go(&program, files->socket, fds, fd_count);
  init_wait(files->socket, order, program.pid, program.start->error_message);
}
