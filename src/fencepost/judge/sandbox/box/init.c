/* I: process 1 of one run. A program must not be it: process 1 does not die of its own signals. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

_Noreturn static void fail(int socket, const char *what) {
  wire_fail(socket, what, errno);
  _exit(1);
}

static void mount_scratch(int socket, const struct order *order) {
  char options[96];
  snprintf(options, sizeof options, "size=%ldk,nr_inodes=%ld,mode=755", order->disk_kb, order->inodes);
  if (mount("w", "/w", "tmpfs", MS_NOSUID | MS_NODEV, options)) fail(socket, "scratch");
  if (mkdir("/w/box", 0755) || mkdir("/w/tmp", 0777) || mkdir("/w/shm", 0777) || mkdir("/w/out", 0755))
    fail(socket, "scratch");
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

/* Mounted over, not unmounted: what came from a more privileged namespace is locked in place. */
static void hide_store(int socket) {
  if (mount("/none", "/store", NULL, MS_BIND, NULL) || mount("/none", "/workspace", NULL, MS_BIND, NULL))
    fail(socket, "hide");
}

static void mount_proc(int socket) {
  unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (mount("proc", "/proc", "proc", flags, "subset=pid") && mount("proc", "/proc", "proc", flags, NULL))
    fail(socket, "proc");
}

static void arm(const struct run_files *files) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct pollfd parent = {.fd = files->lifeline, .events = POLLIN};
  if (poll(&parent, 1, 0) > 0 && (parent.revents & POLLHUP)) _exit(0);
}

static int start_program(const struct order *order, const struct run_files *files) {
  int complaint[2];
  if (pipe2(complaint, O_CLOEXEC)) fail(files->socket, "pipe");
  pid_t program = fork();
  if (program < 0) fail(files->socket, "fork");
  if (program == 0) guard_exec(order, files, complaint[1]);
  close(complaint[1]);
  /* A pipe to another program ends when the program's own end does. */
  for (int i = 0; i < 3; i++) close(files->standard[i]);
  int pidfd = (int)syscall(SYS_pidfd_open, program, 0);
  struct message started = {.kind = MSG_PROGRAM};
  if (pidfd < 0) fail(files->socket, "pidfd");
  wire_send(files->socket, &started, sizeof started, &pidfd, 1);
  close(pidfd);
  /* End of file when exec has closed it; a text when something before it failed. */
  char text[140] = {0};
  ssize_t got = read(complaint[0], text, sizeof text - 1);
  if (got > 0) {
    struct message message = {.kind = MSG_FAILED};
    snprintf(message.text, sizeof message.text, "%s", text);
    wire_send(files->socket, &message, sizeof message, NULL, 0);
    _exit(1);
  }
  close(complaint[0]);
  return program;
}

_Noreturn void init_main(const struct order *order, const struct run_files *files) {
  arm(files);
  show_roots(order, files);
  mount_scratch(files->socket, order);
  show_binds(files->socket, order);
  if (order->proc) mount_proc(files->socket);
  hide_store(files->socket);
  umask(022);
  pid_t program = start_program(order, files), gone;
  struct message ended = {.kind = MSG_ENDED};
  int status, out = -1;
  while ((gone = wait4(-1, &status, 0, NULL)) != program)
    if (gone < 0 && errno != EINTR) fail(files->socket, "wait");
  ended.status = status;
  /* Whatever the program left behind, daemons in sessions of their own included. */
  kill(-1, SIGKILL);
  while (wait4(-1, NULL, 0, NULL) > 0 || errno == EINTR) {}
  struct rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  ended.cpu_us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000u +
                 (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  ended.maxrss_kb = (uint64_t)used.ru_maxrss;
  if (order->out_dir) out = open("/w/out", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  wire_send(files->socket, &ended, sizeof ended, &out, out >= 0);
  _exit(0);
}
