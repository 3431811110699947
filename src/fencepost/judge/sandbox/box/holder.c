/* H: makes the namespaces and the read-only root once, and starts one init for each run in them.
 *
 * The root, as every run begins with it:
 *   /store/N     the site's roots, read-only; a run sees those that it names, at their own place
 *   /workspace   the judge's folder; a run sees what it binds
 *   /w           a new tmpfs for each run: /box, /tmp, /out and /dev/shm lead into it
 * init covers /store and /workspace before the program starts.
 */
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

#define KEPT (CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
#define STAGE "/tmp"

_Noreturn static void fail(int socket, const char *what) {
  wire_fail(socket, what, errno);
  _exit(1);
}

static void make_folders(const char *path) {
  char part[NAME_MAX_BYTES + 8];
  snprintf(part, sizeof part, "%s", path);
  for (char *slash = part + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = 0;
    mkdir(part, 0755);
  }
  mkdir(part, 0755);
}

static void make_place(const char *path, bool folder) {
  if (folder) {
    make_folders(path);
    return;
  }
  char parent[NAME_MAX_BYTES + 8];
  snprintf(parent, sizeof parent, "%s", path);
  char *slash = strrchr(parent, '/');
  if (slash && slash != parent) *slash = 0, make_folders(parent);
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
}

/* Only adds flags: in a user namespace those that the host has set are locked. */
static bool make_read_only(const char *path, uint64_t flags) {
  struct mount_attr attr = {.attr_set = flags};
  if (!syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attr, sizeof attr)) return true;
  return !mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL);
}

/* By descriptor: the stage may lie above the source. */
static bool show(int fd, const char *target, uint64_t flags) {
  char source[64];
  snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
  return !mount(source, target, NULL, MS_BIND | MS_REC, NULL) && (!flags || make_read_only(target, flags));
}

#define QUIET (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static void show_roots(int socket, const struct site *site, const int *fds) {
  char path[NAME_MAX_BYTES + 32];
  for (int i = 0; i < site->root_count; i++) {
    struct stat kind;
    if (fds[i] < 0 || fstat(fds[i], &kind)) continue;
    bool folder = S_ISDIR(kind.st_mode);
    snprintf(path, sizeof path, "%s/store/%d", STAGE, i);
    make_place(path, folder);
    if (!show(fds[i], path, QUIET)) fail(socket, "root");
    snprintf(path, sizeof path, "%s%s", STAGE, site->roots[i]);
    make_place(path, folder);
  }
}

/* /bin and /lib are links on a merged system, and folders on others. */
static void copy_links(void) {
  static const char *NAMES[] = {"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"};
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
    char target[NAME_MAX_BYTES] = {0}, path[64];
    if (readlink(NAMES[i], target, sizeof target - 1) <= 0) continue;
    snprintf(path, sizeof path, STAGE "%s", NAMES[i]);
    if (symlink(target, path)) continue;
  }
}

static void show_devices(int socket, const int *fds, const char *const *names, int count) {
  char path[64];
  mkdir(STAGE "/dev", 0755);
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, STAGE "%s", names[i]);
    make_place(path, false);
    if (fds[i] < 0 || !show(fds[i], path, 0)) fail(socket, names[i]);
  }
  static const char *LINKS[][2] = {{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
                                   {"/proc/self/fd/2", "stderr"}, {"/w/shm", "shm"}};
  for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++) {
    snprintf(path, sizeof path, STAGE "/dev/%s", LINKS[i][1]);
    if (symlink(LINKS[i][0], path)) fail(socket, "link");
  }
}

static void write_text(const char *path, const char *text) {
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0 && write(fd, text, strlen(text)) >= 0) close(fd);
}

/* Answers whether the host's proc could be kept for a new one to be allowed beside it. */
static bool build_root(int socket, const struct site *site) {
  static const char *const DEVICES[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
  int roots[ROOTS_MAX], devices[5], workspace = -1, proc = open("/proc", O_PATH | O_CLOEXEC);
  for (int i = 0; i < site->root_count; i++) roots[i] = open(site->roots[i], O_PATH | O_CLOEXEC);
  for (int i = 0; i < 5; i++) devices[i] = open(DEVICES[i], O_PATH | O_CLOEXEC);
  if (site->workspace && (workspace = open(site->workspace, O_PATH | O_CLOEXEC)) < 0) fail(socket, "workspace");
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) fail(socket, "private");
  if (mount("box", STAGE, "tmpfs", MS_NOSUID, "size=1m,mode=755")) fail(socket, "tmpfs");
  static const char *FOLDERS[] = {"/store", "/store/proc", "/workspace", "/w", "/etc", "/proc", "/app", "/data", "/none"};
  for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
    char path[64];
    snprintf(path, sizeof path, STAGE "%s", FOLDERS[i]);
    mkdir(path, 0755);
  }
  if (symlink("/w/box", STAGE "/box") || symlink("/w/tmp", STAGE "/tmp") || symlink("/w/out", STAGE "/out"))
    fail(socket, "link");
  copy_links();
  write_text(STAGE "/etc/passwd", "box:x:1000:1000:box:/box:/bin/sh\n");
  write_text(STAGE "/etc/group", "box:x:1000:\n");
  show_roots(socket, site, roots);
  show_devices(socket, devices, DEVICES, 5);
  if (workspace >= 0 && !show(workspace, STAGE "/workspace", QUIET)) fail(socket, "workspace");
  bool has_proc = proc >= 0 && show(proc, STAGE "/store/proc", 0);
  if (chdir(STAGE) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
    fail(socket, "pivot_root");
  struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
  if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof attr) &&
      mount(NULL, "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID, NULL))
    fail(socket, "read-only root");
  return has_proc;
}

static bool write_map(pid_t pid, const char *name, const char *text) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return done;
}

static bool write_maps(pid_t pid, uid_t uid, gid_t gid) {
  char line[64];
  write_map(pid, "setgroups", "deny");
  snprintf(line, sizeof line, "%d %u 1\n", INSIDE_ID, (unsigned)gid);
  if (!write_map(pid, "gid_map", line)) return false;
  snprintf(line, sizeof line, "%d %u 1\n", INSIDE_ID, (unsigned)uid);
  return write_map(pid, "uid_map", line);
}

/* The next run: a new process 1 in a pid and a mount namespace of its own, made before anybody has ordered it. Answers when it
 * is gone; false when none can be made. */
static bool serve_one(int socket, int orders, const struct site *site) {
  struct run_files files = {.socket = socket, .orders = orders, .site = site};
  int lifeline[2], pidfd = -1, status = 0;
  if (pipe2(lifeline, O_CLOEXEC)) fail(socket, "pipe");
  files.lifeline = lifeline[0];
  /* For one run only the mounts may as well be our own. */
  unsigned long spaces = site->once ? CLONE_NEWPID : CLONE_NEWPID | CLONE_NEWNS;
  pid_t init = (pid_t)syscall(SYS_clone, spaces | CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
  if (init == 0) {
    close(lifeline[1]);
    init_main(&files);
  }
  if (init < 0) fail(socket, "clone");
  close(lifeline[0]);
  struct message begun = {.kind = MSG_BEGUN}, done = {.kind = MSG_DONE};
  wire_send(socket, &begun, sizeof begun, &pidfd, 1);
  while (waitpid(init, &status, 0) < 0 && errno == EINTR) {}
  close(pidfd);
  close(lifeline[1]);
  wire_send(socket, &done, sizeof done, NULL, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != INIT_UNFIT;
}

_Noreturn static void serve(int socket, int orders, const struct site *site) {
  guard_prepare();
  while (serve_one(socket, orders, site) && !site->once) {}
  /* For one run: S ends us when it has heard everything. */
  if (site->once) pause();
  _exit(1);
}

_Noreturn static void holder_main(int socket, int orders, int mapped, const struct site *site, bool root) {
  struct message ready = {.kind = MSG_READY};
  char byte = 0;
  bool users = true;
  /* Should the machine run out of memory, the stranger goes first, and not who watches him. */
  write_text("/proc/self/oom_score_adj", "1000");
  if (root) {
    /* While we still are root: the folders of a toolchain may lie where only root can go. */
    if (setgroups(0, NULL) || unshare(CLONE_NEWNS)) fail(socket, "unshare");
    ready.maxrss_kb = build_root(socket, site);
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
  if (!root) ready.maxrss_kb = build_root(socket, site);
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
  holder->once = site->once;
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
    if (!write_maps(holder->pid, uid, gid) || write(holder->mapped, "m", 1) != 1) return "uid map refused";
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
  while (waitpid(holder->pid, NULL, 0) < 0 && errno == EINTR) {}
  close(holder->socket);
  close(holder->orders);
  holder->pid = 0;
}
