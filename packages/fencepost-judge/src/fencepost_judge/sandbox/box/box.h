/* fencepost-box: run one untrusted program, and report in one line how it ended.
 *
 *   S  supervisor   outside; limits, clocks, verdict, copying out. Talks to the judge.          supervise.c
 *   H  holder       inside the namespaces that are kept; owns the prepared root.          holder.c, root.c
 *   I  init         process 1 of one run: mounts, starts the program, reaps all, reports.            init.c
 *   P  program      the submission.                                                                 guard.c
 *
 * S starts H once; H starts an I for each run, before its order comes; I starts P. Each arms PDEATHSIG and holds a pipe to its parent, so
 * the death of S ends everything below it. As an agent S serves many orders; as a command it serves one, and H only builds the
 * root beside I (single.c): every step from one process to the next is a wait for a processor.
 */
#ifndef FENCEPOST_BOX_H
#define FENCEPOST_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ORDER_BYTES_MAX 65536
#define ARGS_MAX 512
#define ENV_MAX 64
#define BINDS_MAX 24
#define ROOTS_MAX 48
#define NAME_MAX_BYTES 256
#define INSIDE_ID 1000

/* ---- order.c: what is asked for, as words "key=value" */
struct bind { const char *source, *target; };

struct order {
  const char *job_id;
  long attempt_id, cpu_ms, wall_ms, memory_kb, output_kb, stack_kb, processes, open_files, disk_kb, inodes;
  long out_kb, out_files;
  long core;                        /* the processor that the program runs on, or -1 */
  bool proc, in_out;                /* in_out: the program begins in /out, not in /box */
  const char *out_dir;              /* host folder that receives /out */
  const char *out_from;             /* below the workspace: what /out begins with */
  const char *args[ARGS_MAX + 1];
  const char *env[ENV_MAX + 1];
  struct bind binds[BINDS_MAX];     /* below the workspace -> place in the box, read-only */
  const char *roots[ROOTS_MAX];     /* those of the site's roots that this run sees */
  int arg_count, env_count, bind_count, root_count;
};

struct site {                       /* what one agent can offer to its runs */
  const char *roots[ROOTS_MAX];     /* host paths shown read-only at the same place */
  int root_count;
  const char *workspace;            /* host folder below which binds lie */
  uid_t outer_uid;                  /* the program's user outside, when we are root */
  int fds[3], parent_pipe;          /* one-shot: the program's standard files; the run ends when the parent's end is closed */
  int client;                       /* agent: where orders come from */
  bool no_cgroup;
};

const char *order_read(struct order *order, char *words, size_t length);
const char *word_of_site(struct site *site, char *word, bool *mine);

/* ---- cgroup.c */
enum cgroup_kind { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
struct cgroup {
  enum cgroup_kind kind;
  char memory[512], cpu[512], pids[512];   /* our folders; one and the same on v2 */
  char run_dir[640];                      /* this run's own folder: a used one carries its peak along */
  int run;
  int join[3], join_count;                /* where a process writes itself into this run's folders */
  long pids_max;                          /* what v1's shared folder of processes says */
  uint64_t cpu_before_ns;
  bool open, once, unified;               /* a tree of v2 is mounted, used or not */
};
void cgroup_find(struct cgroup *group, bool once);
void cgroup_sweep(void);
const char *cgroup_prepare(struct cgroup *group);
const char *cgroup_begin(struct cgroup *group, const struct order *order);
uint64_t cgroup_cpu_ns(const struct cgroup *group);
uint64_t cgroup_peak_kb(const struct cgroup *group);
long cgroup_oom_kills(const struct cgroup *group);
void cgroup_kill(const struct cgroup *group);
bool cgroup_end(struct cgroup *group);
void cgroup_leave(struct cgroup *group);

/* ---- holder.c */
struct holder {
  pid_t pid;
  int mapped;                       /* told when its ids are mapped; its end tells H that S is gone */
  int socket;                       /* S's end; H and every I write to the other one */
  int orders;                       /* S's end; whichever I is waiting reads from the other one */
  bool user_namespace, proc;
  bool once, init_ends;             /* for one run: its init is our child too, and is gone or as good as that */
};
/* Begun and awaited apart: meanwhile S has its own things to find. */
const char *holder_begin(struct holder *holder, const struct site *site);
const char *holder_await(struct holder *holder, const struct site *site);
void holder_kill(const struct holder *holder);
void holder_bury(struct holder *holder);
bool write_maps(int proc, pid_t pid, uid_t uid, gid_t gid);

/* ---- single.c: H and I of one run. H is gone as soon as the root is there */
/* S makes the cgroups meanwhile, and sends what is joined by to holder->orders. */
const char *single_begin(struct holder *holder, const struct site *site, const struct order *order);

/* ---- root.c */
/* Answer whether the host's proc could be kept, for a new one to be allowed beside it. */
bool root_for_many(int socket, const struct site *site);
/* With the program's user outside, when we are root, or 0. */
bool root_for_one(int socket, const struct site *site, const struct order *order, uid_t uid);
/* The folder as a tree of mounts of its own: what is opened below it has a path from there, and none outside. -1 where that is refused. */
int root_apart(const char *folder);
void write_text(const char *path, const char *text);
#define KEPT (CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

/* ---- init.c: runs as process 1 of a new pid namespace, never returns */
struct run_files {
  int socket, orders, parent_pipe;
  int outside;                      /* the holder's mount namespace, which has none of this run's mounts, or -1 */
  const struct site *site;
};
/* Everything that needs no order is done before there is one. Ends with INIT_UNFIT when that fails. */
#define INIT_UNFIT 3
_Noreturn void init_main(const struct run_files *files);
/* Both forms of process 1 end here: wait until the program and all other processes are gone. */
_Noreturn void init_wait(int socket, const struct order *order, pid_t program, const char *error_message);
void init_arm(int parent_pipe);
void init_mount_proc(int socket);

/* ---- guard.c: from here on the program's own code */
#define ERROR_MESSAGE_BYTES 140
void guard_prepare(void);
/* The program to be: gives up what it may not have, reports that on the control socket, and waits there for the run's descriptors. By then
 * the order is there too. */
struct start {
  const struct order *order;
  int control;
  bool hide_mounts;
  int outside;                      /* another mount namespace to hide them by, or -1: a new one */
  char error_message[ERROR_MESSAGE_BYTES];
};
_Noreturn void guard_exec(struct start *start);
/* The same where everything is known already: fds are the standard ones and those to join by. */
_Noreturn void guard_exec_at_once(struct start *start, const int *fds, int fd_count);

/* ---- process_tree.c: what a run uses where there is no cgroup, and whether it sleeps */
struct seen { uint64_t cpu_ns, resident_kb; };
/* All processes below init, or the program where init is not seen. What they share counts once, and costs a closer look: only when it could be more than known_kb. */
struct seen tree_look(pid_t init, pid_t program, uint64_t known_kb);
/* Whether one of them wants a processor, and the longest that one has waited for it; one that is gone may have waited longer. */
bool tree_is_runnable(pid_t init, pid_t program, uint64_t *waited_ns);
/* Not where /proc hides processes of others, or the kernel does not list children. */
bool tree_is_seen(pid_t pid);

/* ---- supervise.c */
struct outcome {
  const char *verdict;
  uint64_t time_ms, wall_ms, mem_kb;
  int exit_code, exit_signal;
  char error[200];                  /* empty unless the sandbox itself failed */
};
typedef bool (*answer_function)(const struct order *order, const struct outcome *outcome);
/* Runs, answers, cleans up. False when this process can serve no other run. */
bool supervise(struct holder *holder, struct cgroup *group, const struct order *order, char *words, size_t length,
               const int standard[3], int parent_pipe, answer_function answer);
size_t outcome_line(char *line, size_t size, const struct order *order, const struct outcome *outcome);

/* ---- copyout.c */
const char *copy_out(int from, const char *to, long kb_max, long files_max);

/* ---- wire.c: messages between S, H and I */
enum { MSG_BEGUN = 'B', MSG_PROGRAM = 'P', MSG_ENDED = 'X', MSG_FAILED = 'E', MSG_DONE = 'D', MSG_READY = 'R' };
struct message {
  char kind;
  int32_t status;
  uint64_t cpu_us, maxrss_kb;
  char text[160];
};
ssize_t wire_send(int socket, const void *data, size_t size, const int *fds, int fd_count);
ssize_t wire_receive(int socket, void *data, size_t size, int *fds, int *fd_count, int flags);
void wire_fail(int socket, const char *what, int error);
uint64_t now_ns(void);

/* ---- words.c: beside what a C library has under the same names (freestanding.c) */
/* After blanks; false, and nothing is taken, when there is none or it is too large. */
bool take_number(const char **at, uint64_t *number);
/* Cut to its room, or thrown away without any; false when there is none. */
bool take_word(const char **at, char *word, size_t size);
/* A file of the kernel's, by lines or by the numbers in it. Can be closed when it did not open. */
struct lines { int fd; size_t at, end; char room[4096]; };
bool lines_open(struct lines *lines, const char *path);
bool lines_next(struct lines *lines, char *line, size_t size);
bool lines_number(struct lines *lines, int *number);
void lines_close(struct lines *lines);

#endif
