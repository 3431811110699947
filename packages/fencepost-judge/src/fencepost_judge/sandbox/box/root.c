/* The read-only root of a box.
 *
 * For many runs, as every run begins with it:
 *   /store/N     the site's roots, read-only; a run sees those that it names, at their own place
 *   /workspace   the judge's folder; a run sees what it binds
 *   /w           a new tmpfs for each run: /box, /tmp, /out and /dev/shm lead into it
 * init covers /store and /workspace before the program starts.
 *
 * For one run there is neither: what its order names is shown where it belongs at once.
 */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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

static void store_roots(int socket, const struct site *site, const int *fds) {
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

static const char *const DEVICES[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
#define DEVICE_COUNT 5

static void link_devices(int socket) {
  char path[64];
  static const char *LINKS[][2] = {{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
                                   {"/proc/self/fd/2", "stderr"}, {"/w/shm", "shm"}};
  for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++) {
    snprintf(path, sizeof path, STAGE "/dev/%s", LINKS[i][1]);
    if (symlink(LINKS[i][0], path)) fail(socket, "link");
  }
}

static void show_devices(int socket, const int *fds) {
  char path[64];
  for (int i = 0; i < DEVICE_COUNT; i++) {
    snprintf(path, sizeof path, STAGE "%s", DEVICES[i]);
    make_place(path, false);
    if (fds[i] < 0 || !show(fds[i], path, 0)) fail(socket, DEVICES[i]);
  }
}

/* Where we may make devices that is cheaper than to show the host's. */
static bool make_devices(void) {
  static const int NUMBERS[] = {3, 5, 7, 8, 9};
  char path[64];
  for (int i = 0; i < DEVICE_COUNT; i++) {
    snprintf(path, sizeof path, STAGE "%s", DEVICES[i]);
    if (mknod(path, S_IFCHR | 0666, makedev(1, (unsigned)NUMBERS[i])) || chmod(path, 0666)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    close(fd);
  }
  return true;
}

void write_text(const char *path, const char *text) {
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  if (fd >= 0 && write(fd, text, strlen(text)) >= 0) close(fd);
}

static void open_devices(int *fds) {
  for (int i = 0; i < DEVICE_COUNT; i++) fds[i] = open(DEVICES[i], O_PATH | O_CLOEXEC);
}

static void make_mount_points(int socket, const char *const *folders, size_t count) {
  char path[64];
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) fail(socket, "private");
  if (mount("box", STAGE, "tmpfs", MS_NOSUID, "size=1m,mode=755")) fail(socket, "tmpfs");
  for (size_t i = 0; i < count; i++) {
    snprintf(path, sizeof path, STAGE "%s", folders[i]);
    mkdir(path, 0755);
  }
  if (symlink("/w/box", STAGE "/box") || symlink("/w/tmp", STAGE "/tmp") || symlink("/w/out", STAGE "/out"))
    fail(socket, "link");
  copy_links();
  write_text(STAGE "/etc/passwd", "box:x:1000:1000:box:/box:/bin/sh\n");
  write_text(STAGE "/etc/group", "box:x:1000:\n");
  link_devices(socket);
}

static void enter(int socket) {
  if (chdir(STAGE) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
    fail(socket, "pivot_root");
  struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
  if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof attr) &&
      mount(NULL, "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID, NULL))
    fail(socket, "read-only root");
}

bool root_for_many(int socket, const struct site *site) {
  static const char *const FOLDERS[] = {"/store", "/store/proc", "/workspace", "/w", "/etc", "/proc", "/app", "/data", "/none", "/dev"};
  int roots[ROOTS_MAX], devices[DEVICE_COUNT], workspace = -1, proc = open("/proc", O_PATH | O_CLOEXEC);
  for (int i = 0; i < site->root_count; i++) roots[i] = open(site->roots[i], O_PATH | O_CLOEXEC);
  open_devices(devices);
  if (site->workspace && (workspace = open(site->workspace, O_PATH | O_CLOEXEC)) < 0) fail(socket, "workspace");
  make_mount_points(socket, FOLDERS, sizeof FOLDERS / sizeof *FOLDERS);
  store_roots(socket, site, roots);
  show_devices(socket, devices);
  if (workspace >= 0 && !show(workspace, STAGE "/workspace", QUIET)) fail(socket, "workspace");
  bool has_proc = proc >= 0 && show(proc, STAGE "/store/proc", 0);
  enter(socket);
  return has_proc;
}

int root_apart(const char *folder) {
  unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
  int tree = (int)syscall(SYS_open_tree, AT_FDCWD, folder, flags);
  if (tree >= 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS)) return tree;
  return (int)syscall(SYS_open_tree, AT_FDCWD, folder, flags);
}

static bool is_offered(const struct site *site, const char *root) {
  for (int i = 0; i < site->root_count; i++)
    if (!strcmp(site->roots[i], root)) return true;
  errno = ENOENT;
  return false;
}

/* Below the workspace, through no link: we are still outside, where one could lead anywhere. */
static int open_in_workspace(const struct site *site, int workspace, const char *name, uint64_t flags) {
  struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
  errno = ENOENT;
  return site->workspace ? (int)syscall(SYS_openat2, workspace, name, &how, sizeof how) : -1;
}

static void show_at(int socket, int fd, const char *name, const char *target) {
  char path[NAME_MAX_BYTES + 32];
  struct stat kind;
  if (fd < 0 || fstat(fd, &kind)) fail(socket, name);
  snprintf(path, sizeof path, STAGE "%s", target);
  make_place(path, S_ISDIR(kind.st_mode));
  if (!show(fd, path, QUIET)) fail(socket, name);
  close(fd);
}

/* As the program's user, so that it owns the folder. */
static void make_scratch(int socket, const struct order *order, int remembered, uid_t uid) {
  static const char *const PLACES[] = {STAGE "/w/box", STAGE "/w/tmp", STAGE "/w/shm", STAGE "/w/out"};
  char options[128];
  int length = snprintf(options, sizeof options, "size=%ldk,nr_inodes=%ld,mode=755", order->disk_kb, order->inodes);
  if (uid) snprintf(options + length, sizeof options - (size_t)length, ",uid=%u,gid=%u", (unsigned)uid, (unsigned)uid);
  if (mount("w", STAGE "/w", "tmpfs", MS_NOSUID | MS_NODEV, options)) fail(socket, "scratch");
  if (uid) setfsgid(uid), setfsuid(uid);
  for (int i = 0; i < 4; i++)
    if (mkdir(PLACES[i], 0755)) fail(socket, "scratch");
  const char *wrong = remembered < 0 ? NULL : copy_out(remembered, STAGE "/w/out", order->out_kb, order->out_files);
  if (wrong) fail(socket, wrong);
  if (uid) setfsuid(0), setfsgid(0);
}

bool root_for_one(int socket, const struct site *site, const struct order *order, uid_t uid) {
  static const char *const FOLDERS[] = {"/w", "/etc", "/proc", "/app", "/data", "/none", "/dev", "/store", "/store/proc"};
  int roots[ROOTS_MAX], binds[BINDS_MAX], devices[DEVICE_COUNT], workspace = -1, remembered = -1;
  int proc = order->proc ? open("/proc", O_PATH | O_CLOEXEC) : -1;
  if (site->workspace && (workspace = open(site->workspace, O_PATH | O_CLOEXEC)) < 0) fail(socket, "workspace");
  for (int i = 0; i < order->root_count; i++)
    if (!is_offered(site, order->roots[i]) || (roots[i] = open(order->roots[i], O_PATH | O_CLOEXEC)) < 0)
      fail(socket, order->roots[i]);
  for (int i = 0; i < order->bind_count; i++)
    if ((binds[i] = open_in_workspace(site, workspace, order->binds[i].source, O_PATH)) < 0) fail(socket, "bind");
  if (order->out_from &&
      (remembered = open_in_workspace(site, workspace, order->out_from, O_RDONLY | O_DIRECTORY)) < 0)
    fail(socket, "out_from");
  open_devices(devices);
  /* The last two only to keep the host's proc, for a new one to be allowed beside it. */
  make_mount_points(socket, FOLDERS, sizeof FOLDERS / sizeof *FOLDERS - (proc < 0 ? 2 : 0));
  for (int i = 0; i < order->root_count; i++) show_at(socket, roots[i], order->roots[i], order->roots[i]);
  if (!uid || !make_devices()) show_devices(socket, devices);
  make_scratch(socket, order, remembered, uid);
  for (int i = 0; i < order->bind_count; i++) show_at(socket, binds[i], "bind", order->binds[i].target);
  bool has_proc = proc >= 0 && show(proc, STAGE "/store/proc", 0);
  enter(socket);
  return has_proc;
}
