/* One run: H makes I beside itself, builds the root that the order names, and is gone; I makes the other namespaces meanwhile, and S the
 * cgroups. I and P need not be asked whether they are ready, and each process waits only for what it needs.
 */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct single {
  const struct site *site;
  const struct order *order;
  int socket, orders, parent_pipe;
  uid_t uid;
  gid_t gid;
  bool root;
};

_Noreturn static void fail(int socket, const char *what) {
  wire_fail(socket, what, errno);
  _exit(1);
}

struct to_be { struct start start; int fds[6], fd_count; };

static int be_program(void *given) {
  struct to_be *program = given;
  guard_exec_at_once(&program->start, program->fds, program->fd_count);
}

/* As vfork does it: we are suspended until it is executed, and share its memory until then. */
_Noreturn static void start_program(const struct single *one) {
  static char stack[65536] __attribute__((aligned(16)));
  static struct to_be program;
  char go;
  int join[3], join_count = 3;
  struct message started = {.kind = MSG_PROGRAM};
  int pidfds[2] = {-1, (int)syscall(SYS_pidfd_open, getpid(), 0)};
  /* Meanwhile S has made the cgroups. */
  if (wire_receive(one->orders, &go, 1, join, &join_count, 0) != 1) _exit(0);
  program = (struct to_be){.start = {.order = one->order, .hide_mounts = one->order->proc, .outside = -1}, .fd_count = 3 + join_count};
  memcpy(program.fds, one->site->fds, sizeof one->site->fds);
  memcpy(program.fds + 3, join, sizeof join);
  pid_t pid = clone(be_program, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &program, &pidfds[0]);
  if (pid < 0) fail(one->socket, "fork");
  for (int i = 0; i < 3; i++) close(one->site->fds[i]);
  if (!*program.start.error_message) wire_send(one->socket, &started, sizeof started, pidfds, 2);
  close(pidfds[0]);
  close(pidfds[1]);
  init_wait(one->socket, one->order, pid, program.start.error_message);
}

_Noreturn static void be_init(const struct single *one, bool users, int ready) {
  char byte = 0;
  if (unshare(KEPT)) fail(one->socket, "unshare");
  guard_prepare();
  /* From here on the root is the one that H has built, or H has said why not. */
  if (read(ready, &byte, 1) != 1 || chdir("/")) _exit(0);
  if (users && (setresgid(INSIDE_ID, INSIDE_ID, INSIDE_ID) || setresuid(INSIDE_ID, INSIDE_ID, INSIDE_ID)))
    fail(one->socket, "uid map");
  init_arm(one->parent_pipe);
  prctl(PR_SET_DUMPABLE, 0);
  if (sethostname("box", 3)) fail(one->socket, "hostname");
  if (one->order->proc) {
    /* A proc is mounted by a process inside the namespace. */
    if (unshare(CLONE_NEWNS)) fail(one->socket, "unshare");
    init_mount_proc(one->socket);
    if (mount("/none", "/store", NULL, MS_BIND, NULL)) fail(one->socket, "hide");
  }
  start_program(one);
}

/* A sibling, not a child: then no process has to stay only as its parent. */
static pid_t make_init(const struct single *one, bool users, const int ready[2]) {
  pid_t init = (pid_t)syscall(SYS_clone, CLONE_NEWPID | (users ? CLONE_NEWUSER : 0) | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
  if (init) return init;
  close(ready[1]);
  be_init(one, users, ready[0]);
}

_Noreturn static void build(const struct single *one) {
  int ready[2], proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  uid_t uid = one->site->outer_uid;
  /* If the machine runs out of memory, the program is killed first, and not its supervisor. */
  write_text("/proc/self/oom_score_adj", "1000");
  if (one->root ? setgroups(0, NULL) || unshare(CLONE_NEWNS) : unshare(CLONE_NEWUSER | CLONE_NEWNS))
    fail(one->socket, one->root ? "unshare" : "user namespace");
  /* After the change of credentials, which would have cleared it. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!one->root && !write_maps(proc, getpid(), one->uid, one->gid)) fail(one->socket, "uid map refused");
  if (pipe2(ready, O_CLOEXEC)) fail(one->socket, "pipe");
  bool users = one->root;
  pid_t init = make_init(one, users, ready);
  /* There may be none for us: then the program is the same user outside. */
  if (init < 0 && users) init = make_init(one, users = false, ready), uid = INSIDE_ID;
  if (init < 0) fail(one->socket, "clone");
  if (users && !write_maps(proc, init, uid, (gid_t)uid)) fail(one->socket, "uid map refused");
  root_for_one(one->socket, one->site, one->order, one->root ? uid : 0);
  if (write(ready[1], "r", 1) != 1) fail(one->socket, "ready");
  _exit(0);
}

const char *single_begin(struct holder *holder, const struct site *site, const struct order *order) {
  int pair[2], orders[2], parent_pipe[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ||
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, orders) || pipe2(parent_pipe, O_CLOEXEC))
    return "socketpair";
  struct single one = {site, order, pair[1], orders[1], parent_pipe[0], geteuid(), getegid(), geteuid() == 0};
  holder->pid = fork();
  if (holder->pid < 0) return "fork";
  if (holder->pid == 0) {
    close(pair[0]);
    close(orders[0]);
    close(parent_pipe[1]);
    build(&one);
  }
  close(pair[1]);
  close(orders[1]);
  close(parent_pipe[0]);
  holder->socket = pair[0];
  holder->orders = orders[0];
  holder->mapped = parent_pipe[1];
  return NULL;
}
