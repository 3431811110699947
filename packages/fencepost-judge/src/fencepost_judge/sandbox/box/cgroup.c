/* Cgroups: memory, processes and CPU time of one run, on v1, on v2, or not at all.
 *
 * Our folders lie below our own cgroup, and are named after this process, its start and its pid namespace: a
 * sweep removes those of a process that is gone, and touches none of another container's.
 */
#define _GNU_SOURCE
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "fencepost-box-"

static bool write_file(const char *dir, const char *name, const char *text) {
  char path[800];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = (ssize_t)strlen(text), done = write(fd, text, (size_t)length);
  close(fd);
  return done == length;
}

static bool write_number(const char *dir, const char *name, long number) {
  char text[32];
  snprintf(text, sizeof text, "%ld", number);
  return write_file(dir, name, text);
}

static bool read_file(const char *dir, const char *name, char *text, size_t size) {
  char path[800];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t got = read(fd, text, size - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  return got >= 0;
}

static long long number_at(const char *text) {
  uint64_t number;
  return take_number(&text, &number) && number <= INT64_MAX ? (long long)number : 0;
}

/* The number behind a key in a file of "key number" lines, or a bare number when key is NULL; -1 if absent. */
static long long figure(const char *dir, const char *name, const char *key) {
  char text[4096];
  if (!read_file(dir, name, text, sizeof text)) return -1;
  if (!key) return number_at(text);
  size_t length = strlen(key);
  for (char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
    if (!strncmp(line, key, length) && line[length] == ' ') return number_at(line + length + 1);
  return -1;
}

static unsigned long long start_time(pid_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d", (int)pid);
  if (!read_file(path, "stat", text, sizeof text)) return 0;
  char *after = strrchr(text, ')');
  for (int field = 2; after && field < 22; field++) after = strchr(after + 1, ' ');
  return after ? (unsigned long long)number_at(after + 1) : 0;
}

static unsigned long pid_namespace(void) {
  struct stat seen;
  return stat("/proc/self/ns/pid", &seen) ? 0 : (unsigned long)seen.st_ino;
}

/* A path as /proc writes it: a space is \\040. */
static void unescape(char *path) {
  char *to = path;
  for (char *from = path; *from; to++) {
    if (*from == '\\' && strlen(from) > 3) *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0'), from += 4;
    else *to = *from++;
  }
  *to = 0;
}

static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += length)
    if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return true;
  return false;
}

enum { MEMORY, CPUACCT, PIDS, UNIFIED, HIERARCHIES };
static const char *const CONTROLLERS[HIERARCHIES] = {"memory", "cpuacct", "pids", ""};

static bool is_in(int hierarchy, const char *names) {
  return hierarchy == UNIFIED ? !*names : has_word(names, CONTROLLERS[hierarchy]);
}

struct place { char point[512], root[512], path[512]; };

/* Where each hierarchy is mounted, and where we are in it, from /proc; an empty point where it is not. */
static void read_places(struct place *places) {
  static struct lines lines;
  char line[4096], kind[32], options[512], root[512], point[512];
  for (lines_open(&lines, "/proc/self/mountinfo"); lines_next(&lines, line, sizeof line);) {
    const char *head = line, *tail = strstr(line, " - ");
    if (!tail || strncmp(tail += 3, "cgroup", 6)) continue;
    for (int i = 0; i < 3; i++) take_word(&head, NULL, 0);
    if (!take_word(&head, root, sizeof root) || !take_word(&head, point, sizeof point)) continue;
    take_word(&tail, kind, sizeof kind);
    take_word(&tail, NULL, 0);
    take_word(&tail, options, sizeof options);
    unescape(root), unescape(point);
    for (int i = 0; i < HIERARCHIES; i++) {
      bool fits = i == UNIFIED ? !strcmp(kind, "cgroup2") : !strcmp(kind, "cgroup") && has_word(options, CONTROLLERS[i]);
      if (!fits) continue;
      snprintf(places[i].point, sizeof places[i].point, "%s", point);
      snprintf(places[i].root, sizeof places[i].root, "%s", root);
    }
  }
  lines_close(&lines);
  for (lines_open(&lines, "/proc/self/cgroup"); lines_next(&lines, line, sizeof line);) {
    char *names = strchr(line, ':'), *where = names ? strchr(names + 1, ':') : NULL;
    if (!where) continue;
    *where++ = 0;
    for (int i = 0; i < HIERARCHIES; i++)
      if (is_in(i, names + 1)) snprintf(places[i].path, sizeof places[i].path, "%s", where);
  }
  lines_close(&lines);
}

/* Our own place, or else the mount point, if we may write there. */
static bool own_place(const struct place *found, char *place, size_t size) {
  if (!*found->point) return false;
  size_t above = strlen(found->root);
  bool below_root = above > 1 && !strncmp(found->path, found->root, above) && (!found->path[above] || found->path[above] == '/');
  const char *below = below_root ? found->path + above : found->path;
  snprintf(place, size, "%s%s", found->point, strcmp(below, "/") ? below : "");
  if (access(place, W_OK)) snprintf(place, size, "%s", found->point);
  return access(place, W_OK) == 0;
}

static void own_name(char *name, size_t size) {
  snprintf(name, size, PREFIX "%lu-%d-%llu", pid_namespace(), (int)getpid(), start_time(getpid()));
}

static bool make_folder(char *path, size_t size, const char *place) {
  char name[128];
  own_name(name, sizeof name);
  snprintf(path, size, "%s/%s", place, name);
  return mkdir(path, 0755) == 0 || errno == EEXIST;
}

#define LEAF "/fencepost-judge"

/* All processes in the group itself. One that joins meanwhile is moved by the next try. */
static void move_to_leaf(const char *place) {
  static struct lines procs;
  char leaf[700], path[800];
  int pid;
  snprintf(leaf, sizeof leaf, "%s" LEAF, place);
  mkdir(leaf, 0755);
  snprintf(path, sizeof path, "%s/cgroup.procs", place);
  for (lines_open(&procs, path); lines_number(&procs, &pid);) write_number(leaf, "cgroup.procs", pid);
  lines_close(&procs);
}

/* v2 hands its controllers only to children of a group without processes of its own: the processes in ours, with the judge itself, move
 * into a leaf. Processes that are in it already belong to the group above. */
static bool open_v2(struct cgroup *group, char *place) {
  char controllers[512];
  size_t length = strlen(place);
  if (length > strlen(LEAF) && !strcmp(place + length - strlen(LEAF), LEAF)) place[length - strlen(LEAF)] = 0;
  if (!read_file(place, "cgroup.controllers", controllers, sizeof controllers) || !strstr(controllers, "memory") ||
      !strstr(controllers, "pids"))
    return false;
  bool handed = write_file(place, "cgroup.subtree_control", "+memory +pids");
  for (int tries = 0; !handed && tries < 20; tries++) {
    move_to_leaf(place);
    handed = write_file(place, "cgroup.subtree_control", "+memory +pids");
  }
  if (!handed || !make_folder(group->memory, sizeof group->memory, place)) return false;
  if (!group->once && !write_file(group->memory, "cgroup.subtree_control", "+memory +pids")) {
    rmdir(group->memory);
    return false;
  }
  memcpy(group->cpu, group->memory, sizeof group->cpu);
  memcpy(group->pids, group->memory, sizeof group->pids);
  return true;
}

void cgroup_find(struct cgroup *group, bool once) {
  static struct place places[HIERARCHIES];
  char place[1024];
  read_places(places);
  *group = (struct cgroup){.kind = CGROUP_NONE, .once = once, .unified = *places[UNIFIED].point};
  if (own_place(&places[MEMORY], place, sizeof place) && make_folder(group->memory, sizeof group->memory, place)) {
    bool cpu = own_place(&places[CPUACCT], place, sizeof place) && make_folder(group->cpu, sizeof group->cpu, place);
    bool pids = own_place(&places[PIDS], place, sizeof place) && make_folder(group->pids, sizeof group->pids, place);
    group->kind = CGROUP_V1;
    if (cpu && pids) return;
    cgroup_leave(group);
    *group = (struct cgroup){.kind = CGROUP_NONE, .once = once, .unified = group->unified};
  }
  if (own_place(&places[UNIFIED], place, sizeof place) && open_v2(group, place)) group->kind = CGROUP_V2;
}

static void kill_members(const char *dir) {
  static struct lines procs;
  char path[800];
  int pid;
  snprintf(path, sizeof path, "%s/cgroup.procs", dir);
  for (lines_open(&procs, path); lines_number(&procs, &pid);) kill(pid, SIGKILL);
  lines_close(&procs);
}

/* Removes a folder and what is inside, and kills the processes in it. True if it is gone. */
static bool try_remove(const char *dir) {
  char path[800];
  /* As a rule no process is in it. */
  if (!rmdir(dir) || errno == ENOENT) return true;
  DIR *listing = opendir(dir);
  for (struct dirent *entry; listing && (entry = readdir(listing));) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
    kill_members(path);
    rmdir(path);
  }
  if (listing) closedir(listing);
  kill_members(dir);
  return !rmdir(dir) || errno == ENOENT;
}

/* A killed process leaves the folder only when the kernel has removed it, which takes longer on a busy machine. A
 * second is long for that; one that cannot be ended is left to the next sweep. */
static void remove_folder(const char *dir) {
  for (int tries = 0; tries < 500 && !try_remove(dir); tries++) usleep(2000);
}

static void sweep_place(const char *place) {
  DIR *listing = opendir(place);
  for (struct dirent *entry; listing && (entry = readdir(listing));) {
    uint64_t space, pid, started;
    char path[800];
    const char *name = entry->d_name;
    if (strncmp(name, PREFIX, strlen(PREFIX))) continue;
    name += strlen(PREFIX);
    if (!take_number(&name, &space) || *name++ != '-' || !take_number(&name, &pid) || *name++ != '-' || !take_number(&name, &started))
      continue;
    unsigned long long alive = start_time((pid_t)pid);
    if (space != pid_namespace() || (alive && alive == started)) continue;
    snprintf(path, sizeof path, "%s/%s", place, entry->d_name);
    remove_folder(path);
  }
  if (listing) closedir(listing);
}

/* Removes what a kill -9 left. Two sweeps may run at once: both want the folder gone. */
void cgroup_sweep(void) {
  static struct place places[HIERARCHIES];
  char place[1024];
  read_places(places);
  for (int i = 0; i < HIERARCHIES; i++) {
    if (!own_place(&places[i], place, sizeof place)) continue;
    size_t length = strlen(place);
    if (length > strlen(LEAF) && !strcmp(place + length - strlen(LEAF), LEAF)) place[length - strlen(LEAF)] = 0;
    sweep_place(place);
  }
}

static bool limit_run(struct cgroup *group, const struct order *order) {
  long bytes = order->memory_kb * 1024;
  if (group->kind == CGROUP_V1) {
    if (!write_number(group->run_dir, "memory.limit_in_bytes", bytes)) return false;
    write_number(group->run_dir, "memory.memsw.limit_in_bytes", bytes);  /* Absent without swap accounting. */
    /* A folder that all runs share: what stands there already need not be written again. */
    if (group->pids_max != order->processes && !write_number(group->pids, "pids.max", order->processes)) return false;
    group->pids_max = order->processes;
    return true;
  }
  write_number(group->run_dir, "memory.swap.max", 0);
  return write_number(group->run_dir, "memory.max", bytes) && write_number(group->run_dir, "pids.max", order->processes);
}

/* A folder for the next run, made before a run waits for it. Can be repeated. */
const char *cgroup_prepare(struct cgroup *group) {
  if (group->kind == CGROUP_NONE || group->open) return NULL;
  if (group->once) {
    /* For one run only our own folder is as new as any. */
    memcpy(group->run_dir, group->memory, sizeof group->memory);
  } else {
    snprintf(group->run_dir, sizeof group->run_dir, "%s/r%d", group->memory, ++group->run);
    if (mkdir(group->run_dir, 0755) && errno != EEXIST) return "cgroup_make";
  }
  group->open = true;
  const char *folders[] = {group->run_dir, group->cpu, group->pids};
  for (int i = 0; i < (group->kind == CGROUP_V1 ? 3 : 1); i++) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folders[i], group->kind == CGROUP_V1 ? "tasks" : "cgroup.procs");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return "cgroup_join";
    group->join[group->join_count++] = fd;
  }
  return NULL;
}

const char *cgroup_begin(struct cgroup *group, const struct order *order) {
  if (group->kind == CGROUP_NONE) return NULL;
  const char *wrong = cgroup_prepare(group);
  if (wrong) return wrong;
  if (!limit_run(group, order)) return "cgroup_limit";
  group->cpu_before_ns = 0;
  group->cpu_before_ns = cgroup_cpu_ns(group);
  return NULL;
}

uint64_t cgroup_cpu_ns(const struct cgroup *group) {
  long long used = group->kind == CGROUP_V1 ? figure(group->cpu, "cpuacct.usage", NULL)
                                            : figure(group->run_dir, "cpu.stat", "usage_usec") * 1000;
  return used > (long long)group->cpu_before_ns ? (uint64_t)used - group->cpu_before_ns : 0;
}

uint64_t cgroup_peak_kb(const struct cgroup *group) {
  const char *name = group->kind == CGROUP_V1 ? "memory.max_usage_in_bytes" : "memory.peak";
  long long peak = figure(group->run_dir, name, NULL);
  return peak > 0 ? (uint64_t)peak / 1024 : 0;
}

/* Not failcnt: on v1 that counts reclaims, and stays 0 when the killer strikes. */
long cgroup_oom_kills(const struct cgroup *group) {
  const char *name = group->kind == CGROUP_V1 ? "memory.oom_control" : "memory.events";
  long long kills = figure(group->run_dir, name, "oom_kill");
  return kills > 0 ? (long)kills : 0;
}

void cgroup_kill(const struct cgroup *group) {
  if (!group->open) return;
  if (group->kind != CGROUP_V2 || !write_file(group->run_dir, "cgroup.kill", "1")) kill_members(group->run_dir);
}

/* Can be repeated: a folder that is gone is removed. */
bool cgroup_end(struct cgroup *group) {
  while (group->join_count) close(group->join[--group->join_count]);
  if (!group->open) return true;
  for (int tries = 0; tries < 200; tries++) {
    if (!rmdir(group->run_dir) || errno == ENOENT) {
      group->open = false;
      return true;
    }
    cgroup_kill(group);
    usleep(tries < 50 ? 200 : 5000);
  }
  return false;
}

void cgroup_leave(struct cgroup *group) {
  cgroup_end(group);
  if (*group->memory) remove_folder(group->memory);
  if (*group->cpu) remove_folder(group->cpu);
  if (*group->pids) remove_folder(group->pids);
}
