/* The processes of one run, as /proc tells it: what they use, where there is no cgroup to ask, and whether one wants a processor.
 *
 * All of them stand below init, orphans too. A process is read before its children are listed: a process that is reaped in between
 * is missed by this look, and is never counted twice.
 */
#define _GNU_SOURCE
#include "box.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As many as an order may allow. */
#define TREE_MAX 32768
static pid_t pids[TREE_MAX];

static bool read_of(pid_t pid, const char *name, char *text, size_t size) {
  char path[384];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? 0 : read(fd, text, size - 1);
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = 0;
  return got > 0;
}

static int children_of(pid_t pid, pid_t *found, int room) {
  static struct lines children;
  char path[320];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *threads = opendir(path);
  for (struct dirent *entry; threads && (entry = readdir(threads));) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)pid, entry->d_name);
    lines_open(&children, path);
    while (count < room && lines_number(&children, &found[count])) count++;
    lines_close(&children);
  }
  if (threads) closedir(threads);
  return count;
}

/* Its own time, unless it is init, and that of the children it has waited for. */
static uint64_t cpu_ns_of(pid_t pid, bool own) {
  char text[1024];
  const char *after = read_of(pid, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
  uint64_t used[4];  /* By itself, for itself in the kernel, and the same of its children. */
  if (!after++) return 0;
  for (int i = 0; i < 11; i++) take_word(&after, NULL, 0);
  for (int i = 0; i < 4; i++)
    if (!take_number(&after, &used[i])) return 0;
  uint64_t ticks = used[2] + used[3] + (own ? used[0] + used[1] : 0);
  return ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint64_t resident_kb_of(pid_t pid) {
  char text[256];
  const char *at = text;
  uint64_t total = 0, resident = 0;
  if (!read_of(pid, "statm", text, sizeof text) || !take_number(&at, &total) || !take_number(&at, &resident)) return 0;
  return resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* Shared memory is divided by the number of its users: a fork counts nothing twice. */
static uint64_t share_kb_of(pid_t pid) {
  char text[2048];
  const char *line = read_of(pid, "smaps_rollup", text, sizeof text) ? strstr(text, "\nPss:") : NULL;
  uint64_t share_kb;
  return line && take_number((line += 5, &line), &share_kb) ? share_kb : resident_kb_of(pid);
}

struct seen tree_look(pid_t init, pid_t program, uint64_t known_kb) {
  struct seen seen = {.cpu_ns = cpu_ns_of(init, false)};
  int count = children_of(init, pids, TREE_MAX);
  if (!count) pids[count++] = program;
  for (int i = 0; i < count; i++) {
    seen.cpu_ns += cpu_ns_of(pids[i], true);
    seen.resident_kb += resident_kb_of(pids[i]);
    count += children_of(pids[i], pids + count, TREE_MAX - count);
  }
  if (count < 2 || seen.resident_kb <= known_kb) return seen;
  seen.resident_kb = 0;
  for (int i = 0; i < count; i++) seen.resident_kb += share_kb_of(pids[i]);
  return seen;
}

/* Whether a thread of this process wants a processor at this moment, and the longest that any has waited for one. The wait that a
 * thread is in is counted when it ends: a thread that waits has not slept, whatever the figures say. */
static bool is_runnable(pid_t pid, uint64_t *waited_ns) {
  char path[320], text[1024];
  bool runnable = false;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *threads = opendir(path);
  for (struct dirent *entry; threads && (entry = readdir(threads));) {
    if (entry->d_name[0] == '.') continue;
    const char *at = text;
    uint64_t ran, waited;
    snprintf(path, sizeof path, "task/%s/schedstat", entry->d_name);
    if (read_of(pid, path, text, sizeof text) && take_number(&at, &ran) && take_number(&at, &waited) && waited > *waited_ns)
      *waited_ns = waited;
    snprintf(path, sizeof path, "task/%s/stat", entry->d_name);
    char *name_end = read_of(pid, path, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (name_end && name_end[1] && name_end[2] == 'R') runnable = true;
  }
  if (threads) closedir(threads);
  return runnable;
}

bool tree_is_runnable(pid_t init, pid_t program, uint64_t *waited_ns) {
  bool runnable = false;
  int count = children_of(init, pids, TREE_MAX);
  if (!count) pids[count++] = program;
  for (int i = 0; i < count; i++) {
    runnable |= is_runnable(pids[i], waited_ns);
    count += children_of(pids[i], pids + count, TREE_MAX - count);
  }
  return runnable;
}

bool tree_is_seen(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  return access(path, R_OK) == 0 && access("/proc/self/smaps_rollup", R_OK) == 0;
}
