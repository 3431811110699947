/* S: watches one run from outside, and decides.
 *
 * Time is CPU time. The wall clock is a backstop for programs that sleep, and a program that only waited for a
 * processor has not slept: what the scheduler made it wait is taken off. Past the ceiling the machine has failed
 * it, and that is no verdict on the program.
 */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define GRACE_NS (3000 * MS)
#define CEILING 10

enum ended_by { BY_ITSELF, BY_CPU, BY_WALL, BY_STARVATION, BY_MEMORY, BY_OUTPUT, BY_CALLER };

struct watch {
  struct holder *holder;
  struct cgroup *group;
  const struct order *order;
  int init_fd, program_fd, out_fd;
  pid_t init, program;              /* as the host knows them */
  uint64_t begun_ns, ended_ns, killed_ns, cpu_ns, resident_kb, largest_kb;
  uint64_t waited_ns;               /* the longest that a thread was seen to have waited; it may be gone by now */
  enum ended_by by;
  bool ended, done, failed;
  int status;
  char error[160];
};

static uint64_t bytes_of(int fd) {
  struct stat kind;
  return !fstat(fd, &kind) && S_ISREG(kind.st_mode) ? (uint64_t)kind.st_size : 0;
}

static void send_kill(int pidfd) {
  if (pidfd >= 0) syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static pid_t host_pid(int pidfd) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = 0;
  const char *line = strstr(text, "Pid:");
  uint64_t pid;
  return line && take_number((line += 4, &line), &pid) ? (pid_t)pid : 0;
}

/* Without cgroups we look at all of its processes, in ticks of the clock; at the program itself to the nanosecond. */
static void measure(struct watch *w) {
  if (w->group->kind != CGROUP_NONE) {
    w->cpu_ns = cgroup_cpu_ns(w->group);
    return;
  }
  clockid_t clock;
  struct timespec used;
  if (w->program <= 0) return;
  struct seen seen = tree_look(w->init, w->program, w->resident_kb);
  if (!clock_getcpuclockid(w->program, &clock) && !clock_gettime(clock, &used)) {
    uint64_t ns = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    if (ns > seen.cpu_ns) seen.cpu_ns = ns;
  }
  if (seen.cpu_ns > w->cpu_ns) w->cpu_ns = seen.cpu_ns;
  if (seen.resident_kb > w->resident_kb) w->resident_kb = seen.resident_kb;
}

static void end_run(struct watch *w, enum ended_by by) {
  if (w->killed_ns || w->ended) return;
  w->by = by;
  w->killed_ns = now_ns();
  /* The program first: init then kills the rest, and still has figures to report. */
  if (w->program_fd >= 0) send_kill(w->program_fd);
  else send_kill(w->init_fd);
}

static bool has_slept(struct watch *w, uint64_t wall_ns, uint64_t limit_ns) {
  return !tree_is_runnable(w->init, w->program, &w->waited_ns) && wall_ns > w->waited_ns + limit_ns;
}

static void check_limits(struct watch *w, const int standard[3]) {
  uint64_t wall_ns = now_ns() - w->begun_ns, limit_ns = (uint64_t)w->order->wall_ms * MS;
  measure(w);
  if (w->group->kind == CGROUP_NONE && w->resident_kb > (uint64_t)w->order->memory_kb) end_run(w, BY_MEMORY);
  else if (w->cpu_ns > (uint64_t)w->order->cpu_ms * MS) end_run(w, BY_CPU);
  else if (bytes_of(standard[2]) > (uint64_t)w->order->output_kb * 1024) end_run(w, BY_OUTPUT);
  else if (wall_ns > limit_ns * CEILING) end_run(w, BY_STARVATION);
  else if (wall_ns > limit_ns && has_slept(w, wall_ns, limit_ns)) end_run(w, BY_WALL);
}

/* The budget left cannot be used up before it has been divided by the processors. */
static int patience_ms(const struct watch *w, int processors) {
  if (w->ended || w->killed_ns) return 20;
  uint64_t limit_ns = (uint64_t)w->order->cpu_ms * MS, wall_ns = now_ns() - w->begun_ns;
  uint64_t left_ns = limit_ns > w->cpu_ns ? (limit_ns - w->cpu_ns) / (uint64_t)processors : 0;
  uint64_t wall_left_ns = (uint64_t)w->order->wall_ms * MS > wall_ns ? (uint64_t)w->order->wall_ms * MS - wall_ns : 0;
  if (wall_left_ns < left_ns) left_ns = wall_left_ns;
  if (w->group->kind == CGROUP_NONE && left_ns > 10 * MS) left_ns = 10 * MS;
  return left_ns < 2 * MS ? 2 : left_ns > 500 * MS ? 500 : (int)(left_ns / MS);
}

static void hear(struct watch *w) {
  struct message message;
  int fds[2] = {-1, -1}, fd_count = 2;
  ssize_t got = wire_receive(w->holder->socket, &message, sizeof message, fds, &fd_count, MSG_DONTWAIT);
  if (got != (ssize_t)sizeof message) {
    if (got >= 0 || errno != EAGAIN) {
      if (!*w->error) snprintf(w->error, sizeof w->error, "holder_lost");
      w->done = true;
    }
    return;
  }
  switch (message.kind) {
    case MSG_BEGUN:
      w->init_fd = fds[0];
      w->init = host_pid(fds[0]);
      break;
    case MSG_PROGRAM:
      w->program_fd = fds[0];
      w->program = host_pid(fds[0]);
      w->begun_ns = now_ns();
      /* For one run init has told nothing of itself yet. */
      if (fd_count == 2) w->init_fd = fds[1], w->init = host_pid(fds[1]);
      break;
    case MSG_ENDED:
      w->ended = true;
      w->ended_ns = now_ns();
      w->status = message.status;
      /* It ended before it was killed. */
      if (w->by == BY_WALL && !WIFSIGNALED(w->status)) w->by = BY_ITSELF;
      w->out_fd = fd_count ? fds[0] : -1;
      w->largest_kb = message.maxrss_kb;
      if (w->group->kind != CGROUP_NONE) break;
      if (message.cpu_us * 1000 > w->cpu_ns) w->cpu_ns = message.cpu_us * 1000;
      if (message.maxrss_kb > w->resident_kb) w->resident_kb = message.maxrss_kb;
      break;
    case MSG_FAILED:
      w->failed = true;
      snprintf(w->error, sizeof w->error, "%s", message.text);
      break;
    case MSG_DONE: w->done = true; break;
  }
}

/* Until the program has ended, or until its namespace is gone too. */
static void wait_for(struct watch *w, const bool *end, const int standard[3], int parent_pipe) {
  int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
  while (!*end && !w->done) {
    struct pollfd watched[2] = {{.fd = w->holder->socket, .events = POLLIN}, {.fd = parent_pipe, .events = 0}};
    int ready = poll(watched, 2, patience_ms(w, processors < 1 ? 1 : processors));
    if (ready > 0 && watched[0].revents) hear(w);
    if (ready > 0 && watched[1].revents & (POLLHUP | POLLERR)) {
      end_run(w, BY_CALLER);
      parent_pipe = -1;
      /* No process can be named yet: they end when we do. */
      if (w->holder->once && w->init_fd < 0) w->done = true;
    }
    if (!w->ended && !w->done && w->program_fd >= 0 && !w->killed_ns) check_limits(w, standard);
    /* Init is stuck, or the program is in a call that cannot be interrupted: the namespace goes. */
    if (w->killed_ns && now_ns() - w->killed_ns > GRACE_NS) send_kill(w->init_fd), cgroup_kill(w->group);
    if (w->killed_ns && now_ns() - w->killed_ns > 4 * GRACE_NS) {
      snprintf(w->error, sizeof w->error, "unkillable");
      return;
    }
  }
}

static const char *verdict_of(const struct watch *w, uint64_t peak_kb, long oom_kills, const int standard[3]) {
  uint64_t output_max = (uint64_t)w->order->output_kb * 1024;
  int signal = WIFSIGNALED(w->status) ? WTERMSIG(w->status) : 0;
  bool failed = signal || WEXITSTATUS(w->status);
  bool full = output_max && (bytes_of(standard[1]) >= output_max || bytes_of(standard[2]) >= output_max);
  if (oom_kills > 0 || w->by == BY_MEMORY) return "MLE";
  if (w->group->kind == CGROUP_NONE && peak_kb > (uint64_t)w->order->memory_kb) return "MLE";
  if (w->by == BY_OUTPUT || signal == SIGXFSZ || full) return "OLE";
  if (w->by == BY_CPU || w->by == BY_WALL || signal == SIGXCPU) return "TLE";
  if (w->cpu_ns > (uint64_t)w->order->cpu_ms * MS) return "TLE";
  /* A stack that meets its bound within a page of the memory's, and an allocation that was refused there. */
  if (failed && peak_kb + 64 >= (uint64_t)w->order->memory_kb) return "MLE";
  return failed ? "RE" : "OK";
}

static void settle(struct watch *w, const int standard[3], struct outcome *outcome) {
  uint64_t peak_kb = w->resident_kb;
  long oom_kills = 0;
  if (w->group->kind != CGROUP_NONE) {
    measure(w);
    peak_kb = cgroup_peak_kb(w->group);
    /* v2 has had no peak before Linux 5.19: then the largest of its processes is reported, and never nothing. */
    if (!peak_kb) peak_kb = w->largest_kb;
    oom_kills = cgroup_oom_kills(w->group);
  }
  outcome->time_ms = w->cpu_ns / MS;
  outcome->wall_ms = ((w->ended_ns ? w->ended_ns : now_ns()) - w->begun_ns) / MS;
  outcome->mem_kb = peak_kb;
  if (!w->ended && !*w->error) snprintf(w->error, sizeof w->error, "no_report");
  if (w->by == BY_CALLER) snprintf(w->error, sizeof w->error, "abandoned");
  if (w->by == BY_STARVATION) snprintf(w->error, sizeof w->error, "starved");
  if (*w->error) {
    outcome->verdict = "SE";
    snprintf(outcome->error, sizeof outcome->error, "%s", w->error);
    return;
  }
  outcome->exit_signal = WIFSIGNALED(w->status) ? WTERMSIG(w->status) : 0;
  outcome->exit_code = WIFEXITED(w->status) ? WEXITSTATUS(w->status) : 0;
  outcome->verdict = verdict_of(w, peak_kb, oom_kills, standard);
  /* A validator speaks by its exit code and leaves its feedback: only what was killed is not copied. */
  bool by_itself = w->by == BY_ITSELF && !outcome->exit_signal;
  if (w->out_fd >= 0 && by_itself && (!strcmp(outcome->verdict, "OK") || !strcmp(outcome->verdict, "RE"))) {
    const char *wrong = copy_out(w->out_fd, w->order->out_dir, w->order->out_kb, w->order->out_files);
    if (wrong) outcome->verdict = "RE", snprintf(outcome->error, sizeof outcome->error, "%s", wrong);
  }
}

/* Ours would keep a pipe to another program open after the program has closed it. */
static void let_go_of_pipes(const int standard[3]) {
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int i = 0; i < 3; i++) {
    struct stat kind;
    if (standard[i] > 2 && !fstat(standard[i], &kind) && S_ISFIFO(kind.st_mode)) dup3(nothing, standard[i], O_CLOEXEC);
  }
  if (nothing >= 0) close(nothing);
}

/* After the answer, so that the caller does not wait for the end of a namespace. False when something is left. */
static bool clean_up(struct watch *w, const int standard[3], bool begun) {
  if (!w->killed_ns) w->killed_ns = now_ns();
  if (w->holder->once) {
    if (!w->ended) send_kill(w->init_fd);
    /* The process that failed is gone, and the others with it. */
    w->holder->init_ends = w->ended || w->failed || w->init_fd >= 0;
    w->done = true;
  }
  if (begun && !w->done) wait_for(w, &w->done, standard, -1);
  if (w->init_fd >= 0) close(w->init_fd);
  if (w->program_fd >= 0) close(w->program_fd);
  if (w->out_fd >= 0) close(w->out_fd);
  return cgroup_end(w->group) && (!begun || w->done);
}

bool supervise(struct holder *holder, struct cgroup *group, const struct order *order, char *words, size_t length,
               const int standard[3], int parent_pipe, answer_function answer) {
  struct watch w = {.holder = holder, .group = group, .order = order, .init_fd = -1, .program_fd = -1, .out_fd = -1};
  struct outcome outcome = {.verdict = "SE"};
  int fds[6] = {standard[0], standard[1], standard[2]};
  w.begun_ns = now_ns();
  const char *wrong = holder->once ? NULL : cgroup_begin(group, order);
  memcpy(fds + 3, group->join, sizeof group->join);
  bool begun = holder->once || (!wrong && wire_send(holder->orders, words, length, fds, 3 + group->join_count) >= 0);
  if (wrong) {
    snprintf(w.error, sizeof w.error, "%s: %s", wrong, strerror(errno));
  } else if (!begun) {
    snprintf(w.error, sizeof w.error, "holder_lost");
  } else {
    let_go_of_pipes(standard);
    wait_for(&w, &w.ended, standard, parent_pipe);
  }
  settle(&w, standard, &outcome);
  bool answered = answer(order, &outcome);
  if (!clean_up(&w, standard, begun) || !answered || !strcmp(w.error, "holder_lost")) return false;
  /* An init that is gone without a word may have left its order to the next one. */
  if (begun && w.program_fd < 0 && !w.failed) return false;
  return holder->once || cgroup_prepare(group) == NULL;
}

static const char *long_name(const char *verdict) {
  static const char *NAMES[][2] = {{"OK", "Finished"}, {"TLE", "Time Limit Exceeded"}, {"MLE", "Memory Limit Exceeded"},
                                   {"OLE", "Output Limit Exceeded"}, {"RE", "Runtime Error"}, {"SE", "System Error"}};
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    if (!strcmp(NAMES[i][0], verdict)) return NAMES[i][1];
  return "System Error";
}

static const char *quoted(const char *text, char *room, size_t size) {
  size_t used = 0;
  for (; *text && used + 8 < size; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') room[used++] = '\\', room[used++] = (char)c;
    else if (c < 32 || c > 126) used += (size_t)snprintf(room + used, size - used, "\\u%04x", c);
    else room[used++] = (char)c;
  }
  room[used] = 0;
  return room;
}

size_t outcome_line(char *line, size_t size, const struct order *order, const struct outcome *o) {
  char job[800], error[1300];
  bool sandbox = !strcmp(o->verdict, "SE");
  quoted(order->job_id ? order->job_id : "", job, sizeof job);
  quoted(o->error, error, sizeof error);
  int length = snprintf(
      line, size,
      "{\"schema_version\":1,\"job_id\":\"%s\",\"attempt_id\":%ld,\"verdict\":\"%s\",\"time_ms\":%llu,\"mem_kb\":%llu,"
      "\"exit_signal\":%d,\"sandbox_error\":\"%s\",\"wall_ms\":%llu,\"status\":\"%s\",\"time_used\":%llu,"
      "\"memory_used\":%llu,\"exit_code\":%d,\"error\":\"%s\"}\n",
      job, order->attempt_id, o->verdict, (unsigned long long)o->time_ms, (unsigned long long)o->mem_kb, o->exit_signal,
      sandbox ? error : "", (unsigned long long)o->wall_ms, long_name(o->verdict), (unsigned long long)o->time_ms,
      (unsigned long long)o->mem_kb, o->exit_code, error);
  return length < 0 ? 0 : (size_t)length;
}
