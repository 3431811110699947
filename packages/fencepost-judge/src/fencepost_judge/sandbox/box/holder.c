/* H: makes the namespaces and the read-only root once, and starts one init for each run in them. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>


_Noreturn static void fail(int socket, const char *what) {
  wire_fail(socket, what, errno);
  _exit(1);
}

static bool write_map(int proc, pid_t pid, const char *name, const char *text) {
  char path[64];
  snprintf(path, sizeof path, "%d/%s", (int)pid, name);
  int fd = openat(proc, path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return done;
}

bool write_maps(int proc, pid_t pid, uid_t uid, gid_t gid) {
  char line[64];
  write_map(proc, pid, "setgroups", "deny");
  snprintf(line, sizeof line, "%d %u 1\n", INSIDE_ID, (unsigned)gid);
  if (!write_map(proc, pid, "gid_map", line)) return false;
  snprintf(line, sizeof line, "%d %u 1\n", INSIDE_ID, (unsigned)uid);
  return write_map(proc, pid, "uid_map", line);
}

/* The next run: a new process 1 in a pid and a mount namespace of its own, made before it is ordered. Answers when it
 * is gone; false when none can be made. */
static bool serve_one(int socket, int orders, int outside, const struct site *site) {
  struct run_files files = {.socket = socket, .orders = orders, .outside = outside, .site = site};
  int parent_pipe[2], pidfd = -1, status = 0;
  if (pipe2(parent_pipe, O_CLOEXEC)) fail(socket, "pipe");
  files.parent_pipe = parent_pipe[0];
  pid_t init = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
  if (init == 0) {
    close(parent_pipe[1]);
    init_main(&files);
  }
  if (init < 0) fail(socket, "clone");
  close(parent_pipe[0]);
  struct message begun = {.kind = MSG_BEGUN}, done = {.kind = MSG_DONE};
  wire_send(socket, &begun, sizeof begun, &pidfd, 1);
  while (waitpid(init, &status, 0) < 0 && errno == EINTR) {}
  close(pidfd);
  close(parent_pipe[1]);
  wire_send(socket, &done, sizeof done, NULL, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != INIT_UNFIT;
}

_Noreturn static void serve(int socket, int orders, const struct site *site) {
  /* Without the host's proc no run has one, and nothing lists its mounts. */
  int outside = open("/store/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  guard_prepare();
  while (serve_one(socket, orders, outside, site)) {}
  _exit(1);
}

_Noreturn static void holder_main(int socket, int orders, int mapped, const struct site *site, bool root) {
  struct message ready = {.kind = MSG_READY};
  char byte = 0;
  bool users = true;
  /* If the machine runs out of memory, the program is killed first, and not its supervisor. */
  write_text("/proc/self/oom_score_adj", "1000");
  if (root) {
    /* While we still are root: the folders of a toolchain may lie where only root can go. */
    if (setgroups(0, NULL) || unshare(CLONE_NEWNS)) fail(socket, "unshare");
    ready.maxrss_kb = root_for_many(socket, site);
    users = !unshare(CLONE_NEWUSER | CLONE_NEWNS | KEPT);
    if (!users && unshare(CLONE_NEWNS | KEPT)) fail(socket, "unshare");
  } else if (unshare(CLONE_NEWUSER | CLONE_NEWNS | KEPT)) {
    fail(socket, "user namespace");
  }
  if (users) {
    struct message ask = {.kind = MSG_BEGUN};
    wire_send(socket, &ask, sizeof ask, NULL, 0);
    if (read(mapped, &byte, 1) != 1 || byte != 'm') fail(socket, "uid map");
    if (root && (setresgid(INSIDE_ID, INSIDE_ID, INSIDE_ID) || setresuid(INSIDE_ID, INSIDE_ID, INSIDE_ID)))
      fail(socket, "uid");
  }
  if (!root) ready.maxrss_kb = root_for_many(socket, site);
  /* After the change of credentials, which would have cleared it. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct pollfd parent = {.fd = mapped, .events = POLLIN};
  if (poll(&parent, 1, 0) > 0 && (parent.revents & POLLHUP)) _exit(0);
  prctl(PR_SET_DUMPABLE, 0);
  if (sethostname("box", 3)) fail(socket, "hostname");
  ready.status = users;
  wire_send(socket, &ready, sizeof ready, NULL, 0);
  serve(socket, orders, site);
}

const char *holder_begin(struct holder *holder, const struct site *site) {
  int pair[2], orders[2], mapped[2];
  bool root = geteuid() == 0;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ||
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, orders) || pipe2(mapped, O_CLOEXEC))
    return "socketpair";
  holder->pid = fork();
  if (holder->pid < 0) return "fork";
  if (holder->pid == 0) {
    close(pair[0]);
    close(orders[0]);
    close(mapped[1]);
    holder_main(pair[1], orders[1], mapped[0], site, root);
  }
  close(pair[1]);
  close(orders[1]);
  close(mapped[0]);
  holder->socket = pair[0];
  holder->orders = orders[0];
  holder->mapped = mapped[1];
  return NULL;
}

const char *holder_await(struct holder *holder, const struct site *site) {
  static struct message message;
  bool root = geteuid() == 0;
  for (;;) {
    if (wire_receive(holder->socket, &message, sizeof message, NULL, NULL, 0) <= 0) return "the holder died";
    if (message.kind == MSG_FAILED) return message.text;
    if (message.kind == MSG_READY) break;
    uid_t uid = root ? site->outer_uid : geteuid();
    gid_t gid = root ? (gid_t)site->outer_uid : getegid();
    int proc = open("/proc", O_PATH | O_CLOEXEC);
    bool mapped = write_maps(proc, holder->pid, uid, gid);
    close(proc);
    if (!mapped || write(holder->mapped, "m", 1) != 1) return "uid map refused";
  }
  holder->user_namespace = message.status;
  holder->proc = message.maxrss_kb;
  return NULL;
}

void holder_kill(const struct holder *holder) {
  if (holder->pid > 0) kill(holder->pid, SIGKILL);
}

void holder_bury(struct holder *holder) {
  if (holder->pid <= 0) return;
  if (holder->once && !holder->init_ends) holder_kill(holder);
  while (waitpid(holder->pid, NULL, 0) < 0 && errno == EINTR) {}
  while (holder->init_ends && (waitpid(-1, NULL, 0) > 0 || errno == EINTR)) {}
  close(holder->socket);
  if (holder->orders >= 0) close(holder->orders);
  holder->pid = 0;
}
